// What a batched run leaves for its gradient: a log of its batches.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_TAPE_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_TAPE_H_

#include <memory>
#include <utility>
#include <vector>

#include "custom_ops/recursion/batched_plan.h"
#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/row_gradients.h"

namespace tf_ext {
namespace recursion {
namespace batched {

struct BatchRecord {
  int32_t block = 0;  // of the program
  int32_t num_rows = 0;
  int32_t share = 0;                        // of its batch: those of one batch stand in order, one after the other
  std::vector<SourceRows> sources;          // like BlockPlan::slot_gradients
  std::vector<tensorflow::Tensor> kept;     // see BlockPlan::kept_slots
  std::vector<int32_t> outputs;             // blocks of rows, like BlockPlan::outputs
};

// Frames are gone by the time of the gradient: walking the log backwards visits callers after callees, and what a batch
// computed together is differentiated together. Nothing here changes in a backward pass, so there may be several.
class BatchedTape : public Tape {
 public:
  BatchedTape(std::shared_ptr<const BatchedPlan> plan, RunRequest request);

  absl::Status Backward(tensorflow::OpKernelContext* ctx, const std::vector<tensorflow::Tensor>& dresults,
                        const std::vector<tensorflow::Tensor>& dcalls, std::vector<tensorflow::Tensor>* dargs,
                        EnvGradients* env_gradients) override;

  // Filled by the run.
  std::vector<BatchRecord> batches;
  std::vector<BlockInfo> blocks;
  std::vector<int32_t> args;                        // block of each argument of the roots
  std::vector<SourceRows> results, calls;           // where the rows of the roots' and of all calls' results are
  std::vector<std::pair<int32_t, int32_t>> tables;  // block, environment value that it shows

 private:
  class Pass;
  std::shared_ptr<const BatchedPlan> plan_;
};

// The shortest description of `refs`.
SourceRows DescribeRows(absl::Span<const Ref> refs);

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_TAPE_H_
