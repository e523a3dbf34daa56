#include "custom_ops/recursion/row_moves.h"

#include <algorithm>
#include <cstring>

#include "custom_ops/recursion/rows.h"
#include "custom_ops/recursion/shares.h"

namespace tf_ext {
namespace recursion {
namespace {

constexpr int64_t kParallelBytes = 1 << 16;  // below it, waking a thread costs more than the work
constexpr int64_t kSlice = 64;               // bytes of a row that one thread takes at least
constexpr size_t kPrefetchDistance = 2;

}  // namespace

// On several threads each row is cut, so that the moves to one row stay in order.
void RowMoves::Run(tensorflow::DataType dtype, int64_t row_bytes,
                   const tensorflow::DeviceBase::CpuWorkerThreads* workers) const {
  const int64_t threads = workers == nullptr ? 1 : std::min<int64_t>(workers->num_threads, row_bytes / kSlice);
  if (threads < 2 || static_cast<int64_t>(moves_.size()) * row_bytes < kParallelBytes) {
    return RunPart(dtype, 0, row_bytes);
  }
  const int64_t slice = (row_bytes / threads + kSlice - 1) / kSlice * kSlice;
  RunShares(workers, threads, [&](int i) {
    if (i * slice < row_bytes) RunPart(dtype, i * slice, std::min((i + 1) * slice, row_bytes));
  });
}

// Bytes [begin, end) of every row.
void RowMoves::RunPart(tensorflow::DataType dtype, int64_t begin, int64_t end) const {
  const int64_t size = tensorflow::DataTypeSize(dtype);
  for (size_t i = 0; i < moves_.size(); ++i) {
    if (i + kPrefetchDistance < moves_.size()) {
      __builtin_prefetch(moves_[i + kPrefetchDistance].to + begin, 1);
      __builtin_prefetch(moves_[i + kPrefetchDistance].to + begin + 64, 1);
    }
    char* to = moves_[i].to + begin;
    const char* from = moves_[i].from + begin;
    if (moves_[i].add) {
      AddElements(dtype, to, from, (end - begin) / size).IgnoreError();
    } else {
      std::memcpy(to, from, end - begin);
    }
  }
}

}  // namespace recursion
}  // namespace tf_ext
