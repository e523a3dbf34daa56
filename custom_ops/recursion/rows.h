// Rows: how the batched executor holds values.
//
// What a batch computes for a slot is one tensor with a row per frame, a block. A frame knows its value as a row of a
// block, so passing a value to a call, or a result up, copies eight bytes; the rows of a batch are brought together only
// when a graph is about to read them.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ROWS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ROWS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_ext {
namespace recursion {

struct Ref {
  int32_t block = -1;
  int32_t row = 0;
};

// What remains of a block when its values are no longer wanted: the shape its gradient will have.
struct BlockInfo {
  tensorflow::TensorShape shape;  // [rows, row...]
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  int32_t rows = 0;
  int32_t view = -1;  // the block that shows this one as [rows * m, ...]: its gradient is part of this one's
  bool differentiated = false;
};

struct RowBlock {
  BlockInfo info;
  tensorflow::Tensor value;
  const char* data = nullptr;
  int64_t row_bytes = 0;
  int32_t users = 0;  // slots, lists and views that hold a row
  bool plain_bytes = true;  // a row may be copied as bytes
};

// Memory and threads for moving rows.
struct RowMover {
  tensorflow::Allocator* allocator;
  const tensorflow::DeviceBase::CpuWorkerThreads* workers;  // null: the calling thread alone

  // Calls `work(begin, end)` for parts of [0, num_rows), on several threads if there is enough to move.
  void ForRows(int64_t num_rows, int64_t row_bytes, const std::function<void(int64_t, int64_t)>& work) const;
};

// All blocks of one run. One thread. References to blocks last until the next Add.
class BlockStore {
 public:
  // `keep`: numbers are never given twice, since a tape refers to them.
  explicit BlockStore(bool keep) : keep_(keep) { blocks_.reserve(256); }

  // Takes `value`, [rows, row...] with at least one row and fewer than 2^31, held by `users`.
  int Add(tensorflow::Tensor value, int32_t users, bool differentiated);
  // The block that shows rows [m, ...] of `block` as m rows each. It lives as long as either has users.
  int View(int block);

  const RowBlock& operator[](int block) const { return blocks_[block]; }
  void Hold(int block, int32_t users = 1) { blocks_[block].users += users; }
  void Release(int block) {
    if (--blocks_[block].users == 0) Drop(block);
  }

  // The rows one below the other. Whole blocks, and aligned parts of a block, are passed on and not copied. This and the
  // following may run on several threads at once, while nothing else does.
  absl::Status Gather(absl::Span<const Ref> refs, const RowMover& mover, tensorflow::Tensor* out) const;
  // Rows of several slots side by side; all parts have equally many rows, of shapes that differ in the first dimension only.
  absl::Status GatherJoined(absl::Span<const absl::Span<const Ref>> parts, const RowMover& mover,
                            tensorflow::Tensor* out) const;
  // Row i is the sum, in order, of refs[offsets[i]] to refs[offsets[i + 1]]; zeros of `row_shape` where there are none.
  absl::Status GatherSums(absl::Span<const Ref> refs, absl::Span<const int32_t> offsets,
                          const tensorflow::PartialTensorShape& row_shape, tensorflow::DataType dtype,
                          const RowMover& mover, tensorflow::Tensor* out) const;

  std::vector<BlockInfo> TakeInfos();

 private:
  void Drop(int block);
  absl::Status Check(absl::Span<const Ref> refs) const;
  // `stride`: bytes from one row of `out` to the next.
  void CopyRows(absl::Span<const Ref> refs, int64_t row_bytes, char* out, int64_t stride) const;

  bool keep_;
  std::vector<RowBlock> blocks_;
  std::vector<int32_t> free_;
};

// The first row if `refs` are consecutive rows of one block, else -1.
int64_t Consecutive(absl::Span<const Ref> refs);

// [rows, row...] from a block's shape.
tensorflow::TensorShape WithRows(const tensorflow::TensorShape& shape, int64_t rows);

// to[i] += from[i] for `count` elements of a numeric type; InvalidArgument for others.
absl::Status AddElements(tensorflow::DataType dtype, void* to, const void* from, int64_t count);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ROWS_H_
