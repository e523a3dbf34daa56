#include "custom_ops/recursion/values.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/rows.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/batch_util.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

}  // namespace

Tensor Zeros(DataType dtype, const TensorShape& shape) {
  Tensor zeros(dtype, shape);
  if (tensorflow::DataTypeCanUseMemcpy(dtype)) {
    std::memset(const_cast<char*>(zeros.tensor_data().data()), 0, zeros.tensor_data().size());
  }
  return zeros;
}

absl::StatusOr<Tensor> Row(const Tensor& tensor, int64_t index) {
  if (tensor.dims() < 1 || index < 0 || index >= tensor.dim_size(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("row ", index, " of a tensor of shape ", tensor.shape().DebugString(), " does not exist"));
  }
  Tensor row = tensor.SubSlice(index);
  if (row.IsAligned()) return row;
  Tensor copy(tensor.dtype(), row.shape());
  if (tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    const auto bytes = row.tensor_data();
    std::memcpy(const_cast<char*>(copy.tensor_data().data()), bytes.data(), bytes.size());
    return copy;
  }
  TF_RETURN_IF_ERROR(tensorflow::batch_util::CopySliceToElement(tensor, &copy, index));
  return copy;
}

absl::StatusOr<Tensor> Stack(absl::Span<const Tensor> rows) {
  TensorShape shape = rows[0].shape();
  shape.InsertDim(0, rows.size());
  Tensor stacked(rows[0].dtype(), shape);
  const bool plain = tensorflow::DataTypeCanUseMemcpy(rows[0].dtype());
  char* to = plain ? const_cast<char*>(stacked.tensor_data().data()) : nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].shape() != rows[0].shape() || rows[i].dtype() != rows[0].dtype()) {
      return absl::InvalidArgumentError(
          absl::StrCat("results to be stacked must have equal shapes: the first is ", rows[0].shape().DebugString(),
                       ", number ", i, " is ", rows[i].shape().DebugString()));
    }
    if (plain) {
      const auto bytes = rows[i].tensor_data();
      std::memcpy(to, bytes.data(), bytes.size());
      to += bytes.size();
    } else {
      TF_RETURN_IF_ERROR(tensorflow::batch_util::CopyElementToSlice(rows[i], &stacked, i));
    }
  }
  return stacked;
}

void MakeExclusive(Tensor* tensor) {
  if (tensor->RefCountIsOne()) return;
  Tensor copy(tensor->dtype(), tensor->shape());
  std::memcpy(copy.data(), tensor->data(), copy.TotalBytes());
  *tensor = std::move(copy);
}

absl::Status AddTo(Tensor* sum, const Tensor& value) {
  if (IsNone(value)) return absl::OkStatus();
  if (IsNone(*sum)) {
    *sum = value;
    return absl::OkStatus();
  }
  if (sum->shape() != value.shape() || sum->dtype() != value.dtype()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "values to be summed must be alike: one is ", tensorflow::DataTypeString(sum->dtype()), " ",
        sum->shape().DebugString(), ", another ", tensorflow::DataTypeString(value.dtype()), " ",
        value.shape().DebugString()));
  }
  if (!sum->RefCountIsOne()) {
    if (!tensorflow::DataTypeCanUseMemcpy(sum->dtype())) {
      return absl::InvalidArgumentError(
          absl::StrCat("values of type ", tensorflow::DataTypeString(sum->dtype()), " cannot be summed"));
    }
    MakeExclusive(sum);
  }
  return AddElements(sum->dtype(), sum->data(), value.data(), value.NumElements());
}

absl::StatusOr<int64_t> Integer(const Tensor& scalar, const char* what) {
  if (scalar.dims() == 0) {
    // Not scalar<T>(), which ends the process where a value from outside is not aligned.
    if (scalar.dtype() == tensorflow::DT_BOOL) return *static_cast<const bool*>(scalar.data());
    if (scalar.dtype() == tensorflow::DT_INT32) return *static_cast<const int32_t*>(scalar.data());
    if (scalar.dtype() == tensorflow::DT_INT64) return *static_cast<const int64_t*>(scalar.data());
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " must be a scalar bool, int32 or int64, got ",
                                                 tensorflow::DataTypeString(scalar.dtype()), " ",
                                                 scalar.shape().DebugString()));
}

absl::StatusOr<Tensor> Scalar(DataType dtype, int64_t value) {
  Tensor scalar(dtype, TensorShape({}));
  switch (dtype) {
    case tensorflow::DT_INT32: scalar.scalar<int32_t>()() = value; return scalar;
    case tensorflow::DT_INT64: scalar.scalar<int64_t>()() = value; return scalar;
    case tensorflow::DT_FLOAT: scalar.scalar<float>()() = value; return scalar;
    case tensorflow::DT_DOUBLE: scalar.scalar<double>()() = value; return scalar;
    default:
      return absl::InvalidArgumentError(absl::StrCat("an index cannot be passed as ",
                                                     tensorflow::DataTypeString(dtype), "; expected int32 or int64"));
  }
}

}  // namespace recursion
}  // namespace tf_ext
