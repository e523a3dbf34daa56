// Runs one block graph: a straight line of kernels over registers, on the calling thread.
//
// This replaces TensorFlow's executor inside a recursion. A kernel costs its OpKernelContext and its own work: no
// pending counts, no queues, no function call frames. Graphs are compiled once per program: identities are aliased
// away, what depends on constants alone is computed, and the last reader of a register takes it over so that kernels
// can work in place.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_INTERPRETER_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_INTERPRETER_H_

#include <memory>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// What kernels need from the step that runs the recursion: the root kernel's context, taken apart once per run (and per
// worker thread: a Step is not shared between threads).
class Step;
struct InvokePlan;
namespace batched {
struct BatchedPlan;
}

class CompiledGraph {
 public:
  virtual ~CompiledGraph() = default;

  const GraphSpec& spec() const { return *spec_; }

  // Runs every kernel. `feeds[i]` is the value of spec().feeds[i]; it is moved from (pass the last reference to let
  // kernels write in place; of an environment value the caller keeps a reference, so these are never written).
  // `fetches` is resized to spec().fetches. On error the message names the operator.
  virtual absl::Status Run(Step& step, absl::Span<tensorflow::Tensor> feeds,
                           std::vector<tensorflow::Tensor>* fetches) const = 0;

 protected:
  const GraphSpec* spec_ = nullptr;
};

// A program with all its kernels made. Shared by the root kernel and by every tape made from it; thread safe once made.
class CompiledProgram {
 public:
  virtual ~CompiledProgram() = default;
  // Which graphs are compiled: those of the asked execution, and gradient graphs lazily (first use, under a lock).
  static absl::StatusOr<std::shared_ptr<CompiledProgram>> Create(std::shared_ptr<const Program> program,
                                                                tensorflow::OpKernelContext* ctx);
  const Program& program() const { return *program_; }
  // The compiled form of graph `index`; compiles it on first use (thread safe, lock free once compiled).
  virtual absl::StatusOr<const CompiledGraph*> graph(int index) = 0;
  // With `env`, graphs take the environment from there and ignore what is fed for it: shared values then cost no
  // reference counting between threads. It must outlive the step.
  virtual std::unique_ptr<Step> NewStep(tensorflow::OpKernelContext* ctx,
                                        const std::vector<tensorflow::Tensor>* env = nullptr) = 0;

  // What the invoke executor derives from the program, once.
  std::shared_ptr<const InvokePlan> invoke_plan();
  // What the batched executor derives; compiles the batched graphs. Refers to this program, and lives as long.
  absl::StatusOr<std::shared_ptr<const batched::BatchedPlan>> batched_plan(tensorflow::OpKernelContext* ctx);

 protected:
  std::shared_ptr<const Program> program_;

 private:
  absl::once_flag invoke_plan_once_;
  std::shared_ptr<const InvokePlan> invoke_plan_;
  absl::once_flag batched_plan_once_;
  absl::StatusOr<std::shared_ptr<const batched::BatchedPlan>> batched_plan_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_INTERPRETER_H_
