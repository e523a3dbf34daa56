// One forward pass of the batched executor.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_RUN_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_RUN_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/recursion/batched_agenda.h"
#include "custom_ops/recursion/batched_frames.h"
#include "custom_ops/recursion/batched_plan.h"
#include "custom_ops/recursion/batched_tape.h"
#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/rows.h"

namespace tf_ext {
namespace recursion {
namespace batched {

// Takes all frames that could run the same block next, runs its graph once for all of them, and lets each go on: until no
// frame is left. Everything is on one thread, in an order that depends on the values alone.
class BatchedRun {
 public:
  BatchedRun(tensorflow::OpKernelContext* ctx, std::shared_ptr<const BatchedPlan> plan, RunRequest request);

  absl::Status Run(RunResult* result);

 private:
  using Frames = std::vector<Frame*>;

  // What one thread needs to compute its share of a batch; kept for its memory.
  struct Lane {
    std::unique_ptr<Step> step;
    RowMover mover;
    std::vector<tensorflow::Tensor> gathered, feeds, fetches;  // like BlockPlan::gathered; like the graph's
    tensorflow::Tensor uids;
    absl::Status status;
  };

  // batched_executor.cc: roots, agenda, results.
  absl::Status Start();
  absl::Status Loop();
  absl::Status Finish(RunResult* result);
  absl::Status GatherResults(std::vector<std::vector<Ref>>& refs, const std::vector<int>& slots,
                             std::vector<tensorflow::Tensor>* values, std::vector<SourceRows>* rows);

  // batched_batch.cc: a block for many frames at once. Shares are rows [begin, end).
  absl::Status Execute(const BlockPlan& block, const Frames& frames);
  void AddLane();
  void CollectRefs(const BlockPlan& block, const Frames& frames, int num_reads);
  absl::Status RunShare(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record,
                        Lane& lane) const;
  absl::Span<const Ref> Refs(const BlockPlan& block, int read, int64_t begin, int64_t end) const;
  absl::Status Gather(const BlockPlan& block, const Gathered& gathered, int64_t begin, int64_t end,
                      const RowMover& mover, tensorflow::Tensor* value) const;
  absl::Status GatherStacks(const SlotRead& read, absl::Span<const Ref> refs, int64_t num_rows, const RowMover& mover,
                            tensorflow::Tensor* value) const;
  void Feed(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record, Lane& lane) const;
  absl::Status CheckOutput(const BlockPlan& block, const Output& output, const tensorflow::TensorShape& shape,
                           int64_t num_rows) const;
  absl::Status StoreShare(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record,
                          Lane& lane, int share);
  void Record(const BlockPlan& block, int64_t begin, int64_t end, Lane& lane, int share);

  // batched_calls.cc: what frames do between their blocks.
  absl::Status GoOn(const BlockPlan& block, const Frames& frames);
  absl::Status Call(const BlockSpec& block, int call, const Frames& frames);
  absl::Status CallMapped(const BlockSpec& block, int call, const Frames& frames);
  absl::StatusOr<int> Callee(const CallSpec& call, Frame* frame) const;
  absl::StatusOr<Frame*> NewFrame(int function, Frame* parent, int call, int64_t index);
  void Enter(int function, Frame* frame);
  absl::StatusOr<int64_t> MappedSize(const CallSpec& call, Frame* frame, int64_t* start) const;
  absl::Status MappedArguments(const CallSpec& call, const Frames& frames, const std::vector<int64_t>& sizes,
                               const std::vector<int64_t>& starts, std::vector<std::vector<Ref>>* first);
  absl::StatusOr<int> Table(int env);
  absl::StatusOr<int> Iota(tensorflow::DataType dtype, const std::vector<int64_t>& sizes,
                           const std::vector<int64_t>& starts);
  void Push(int block, Frame* frame);
  void MakeKey(const BlockPlan& block, Frame* frame);
  // One thing less to wait for; goes on, or returns, and so on with the callers.
  void Arrive(Frame* frame);
  bool TryNext(const BlockSpec& block, Frame* frame);
  // Hands the results to the caller, which is returned; null at a root.
  Frame* Return(const BlockSpec& block, Frame* frame);

  // The integer (or truth value) in a slot.
  absl::StatusOr<int64_t> Integer(Ref ref) const;
  static int Target(const std::vector<int>& targets, int64_t selector);
  void Hold(Ref ref) {
    if (ref.block >= 0) store_.Hold(ref.block);
  }
  void Release(Ref ref) {
    if (ref.block >= 0) {
      store_.Release(ref.block);
    } else if (IsList(ref)) {
      lists_.Release(ref, store_);
    }
  }
  void Set(Ref& slot, Ref value) {
    Hold(value);
    Release(slot);
    slot = value;
  }

  tensorflow::OpKernelContext* ctx_;
  std::shared_ptr<const BatchedPlan> plan_;
  const Program& program_;
  RunRequest request_;
  RowMover mover_;
  BlockStore store_;
  Lists lists_;
  std::vector<FramePool> pools_;  // by function
  Agenda agenda_;
  std::shared_ptr<BatchedTape> tape_;  // null: nothing is recorded
  int64_t live_ = 0;
  int64_t many_ = 0;  // above this, calls that can return come first

  std::vector<int> tables_;                       // by environment value: its block, or -1
  std::vector<std::vector<Ref>> results_;         // of the roots, by result and row
  std::vector<std::vector<Ref>> calls_;           // arguments and results of the root function's calls, by serial
  std::vector<int32_t> args_;                     // blocks

  Lane whole_;               // for batches that are not divided: kernels use the device's threads
  std::vector<Lane> lanes_;  // for those that are
  // Of the batch at hand; kept for their memory.
  std::vector<std::vector<Ref>> refs_;         // like BlockPlan::reads
  std::vector<std::vector<int32_t>> offsets_;  // likewise, for lists
  std::vector<int32_t> outputs_;
  ShapeKey key_;
};

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_RUN_H_
