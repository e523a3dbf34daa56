// Small arithmetic on whole tensors, and their rows, outside of any kernel.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_VALUES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_VALUES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_ext {
namespace recursion {

// A default tensor stands for "no gradient"; a gradient without elements says as little.
inline bool IsNone(const tensorflow::Tensor& tensor) { return tensor.NumElements() == 0; }

tensorflow::Tensor Zeros(tensorflow::DataType dtype, const tensorflow::TensorShape& shape);

// Row `index` along the first dimension. Shares the buffer where kernels can read it there (alignment), else a copy.
absl::StatusOr<tensorflow::Tensor> Row(const tensorflow::Tensor& tensor, int64_t index);

// Rows of equal shapes, one after the other, with a new first dimension.
absl::StatusOr<tensorflow::Tensor> Stack(absl::Span<const tensorflow::Tensor> rows);

// Copies plain numbers that somebody else holds too, so that they can be written to.
void MakeExclusive(tensorflow::Tensor* tensor);

// *sum += value; a `sum` that is none becomes `value`. Written in place when nobody else holds it.
absl::Status AddTo(tensorflow::Tensor* sum, const tensorflow::Tensor& value);

// A scalar bool (0 or 1), int32 or int64.
absl::StatusOr<int64_t> Integer(const tensorflow::Tensor& scalar, const char* what);

// An integer as a scalar of `dtype`.
absl::StatusOr<tensorflow::Tensor> Scalar(tensorflow::DataType dtype, int64_t value);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_VALUES_H_
