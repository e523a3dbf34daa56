#include "custom_ops/recursion/row_gradients.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

using tensorflow::DataType;
using tensorflow::Tensor;

namespace {

// Whether nobody else can see what is written into the tensor.
bool Exclusive(const Tensor& tensor) {
  auto* buffer = const_cast<tensorflow::TensorBuffer*>(tensorflow::DMAHelper::buffer(&tensor));
  return buffer != nullptr && buffer->RefCountIsOne() && buffer->root_buffer()->RefCountIsOne() &&
         buffer->OwnsMemory();
}

char* Bytes(const Tensor& tensor) { return static_cast<char*>(tensor.data()); }

}  // namespace

absl::Status RowGradients::Scatter(const SourceRows& rows, Tensor gradient) {
  if (rows.block < 0 && rows.refs.empty()) return absl::OkStatus();
  const BlockInfo& info = infos_[rows.refs.empty() ? rows.block : rows.refs[0].block];
  const int64_t row_elements = info.shape.num_elements() / info.rows;
  if (gradient.NumElements() != rows.count * row_elements) {
    return absl::InvalidArgumentError(absl::StrCat("A gradient of shape ", gradient.shape().DebugString(),
                                                   " came for ", rows.count, " rows of ", info.shape.DebugString(), "."));
  }
  if (!rows.refs.empty()) {
    const int64_t row_bytes = row_elements * tensorflow::DataTypeSize(gradient.dtype());
    return ScatterRefs(rows, row_bytes, Bytes(gradient), gradient.dtype());
  }
  if (!info.differentiated) return absl::OkStatus();
  if (rows.start == 0 && rows.count == info.rows) return ScatterAll(rows.block, std::move(gradient));
  return ScatterRun(rows.block, rows.start, rows.count, gradient);
}

absl::Status RowGradients::ScatterAll(int block, Tensor gradient) {
  State& state = states_[block];
  if (!state.exists) {
    state.exists = true;
    if (!state.value.CopyFrom(gradient, infos_[block].shape)) return absl::InternalError("A gradient's size changed.");
    return absl::OkStatus();
  }
  FillMissing(state);
  if (!Exclusive(state.value)) {
    if (Exclusive(gradient)) {
      const Tensor old = std::move(state.value);
      if (!state.value.CopyFrom(gradient, infos_[block].shape)) return absl::InternalError("A gradient's size changed.");
      return AddElements(old.dtype(), Bytes(gradient), Bytes(old), old.NumElements());
    }
    Open(block);
  }
  return AddElements(gradient.dtype(), Bytes(state.value), Bytes(gradient), gradient.NumElements());
}

RowGradients::State& RowGradients::Open(int block) {
  State& state = states_[block];
  const BlockInfo& info = infos_[block];
  if (!state.exists) {
    state.exists = true;
    state.value = Tensor(mover_.allocator, info.dtype, info.shape);
    state.missing = info.rows;
    state.written.assign(info.rows, 0);
  } else if (!Exclusive(state.value)) {
    Tensor copy(mover_.allocator, info.dtype, info.shape);
    std::memcpy(copy.data(), state.value.data(), state.value.TotalBytes());
    state.value = std::move(copy);
  }
  return state;
}

void RowGradients::AddRow(State& state, int64_t row, int64_t row_bytes, const char* from, DataType dtype) {
  char* to = Bytes(state.value) + row * row_bytes;
  if (state.missing > 0 && !state.written[row]) {
    state.written[row] = 1;
    --state.missing;
    std::memcpy(to, from, row_bytes);
  } else {
    AddElements(dtype, to, from, row_bytes / tensorflow::DataTypeSize(dtype)).IgnoreError();
  }
}

absl::Status RowGradients::ScatterRun(int block, int64_t start, int64_t num_rows, const Tensor& gradient) {
  const bool fresh = !states_[block].exists;
  State& state = Open(block);
  const int64_t row_bytes = gradient.TotalBytes() / num_rows;
  const char* from = Bytes(gradient);
  if (fresh) {
    std::memcpy(Bytes(state.value) + start * row_bytes, from, num_rows * row_bytes);
    std::memset(state.written.data() + start, 1, num_rows);
    state.missing -= num_rows;
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < num_rows; ++i) AddRow(state, start + i, row_bytes, from + i * row_bytes, gradient.dtype());
  return absl::OkStatus();
}

absl::Status RowGradients::ScatterRefs(const SourceRows& rows, int64_t row_bytes, const char* from, DataType dtype) {
  TF_RETURN_IF_ERROR(AddElements(dtype, nullptr, nullptr, 0));  // only to refuse the type
  const bool sums = !rows.offsets.empty();
  int64_t row = 0;
  int32_t last = -1;
  State* state = nullptr;
  for (size_t k = 0; k < rows.refs.size(); ++k) {
    const Ref ref = rows.refs[k];
    if (sums) {
      while (static_cast<int32_t>(k) >= rows.offsets[row + 1]) ++row;
    }
    if (ref.block != last) {
      last = ref.block;
      state = infos_[last].differentiated ? &Open(last) : nullptr;
    }
    if (state != nullptr) AddRow(*state, ref.row, row_bytes, from + (sums ? row : k) * row_bytes, dtype);
  }
  return absl::OkStatus();
}

void RowGradients::FillMissing(State& state) {
  if (state.missing == 0) return;
  const int64_t rows = state.written.size();
  const int64_t row_bytes = state.value.TotalBytes() / rows;
  for (int64_t r = 0; r < rows; ++r) {
    if (!state.written[r]) std::memset(Bytes(state.value) + r * row_bytes, 0, row_bytes);
  }
  state.missing = 0;
}

bool RowGradients::Reached(int block) const {
  return states_[block].exists || (infos_[block].view >= 0 && Reached(infos_[block].view));
}

absl::Status RowGradients::Take(int block, Tensor* gradient) {
  const BlockInfo& info = infos_[block];
  if (info.view >= 0 && Reached(info.view)) {
    Tensor of_view;
    TF_RETURN_IF_ERROR(Take(info.view, &of_view));
    TF_RETURN_IF_ERROR(ScatterAll(block, std::move(of_view)));
  }
  State& state = states_[block];
  if (!state.exists) {
    *gradient = Tensor(mover_.allocator, info.dtype, info.shape);
    std::memset(gradient->data(), 0, gradient->TotalBytes());
    return absl::OkStatus();
  }
  FillMissing(state);
  *gradient = std::move(state.value);
  state = State();
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
