#include "custom_ops/recursion/rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_ext {
namespace recursion {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

constexpr int64_t kAlignment = 64;            // what kernels may assume of a buffer
constexpr int64_t kParallelBytes = 1 << 18;   // below it, waking a thread costs more than the copy

// Reads are scattered and rows are short: the next rows' addresses are known well before they are needed.
constexpr int kPrefetchDistance = 4;

template <typename T>
void CopyWords(const std::vector<RowBlock>& blocks, absl::Span<const Ref> refs, char* out) {
  T* to = reinterpret_cast<T*>(out);
  for (const Ref& ref : refs) *to++ = reinterpret_cast<const T*>(blocks[ref.block].data)[ref.row];
}

void CopyBytes(const std::vector<RowBlock>& blocks, absl::Span<const Ref> refs, int64_t row_bytes, char* out,
               int64_t stride) {
  const int64_t n = refs.size();
  for (int64_t i = 0; i < n; ++i, out += stride) {
    if (i + kPrefetchDistance < n) {
      const Ref& ahead = refs[i + kPrefetchDistance];
      const char* line = blocks[ahead.block].data + ahead.row * row_bytes;
      __builtin_prefetch(line);
      __builtin_prefetch(line + 64);
    }
    std::memcpy(out, blocks[refs[i].block].data + refs[i].row * row_bytes, row_bytes);
  }
}

template <typename T>
void CopyObjects(const std::vector<RowBlock>& blocks, absl::Span<const Ref> refs, int64_t row_bytes, Tensor* out) {
  const int64_t count = row_bytes / sizeof(T);
  T* to = static_cast<T*>(out->data());
  for (const Ref& ref : refs) {
    const T* from = reinterpret_cast<const T*>(blocks[ref.block].data) + ref.row * count;
    for (int64_t k = 0; k < count; ++k) *to++ = from[k];
  }
}

__attribute__((target_clones("avx2", "default"))) void AddFloats(float* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <typename T>
void AddTyped(void* to, const void* from, int64_t count) {
  T* a = static_cast<T*>(to);
  const T* b = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) a[i] += b[i];
}

}  // namespace

absl::Status AddElements(DataType dtype, void* to, const void* from, int64_t count) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
      AddFloats(static_cast<float*>(to), static_cast<const float*>(from), count);
      return absl::OkStatus();
#define TF_EXT_ADD(T)                            \
  case tensorflow::DataTypeToEnum<T>::value:     \
    AddTyped<T>(to, from, count);                \
    return absl::OkStatus();
      TF_CALL_double(TF_EXT_ADD);
      TF_CALL_half(TF_EXT_ADD);
      TF_CALL_bfloat16(TF_EXT_ADD);
      TF_CALL_complex64(TF_EXT_ADD);
      TF_CALL_complex128(TF_EXT_ADD);
      TF_CALL_INTEGRAL_TYPES(TF_EXT_ADD);
#undef TF_EXT_ADD
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("Rows of type ", tensorflow::DataTypeString(dtype), " cannot be summed."));
  }
}

int64_t Consecutive(absl::Span<const Ref> refs) {
  const Ref first = refs[0];
  for (size_t i = 1; i < refs.size(); ++i) {
    if (refs[i].block != first.block || refs[i].row != first.row + static_cast<int32_t>(i)) return -1;
  }
  return first.row;
}

TensorShape WithRows(const TensorShape& shape, int64_t rows) {
  TensorShape result = shape;
  result.set_dim(0, rows);
  return result;
}

int BlockStore::Add(Tensor value, int32_t users, bool differentiated) {
  int index = blocks_.size();
  if (free_.empty()) {
    blocks_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  RowBlock& block = blocks_[index];
  block.info.shape = value.shape();
  block.info.dtype = value.dtype();
  block.info.rows = value.dim_size(0);
  block.info.view = -1;
  block.info.differentiated = differentiated && tensorflow::DataTypeIsFloating(value.dtype());
  block.data = static_cast<const char*>(value.data());
  block.row_bytes = value.NumElements() / block.info.rows * tensorflow::DataTypeSize(value.dtype());
  block.plain_bytes = tensorflow::DataTypeCanUseMemcpy(value.dtype());
  if (!block.plain_bytes) {
    block.row_bytes = value.NumElements() / block.info.rows *
                      (value.dtype() == tensorflow::DT_STRING    ? sizeof(tensorflow::tstring)
                       : value.dtype() == tensorflow::DT_VARIANT ? sizeof(tensorflow::Variant)
                                                                 : sizeof(tensorflow::ResourceHandle));
  }
  block.users = users;
  block.value = std::move(value);
  if (users == 0) Drop(index);
  return index;
}

int BlockStore::View(int block) {
  if (blocks_[block].info.view >= 0) return blocks_[block].info.view;
  TensorShape shape = blocks_[block].info.shape;
  const int64_t rows = shape.dim_size(0) * shape.dim_size(1);
  shape.RemoveDim(0);
  shape.set_dim(0, rows);
  Tensor value;
  const bool fits = value.CopyFrom(blocks_[block].value, shape);
  DCHECK(fits);
  (void)fits;
  const int view = Add(std::move(value), /*users=*/1, blocks_[block].info.differentiated);
  blocks_[block].info.view = view;
  return view;
}

void BlockStore::Drop(int block) {
  RowBlock& dropped = blocks_[block];
  dropped.value = Tensor();
  dropped.data = nullptr;
  if (!keep_) free_.push_back(block);
  if (dropped.info.view >= 0) Release(dropped.info.view);  // not deep: a view has one dimension less
}

std::vector<BlockInfo> BlockStore::TakeInfos() {
  std::vector<BlockInfo> infos;
  infos.reserve(blocks_.size());
  for (RowBlock& block : blocks_) infos.push_back(std::move(block.info));
  return infos;
}

namespace {

// Whether rows of two blocks have the same shape: equal bytes are not enough, [2, 3] is not [3, 2].
bool SameRows(const tensorflow::TensorShape& a, const tensorflow::TensorShape& b) {
  if (a.dims() != b.dims()) return false;
  for (int d = 1; d < a.dims(); ++d) {
    if (a.dim_size(d) != b.dim_size(d)) return false;
  }
  return true;
}

}  // namespace

absl::Status BlockStore::Check(absl::Span<const Ref> refs) const {
  if (refs[0].block < 0) return absl::InternalError("A block reads a slot that was never written.");
  const RowBlock& first = blocks_[refs[0].block];
  int32_t last = refs[0].block;
  for (const Ref& ref : refs) {
    if (ref.block == last) continue;
    last = ref.block;
    if (last < 0) return absl::InternalError("A block reads a slot that was never written.");
    const RowBlock& block = blocks_[last];
    if (block.info.dtype != first.info.dtype || !SameRows(block.info.shape, first.info.shape)) {
      return absl::InvalidArgumentError(absl::StrCat("Values of different shapes cannot be stacked: rows of ",
                                                     first.info.shape.DebugString(), " and of ",
                                                     block.info.shape.DebugString(), "."));
    }
  }
  return absl::OkStatus();
}

void BlockStore::CopyRows(absl::Span<const Ref> refs, int64_t row_bytes, char* out, int64_t stride) const {
  if (stride != row_bytes) return CopyBytes(blocks_, refs, row_bytes, out, stride);
  switch (row_bytes) {
    case 0: return;
    case 1: return CopyWords<uint8_t>(blocks_, refs, out);
    case 4: return CopyWords<uint32_t>(blocks_, refs, out);
    case 8: return CopyWords<uint64_t>(blocks_, refs, out);
    default: return CopyBytes(blocks_, refs, row_bytes, out, stride);
  }
}

void RowMover::ForRows(int64_t num_rows, int64_t row_bytes, const std::function<void(int64_t, int64_t)>& work) const {
  if (num_rows * row_bytes < kParallelBytes || workers == nullptr) return work(0, num_rows);
  tensorflow::Shard(workers->num_threads, workers->workers, num_rows, row_bytes, work);
}

absl::Status BlockStore::Gather(absl::Span<const Ref> refs, const RowMover& mover, Tensor* out) const {
  if (refs[0].block < 0) return absl::InternalError("A block reads a slot that was never written.");
  const RowBlock& first = blocks_[refs[0].block];
  const int64_t n = refs.size();
  const int64_t start = Consecutive(refs);
  if (start == 0 && n == first.info.rows) {
    *out = first.value;
    return absl::OkStatus();
  }
  if (start >= 0 && reinterpret_cast<uintptr_t>(first.data + start * first.row_bytes) % kAlignment == 0) {
    *out = first.value.Slice(start, start + n);
    return absl::OkStatus();
  }
  *out = Tensor(mover.allocator, first.info.dtype, WithRows(first.info.shape, n));
  if (start >= 0 && first.plain_bytes) {
    std::memcpy(out->data(), first.data + start * first.row_bytes, n * first.row_bytes);
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(Check(refs));
  if (first.plain_bytes) {
    char* to = static_cast<char*>(out->data());
    const int64_t row_bytes = first.row_bytes;
    mover.ForRows(n, row_bytes, [&](int64_t begin, int64_t end) {
      CopyRows(refs.subspan(begin, end - begin), row_bytes, to + begin * row_bytes, row_bytes);
    });
  } else if (first.info.dtype == tensorflow::DT_STRING) {
    CopyObjects<tensorflow::tstring>(blocks_, refs, first.row_bytes, out);
  } else if (first.info.dtype == tensorflow::DT_VARIANT) {
    CopyObjects<tensorflow::Variant>(blocks_, refs, first.row_bytes, out);
  } else {
    CopyObjects<tensorflow::ResourceHandle>(blocks_, refs, first.row_bytes, out);
  }
  return absl::OkStatus();
}

absl::Status BlockStore::GatherJoined(absl::Span<const absl::Span<const Ref>> parts, const RowMover& mover,
                                      Tensor* out) const {
  const int64_t n = parts[0].size();
  TensorShape shape;
  int64_t width = 0, stride = 0;
  for (const absl::Span<const Ref>& refs : parts) {
    TF_RETURN_IF_ERROR(Check(refs));
    const RowBlock& first = blocks_[refs[0].block];
    shape = first.info.shape;
    width += shape.dim_size(1);
    stride += first.row_bytes;
  }
  shape.set_dim(0, n);
  shape.set_dim(1, width);
  *out = Tensor(mover.allocator, blocks_[parts[0][0].block].info.dtype, shape);
  if (static_cast<int64_t>(out->TotalBytes()) != n * stride) {
    return absl::InvalidArgumentError("Rows of different shapes cannot lie side by side.");
  }
  char* to = static_cast<char*>(out->data());
  mover.ForRows(n, stride, [&](int64_t begin, int64_t end) {
    int64_t offset = begin * stride;
    for (const absl::Span<const Ref>& refs : parts) {
      const int64_t row_bytes = blocks_[refs[0].block].row_bytes;
      CopyRows(refs.subspan(begin, end - begin), row_bytes, to + offset, stride);
      offset += row_bytes;
    }
  });
  return absl::OkStatus();
}

absl::Status BlockStore::GatherSums(absl::Span<const Ref> refs, absl::Span<const int32_t> offsets,
                                    const tensorflow::PartialTensorShape& row_shape, DataType dtype,
                                    const RowMover& mover, Tensor* out) const {
  const int64_t n = offsets.size() - 1;
  TensorShape shape;
  if (!refs.empty()) {
    TF_RETURN_IF_ERROR(Check(refs));
    shape = WithRows(blocks_[refs[0].block].info.shape, n);
  } else if (row_shape.AsTensorShape(&shape)) {
    shape.InsertDim(0, n);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("The sum over no calls needs a result of known shape, not ",
                                                   row_shape.DebugString(), "."));
  }
  *out = Tensor(mover.allocator, dtype, shape);
  const int64_t count = shape.num_elements() / n;
  const int64_t row_bytes = count * tensorflow::DataTypeSize(dtype);
  char* to = static_cast<char*>(out->data());
  TF_RETURN_IF_ERROR(AddElements(dtype, to, to, 0));  // only to refuse the type
  const auto sum = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* row = to + i * row_bytes;
      int32_t k = offsets[i];
      if (k == offsets[i + 1]) {
        std::memset(row, 0, row_bytes);
        continue;
      }
      std::memcpy(row, blocks_[refs[k].block].data + refs[k].row * row_bytes, row_bytes);
      for (++k; k < offsets[i + 1]; ++k) {
        AddElements(dtype, row, blocks_[refs[k].block].data + refs[k].row * row_bytes, count).IgnoreError();
      }
    }
  };
  mover.ForRows(n, refs.size() * row_bytes / n, sum);
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
