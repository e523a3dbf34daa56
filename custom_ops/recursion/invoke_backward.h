// The gradient of an invoke run: its kept frames, walked backwards.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_BACKWARD_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_BACKWARD_H_

#include <atomic>
#include <memory>
#include <vector>

#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/gradient_log.h"
#include "custom_ops/recursion/invoke_frame.h"
#include "custom_ops/recursion/invoke_plan.h"
#include "custom_ops/recursion/worker_pool.h"

namespace tf_ext {
namespace recursion {

// A call on its way back: the gradients of its slots, and how far it has come.
struct BackFrame {
  Frame* frame = nullptr;
  Record* record = nullptr;  // the next one to go through
  BackFrame* parent = nullptr;
  std::atomic<int64_t> pending{0};
  tensorflow::Tensor* gradients = nullptr;  // per slot; none where nothing has reached it
  GradientLog::Segment* segment = nullptr;  // where to go on writing once the calls have come back
};

// Children are walked in parallel; a parent adds up what they give, in the order of the calls, once all are there. So
// sums do not depend on who was faster.
class BackwardRun : public WorkerPool::Client {
 public:
  BackwardRun(tensorflow::OpKernelContext* ctx, const RunRequest& request, std::shared_ptr<const InvokePlan> plan,
              const std::vector<tensorflow::Tensor>& dresults, const std::vector<tensorflow::Tensor>& dcalls,
              EnvGradients* env_gradients);

  absl::Status Run(const std::vector<Frame*>& roots, std::vector<tensorflow::Tensor>* dargs);

  absl::Status RunTask(WorkerPool::Worker& worker, WorkerPool::Task task) override;
  void OnGive(WorkerPool::Worker& worker, WorkerPool::Task* task) override;
  void OnTake(WorkerPool::Worker& worker, WorkerPool::Task* task) override;
  void OnIdle(WorkerPool::Worker& worker) override;

 private:
  struct Lane {
    std::unique_ptr<Step> step;
    ObjectPool<BackFrame> all_frames;
    std::vector<BackFrame*> frames;                        // free ones
    std::vector<std::vector<tensorflow::Tensor*>> slots;   // free ones, per function
    std::vector<std::unique_ptr<tensorflow::Tensor[]>> all_slots;
    std::vector<tensorflow::Tensor> feeds, fetches;
    std::vector<BackFrame*> children;
    GradientLog::Segment* segment = nullptr;
    WorkerPool::Worker* worker = nullptr;
  };

  Lane& LaneOf(WorkerPool::Worker& worker);
  BackFrame* NewFrame(Lane& lane, Frame* frame, BackFrame* parent);
  void FreeFrame(Lane& lane, BackFrame* back);
  absl::Status Advance(Lane& lane, BackFrame* back);
  absl::Status Leave(Lane& lane, BackFrame* back, BackFrame** ready);
  // What the collected calls give: for the results as the call begins its way back, for the arguments as it ends.
  absl::Status AddCollected(BackFrame* back, bool arguments);
  absl::Status StartChildren(Lane& lane, BackFrame* back, Record* record);
  absl::Status StartChild(Lane& lane, BackFrame* back, const CallSpec& call, Frame* child);
  absl::Status Join(Lane& lane, BackFrame* back, Record* record);
  absl::Status JoinArgument(Lane& lane, BackFrame* back, const CallSpec& call, int arg, absl::Span<Frame*> children);
  absl::Status JoinRows(BackFrame* back, int slot, int arg, absl::Span<Frame*> children);
  absl::Status Undo(Lane& lane, BackFrame* back, Record* record);
  absl::Status RunGraph(Lane& lane, BackFrame* back, Record* record);
  absl::Status FillFeeds(Lane& lane, BackFrame* back, Record* record, const GraphSpec& graph);
  absl::Status Explain(const BackFrame& back, const absl::Status& status) const;

  tensorflow::OpKernelContext* const ctx_;
  const RunRequest& request_;
  const Program& program_;
  const std::shared_ptr<const InvokePlan> plan_;
  const std::vector<tensorflow::Tensor>& dresults_;
  const std::vector<tensorflow::Tensor>& dcalls_;
  GradientLog log_;
  std::vector<Lane> lanes_;
  std::vector<std::vector<tensorflow::Tensor>> root_gradients_;  // per argument and row
  std::atomic<int64_t> open_roots_{0};
  std::mutex close_mutex_;
  absl::Status close_status_;  // of closing segments, which has nobody to report to
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_BACKWARD_H_
