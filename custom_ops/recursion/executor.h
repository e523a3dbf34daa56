// What the root operator asks of an executor, whichever it is, and what it keeps for the gradient.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_EXECUTOR_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_EXECUTOR_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/recursion/accumulators.h"
#include "custom_ops/recursion/interpreter.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

struct RunRequest {
  std::shared_ptr<CompiledProgram> program;
  std::vector<tensorflow::Tensor> args;  // of the root function; with a leading dimension when `map`
  std::vector<tensorflow::Tensor> env;
  bool map = false;
  bool record = false;
  bool collect = false;
  bool sequential = false;  // bodies have effects: one call at a time, in program order
};

// All that a backward pass needs; outlives the step that made it. One backward pass at a time, but it may be run twice.
class Tape {
 public:
  virtual ~Tape() = default;
  // `dresults`: one per result of the root function (shape of the result; an uninitialised tensor where the result is not
  // floating), `dcalls` likewise per collected argument and then result (empty when not collected). Fills `dargs` (per argument; empty
  // tensor where no gradient) and adds to `env_gradients`.
  virtual absl::Status Backward(tensorflow::OpKernelContext* ctx, const std::vector<tensorflow::Tensor>& dresults,
                                const std::vector<tensorflow::Tensor>& dcalls,
                                std::vector<tensorflow::Tensor>* dargs, EnvGradients* env_gradients) = 0;
  const std::vector<tensorflow::Tensor>& env() const { return request_.env; }
  const RunRequest& request() const { return request_; }

 protected:
  RunRequest request_;
};

struct RunResult {
  std::vector<tensorflow::Tensor> results;  // stacked when `map`
  std::vector<tensorflow::Tensor> calls;    // when `collect`: arguments, then results, of every call of the root function
  std::shared_ptr<Tape> tape;               // when `record`
};

absl::Status RunInvoke(tensorflow::OpKernelContext* ctx, RunRequest request, RunResult* result);
absl::Status RunBatched(tensorflow::OpKernelContext* ctx, RunRequest request, RunResult* result);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_EXECUTOR_H_
