// Gradients of environment values, gathered over a whole backward pass.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ACCUMULATORS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ACCUMULATORS_H_

#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// Dense contributions are added at once. Products X^T dY wait until the rows make a product worth its cost (a small
// product is dominated by reading and writing the matrix it adds to: 1.1 MB a node for a TreeLSTM of 168), and are then
// added as one product over all their rows. Slices are concatenated at the end.
// Not thread safe; order of calls determines the order of sums, so equal orders give equal bits.
class EnvGradients {
 public:
  EnvGradients(const Program& program, const std::vector<tensorflow::Tensor>* env, tensorflow::OpKernelContext* ctx);

  // Routes the fetches of a gradient graph whose targets concern the environment; others are ignored.
  absl::Status Add(const GraphSpec& spec, const std::vector<tensorflow::Tensor>& fetches);

  // A gradient of the whole of environment value `env`.
  absl::Status AddDense(int env, const tensorflow::Tensor& value);
  // The gradient of row `index` of environment value `env`, from calls that took their arguments there.
  absl::Status AddRow(int env, int64_t index, const tensorflow::Tensor& row);

  // Computes what is pending and returns the dense gradient of environment value `env` (zeros_like where nothing came).
  absl::Status Dense(int env, tensorflow::Tensor* gradient);
  // Concatenated slices of environment value `env`; `row_shape` for when there are none.
  absl::Status Slices(int env, const tensorflow::TensorShape& row_shape, tensorflow::DataType dtype,
                      tensorflow::Tensor* values, tensorflow::Tensor* indices);

 private:
  struct Pending {
    std::vector<std::pair<tensorflow::Tensor, tensorflow::Tensor>> rows;  // X, dY
    int64_t num_rows = 0;
  };
  // Where the fetches of one graph go.
  struct Route {
    enum class Kind { kDense, kProduct, kSlices };
    Kind kind;
    int index;              // environment value or product
    int first, second = -1;  // fetches: value; X and dY; values and indices
  };
  const std::vector<Route>& RoutesOf(const GraphSpec& spec);
  absl::Status AddProduct(int product, const tensorflow::Tensor& x, const tensorflow::Tensor& dy);
  absl::Status AddSlices(int env, const tensorflow::Tensor& values, const tensorflow::Tensor& indices);
  // *sum += the slices, which are forgotten.
  absl::Status ScatterSlices(int env, tensorflow::Tensor* sum);
  absl::Status Flush(int product);
  absl::Status FlushAll(int env);
  const Program& program_;
  const std::vector<tensorflow::Tensor>* env_;
  tensorflow::OpKernelContext* ctx_;
  std::vector<tensorflow::Tensor> dense_;  // in float32 for half and bfloat16
  std::vector<Pending> products_;
  std::vector<std::vector<std::pair<tensorflow::Tensor, tensorflow::Tensor>>> slices_;  // values, indices
  std::unordered_map<const GraphSpec*, std::vector<Route>> routes_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ACCUMULATORS_H_
