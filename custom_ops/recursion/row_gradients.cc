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
  if (gradient.dtype() != info.dtype || gradient.NumElements() != rows.count * row_elements) {
    return absl::InvalidArgumentError(absl::StrCat("A gradient of shape ", gradient.shape().DebugString(),
                                                   " came for ", rows.count, " rows of ", info.shape.DebugString(), "."));
  }
  if (rows.refs.empty() && rows.start == 0 && rows.count == info.rows) {
    return info.differentiated ? ScatterAll(rows.block, std::move(gradient)) : absl::OkStatus();
  }
  return ScatterRows(rows, Bytes(gradient), row_elements * tensorflow::DataTypeSize(gradient.dtype()));
}

absl::Status RowGradients::ScatterPart(const SourceRows& rows, const Tensor& gradient, int64_t offset) {
  if (rows.block < 0 && rows.refs.empty()) return absl::OkStatus();
  const BlockInfo& info = infos_[rows.refs.empty() ? rows.block : rows.refs[0].block];
  const int64_t row_elements = info.shape.num_elements() / info.rows;
  const int64_t width = gradient.NumElements() / rows.count;
  if (gradient.dtype() != info.dtype || gradient.NumElements() != rows.count * width || offset + row_elements > width) {
    return absl::InvalidArgumentError(absl::StrCat("A gradient of shape ", gradient.shape().DebugString(),
                                                   " came for parts with ", rows.count, " rows of ",
                                                   info.shape.DebugString(), "."));
  }
  const int64_t size = tensorflow::DataTypeSize(gradient.dtype());
  return ScatterRows(rows, Bytes(gradient) + offset * size, width * size);
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

absl::Status RowGradients::ScatterRows(const SourceRows& rows, const char* from, int64_t stride) {
  const bool run = rows.refs.empty();
  const BlockInfo& info = infos_[run ? rows.block : rows.refs[0].block];
  const int64_t row_bytes = info.shape.num_elements() / info.rows * tensorflow::DataTypeSize(info.dtype);
  TF_RETURN_IF_ERROR(AddElements(info.dtype, nullptr, nullptr, 0));  // only to refuse the type
  const int64_t count = run ? rows.count : rows.refs.size();
  const bool sums = !rows.offsets.empty();
  int64_t row = 0;
  int32_t last = -1;
  State* state = nullptr;
  moves_.Clear();
  for (int64_t k = 0; k < count; ++k) {
    const Ref ref = run ? Ref{rows.block, static_cast<int32_t>(rows.start + k)} : rows.refs[k];
    if (ref.block != last) {
      last = ref.block;
      state = infos_[last].differentiated ? &Open(last) : nullptr;
    }
    while (sums && k >= rows.offsets[row + 1]) ++row;
    if (state != nullptr) Plan(*state, ref.row, row_bytes, from + (sums ? row : k) * stride);
  }
  moves_.Run(info.dtype, row_bytes, mover_.workers);
  return absl::OkStatus();
}

void RowGradients::Plan(State& state, int64_t row, int64_t row_bytes, const char* from) {
  const bool first = state.missing > 0 && !state.written[row];
  if (first) {
    state.written[row] = 1;
    --state.missing;
  }
  moves_.Plan(Bytes(state.value) + row * row_bytes, from, /*add=*/!first);
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
