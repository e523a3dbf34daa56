// Which kernel computes a matrix product: TensorFlow has two, and neither is made for few rows.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_PRODUCT_KERNELS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_PRODUCT_KERNELS_H_

#include <memory>

#include "absl/status/status.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// Makes a MatMul of floats one of oneDNN where TensorFlow would: its graph passes do, kernels made here have to ask. For up
// to some hundred rows, which is what a level of a tree has, it is up to three times as fast.
void ChooseProduct(tensorflow::NodeDef* node);

// A kernel that computes the product `node` for few rows (see few_rows.cc); stays null if `node` is no product of floats,
// or transposes its rows.
absl::Status MakeFewRowsKernel(const tensorflow::NodeDef& node, tensorflow::FunctionLibraryRuntime* library,
                               std::unique_ptr<tensorflow::OpKernel>* kernel);

// Up to this many rows, that kernel is the faster one.
constexpr int64_t kFewRows = 4;

inline bool HasFewRows(const tensorflow::Tensor& rows) { return rows.dims() == 2 && rows.dim_size(0) <= kFewRows; }

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_PRODUCT_KERNELS_H_
