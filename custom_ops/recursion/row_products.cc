#include "custom_ops/recursion/row_products.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "custom_ops/recursion/clones.h"
#include "custom_ops/recursion/shares.h"

namespace tf_ext {
namespace recursion {
namespace {

constexpr int kTileRows = 6;        // of c: the sums of a tile fill the vector registers
constexpr int kLineBytes = 64;      // width of a tile
constexpr int64_t kDepth = 96;      // rows that are summed at a time: with them y in the width of a tile stays in the first cache
constexpr int64_t kWorthSharing = 1 << 21;  // products that pay for waking a thread

template <typename T>
struct Line {
  static constexpr int kSize = kLineBytes / sizeof(T);
  static constexpr int kHalf = kSize / 2;
  // Half a line: wider ones are taken apart in memory where registers are no wider.
  typedef T Vector __attribute__((vector_size(kLineBytes / 2), aligned(sizeof(T)), may_alias));
};

// One tile of c += x^T y, for x [depth, kTileRows] and y [depth, one line], both packed.
template <typename T>
inline __attribute__((always_inline)) void AddTile(const T* x, const T* y, int64_t depth, T* c, int64_t stride) {
  using Vector = typename Line<T>::Vector;
  constexpr int kHalf = Line<T>::kHalf;
  Vector sums[kTileRows][2] = {};  // apart from c: sums of sums round less
  for (int64_t k = 0; k < depth; ++k, x += kTileRows, y += Line<T>::kSize) {
    const Vector left = *reinterpret_cast<const Vector*>(y), right = *reinterpret_cast<const Vector*>(y + kHalf);
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      sums[r][0] += x[r] * left;
      sums[r][1] += x[r] * right;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
    *reinterpret_cast<Vector*>(c + r * stride) += sums[r][0];
    *reinterpret_cast<Vector*>(c + r * stride + kHalf) += sums[r][1];
  }
}

// All tiles of one line's width. x: panels of kTileRows columns, [ceil(m / kTileRows), depth, kTileRows].
template <typename T>
inline __attribute__((always_inline)) void AddStrip(const T* x, const T* y, int64_t depth, int64_t m, int64_t width,
                                                    T* c, int64_t stride) {
  constexpr int kSize = Line<T>::kSize;
  for (int64_t i = 0; i < m; i += kTileRows, x += depth * kTileRows) {
    T* tile = c + i * stride;
    const int64_t height = std::min<int64_t>(kTileRows, m - i);
    if (height == kTileRows && width == kSize) {
      AddTile(x, y, depth, tile, stride);
      continue;
    }
    T whole[kTileRows * kSize] = {};  // at an edge of c
    for (int64_t r = 0; r < height; ++r) std::memcpy(whole + r * kSize, tile + r * stride, width * sizeof(T));
    AddTile(x, y, depth, whole, kSize);
    for (int64_t r = 0; r < height; ++r) std::memcpy(tile + r * stride, whole + r * kSize, width * sizeof(T));
  }
}

TF_EXT_CLONES void AddStripOf(const float* x, const float* y, int64_t depth, int64_t m, int64_t width, float* c,
                              int64_t stride) {
  AddStrip(x, y, depth, m, width, c, stride);
}

TF_EXT_CLONES void AddStripOf(const double* x, const double* y, int64_t depth, int64_t m, int64_t width, double* c,
                              int64_t stride) {
  AddStrip(x, y, depth, m, width, c, stride);
}

// Rows [begin, end) of a pair.
template <typename T>
struct Part {
  const RowPair<T>* pair;
  int64_t begin, end;
};

// Columns of rows of `stride` elements, the first `width` of those that lie at `from`, packed kLanes wide with zeros.
template <int kLanes, typename T>
T* Pack(const T* from, int64_t num_rows, int64_t stride, int64_t width, T* to) {
  if (width == kLanes) {
    for (int64_t r = 0; r < num_rows; ++r, to += kLanes) std::memcpy(to, from + r * stride, kLanes * sizeof(T));
    return to;
  }
  for (int64_t r = 0; r < num_rows; ++r, to += kLanes) {
    std::fill(std::copy_n(from + r * stride, width, to), to + kLanes, T(0));
  }
  return to;
}

// c += x^T y for columns [begin, end) of c, in whole lines.
template <typename T>
void AddColumns(absl::Span<const RowPair<T>> pairs, int64_t m, int64_t n, int64_t begin, int64_t end, T* c) {
  constexpr int kSize = Line<T>::kSize;
  const int64_t panels = (m + kTileRows - 1) / kTileRows;
  std::vector<T> x(panels * kDepth * kTileRows), y(kDepth * kSize);
  std::vector<Part<T>> parts;
  size_t pair = 0;
  int64_t row = 0;
  while (pair < pairs.size()) {
    parts.clear();
    int64_t depth = 0;
    while (pair < pairs.size() && depth < kDepth) {
      const int64_t taken = std::min(kDepth - depth, pairs[pair].rows - row);
      parts.push_back({&pairs[pair], row, row + taken});
      depth += taken;
      row += taken;
      if (row == pairs[pair].rows) ++pair, row = 0;
    }
    T* to = x.data();
    for (int64_t i = 0; i < m; i += kTileRows) {
      const int64_t width = std::min<int64_t>(kTileRows, m - i);
      for (const Part<T>& p : parts) to = Pack<kTileRows>(p.pair->x + p.begin * m + i, p.end - p.begin, m, width, to);
    }
    for (int64_t j = begin; j < end; j += kSize) {
      const int64_t width = std::min<int64_t>(kSize, n - j);
      to = y.data();
      for (const Part<T>& p : parts) to = Pack<kSize>(p.pair->y + p.begin * n + j, p.end - p.begin, n, width, to);
      AddStripOf(x.data(), y.data(), depth, m, width, c + j, n);
    }
  }
}

}  // namespace

template <typename T>
void AddRowProducts(absl::Span<const RowPair<T>> pairs, int64_t m, int64_t n, T* c,
                    const tensorflow::DeviceBase::CpuWorkerThreads* workers) {
  int64_t rows = 0;
  for (const RowPair<T>& pair : pairs) rows += pair.rows;
  if (rows == 0 || m == 0 || n == 0) return;
  constexpr int kSize = Line<T>::kSize;
  const int64_t lines = (n + kSize - 1) / kSize;
  const int64_t threads = workers == nullptr ? 1 : workers->num_threads;
  const int num = std::max<int64_t>(1, std::min({threads, lines, rows * m * n / kWorthSharing}));
  RunShares(workers, num, [&](int i) {
    AddColumns(pairs, m, n, ShareBegin(lines, num, i) * kSize, std::min(n, ShareBegin(lines, num, i + 1) * kSize), c);
  });
}

template void AddRowProducts<float>(absl::Span<const RowPair<float>>, int64_t, int64_t, float*,
                                    const tensorflow::DeviceBase::CpuWorkerThreads*);
template void AddRowProducts<double>(absl::Span<const RowPair<double>>, int64_t, int64_t, double*,
                                     const tensorflow::DeviceBase::CpuWorkerThreads*);

}  // namespace recursion
}  // namespace tf_ext
