#include "custom_ops/recursion/packed_matrices.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "custom_ops/recursion/clones.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::Tensor;

constexpr int64_t kLine = 16;     // floats in a cache line
constexpr int64_t kTileRows = 6;  // of y: with them the sums of a tile fill the vector registers

// Half a line: wider ones are taken apart in memory where registers are no wider.
typedef float Vector __attribute__((vector_size(kLine / 2 * sizeof(float)), aligned(sizeof(float)), may_alias));

// Rows of y, the width of one strip: the first `width` columns are written.
template <int kRows>
inline __attribute__((always_inline)) void MultiplyTile(const float* x, const float* strip, int64_t depth, float* y,
                                                        int64_t stride, int64_t width) {
  Vector sums[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k, strip += kLine) {
    const Vector left = *reinterpret_cast<const Vector*>(strip);
    const Vector right = *reinterpret_cast<const Vector*>(strip + kLine / 2);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] += x[r * depth + k] * left;
      sums[r][1] += x[r * depth + k] * right;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    if (width == kLine) {
      *reinterpret_cast<Vector*>(y + r * stride) = sums[r][0];
      *reinterpret_cast<Vector*>(y + r * stride + kLine / 2) = sums[r][1];
    } else {
      std::memcpy(y + r * stride, &sums[r][0], width * sizeof(float));
    }
  }
}

// Strip after strip: the one at hand and a tile's rows of x stay in the first cache.
TF_EXT_CLONES void MultiplyStrips(const float* x, int64_t rows, const float* strip, int64_t depth, int64_t width,
                                  float* y) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t j = 0; j < width; j += kLine, strip += depth * kLine) {
    const int64_t columns = std::min(kLine, width - j);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = rows * t / tiles;
      const float* from = x + begin * depth;
      float* to = y + begin * width + j;
      switch (rows * (t + 1) / tiles - begin) {
        case 1: MultiplyTile<1>(from, strip, depth, to, width, columns); break;
        case 2: MultiplyTile<2>(from, strip, depth, to, width, columns); break;
        case 3: MultiplyTile<3>(from, strip, depth, to, width, columns); break;
        case 4: MultiplyTile<4>(from, strip, depth, to, width, columns); break;
        case 5: MultiplyTile<5>(from, strip, depth, to, width, columns); break;
        default: MultiplyTile<6>(from, strip, depth, to, width, columns); break;
      }
    }
  }
}

// The transpose of `matrix` [width, depth].
void Pack(const float* matrix, int64_t depth, int64_t width, float* to) {
  for (int64_t j = 0; j < width; j += kLine) {
    const int64_t columns = std::min(kLine, width - j);
    for (int64_t k = 0; k < depth; ++k, to += kLine) {
      for (int64_t c = 0; c < columns; ++c) to[c] = matrix[(j + c) * depth + k];
      std::fill(to + columns, to + kLine, 0.0f);
    }
  }
}

}  // namespace

PackedMatrices::~PackedMatrices() {
  for (const std::atomic<const PackedMatrix*>& packed : packed_) delete packed.load(std::memory_order_relaxed);
}

const PackedMatrix& PackedMatrices::Get(int env) {
  if (const PackedMatrix* packed = packed_[env].load(std::memory_order_acquire)) return *packed;
  absl::MutexLock lock(&mutex_);
  if (const PackedMatrix* packed = packed_[env].load(std::memory_order_acquire)) return *packed;
  const Tensor& matrix = (*env_)[env];
  auto packed = std::make_unique<PackedMatrix>();
  packed->depth = matrix.dim_size(1);
  packed->width = matrix.dim_size(0);
  packed->strips = Tensor(tensorflow::DT_FLOAT, {(packed->width + kLine - 1) / kLine, packed->depth, kLine});
  Pack(static_cast<const float*>(matrix.data()), packed->depth, packed->width,
       static_cast<float*>(packed->strips.data()));
  packed_[env].store(packed.get(), std::memory_order_release);
  return *packed.release();
}

void Multiply(const float* x, int64_t rows, const PackedMatrix& matrix, float* y) {
  MultiplyStrips(x, rows, static_cast<const float*>(matrix.strips.data()), matrix.depth, matrix.width, y);
}

}  // namespace recursion
}  // namespace tf_ext
