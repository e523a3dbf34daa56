// A forward run of the invoke executor, and the tape that it becomes.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_RUN_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_RUN_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/invoke_frame.h"
#include "custom_ops/recursion/invoke_plan.h"
#include "custom_ops/recursion/worker_pool.h"

namespace tf_ext {
namespace recursion {

class InvokeRun : public WorkerPool::Client {
 public:
  InvokeRun(tensorflow::OpKernelContext* ctx, const RunRequest& request);

  absl::Status Run(RunResult* result);
  absl::Status RunTask(WorkerPool::Worker& worker, WorkerPool::Task task) override;

  std::shared_ptr<Tape> TakeTape();

 private:
  // What belongs to one worker thread.
  struct Lane {
    std::unique_ptr<FramePool> frames;
    std::unique_ptr<Step> step;
    std::vector<tensorflow::Tensor> feeds, fetches;
    std::vector<Frame*> children;
    std::vector<const CompiledGraph*> graphs;  // by index, once used
    tensorflow::Tensor one;                    // int32 1, the number of rows
    int64_t live = 0;                          // calls begun less calls ended, not yet in `live_`
    WorkerPool::Worker* worker = nullptr;
  };

  Lane& LaneOf(WorkerPool::Worker& worker);
  absl::StatusOr<Frame*> NewFrame(Lane& lane, int function, Frame* parent, int call, int64_t index);
  absl::Status CountLive(Lane& lane, int64_t change);
  absl::Status Advance(Lane& lane, Frame* frame, int block);
  absl::Status RunBlock(Lane& lane, Frame* frame, int block, Record** record);
  absl::Status RunGraph(Lane& lane, Frame* frame, int block, Record* record);
  absl::Status FillFeeds(Lane& lane, Frame* frame, const GraphSpec& graph, const std::vector<bool>& last);
  absl::Status StartCalls(Lane& lane, Frame* frame, Record* record);
  absl::Status StartCall(Lane& lane, Frame* frame, int call);
  absl::Status StartMapped(Lane& lane, Frame* frame, int call, int callee);
  absl::Status NumRows(Frame* frame, const CallSpec& call, int64_t* start, int64_t* rows);
  absl::Status FillArgument(Frame* frame, const CallSpec& call, int arg, Frame* child);
  void KeepArguments(Frame* frame);
  absl::Status FinishCalls(Frame* frame);
  // Passes the results on; gives the parent when this was the last call that it waited for, else null.
  absl::Status Return(Lane& lane, Frame* frame, Frame** ready);
  absl::Status FindNext(const Frame& frame, const BlockSpec& block, int* next) const;
  absl::Status Explain(const Frame& frame, const absl::Status& status) const;
  absl::Status CheckArgs() const;
  absl::Status StartRoots(Lane& lane, std::vector<WorkerPool::Task>* tasks);
  absl::Status CollectResults(RunResult* result);
  absl::Status CollectCalls(RunResult* result);
  bool keep() const { return request_.record || request_.collect; }

  tensorflow::OpKernelContext* const ctx_;
  const RunRequest& request_;
  const Program& program_;
  std::shared_ptr<const InvokePlan> plan_;
  std::vector<Lane> lanes_;
  std::vector<Frame*> roots_;
  std::vector<std::vector<tensorflow::Tensor>> root_results_;  // per result and row
  std::atomic<int64_t> open_roots_{0};
  std::atomic<int64_t> live_{0};
  int64_t live_chunk_ = 1;
};

// The kept calls of a finished run, for its gradient.
std::shared_ptr<Tape> MakeInvokeTape(RunRequest request, std::shared_ptr<const InvokePlan> plan,
                                     std::vector<Frame*> roots, std::vector<std::unique_ptr<FramePool>> frames);

// Rows of mapped results, or their sum, in order.
absl::StatusOr<tensorflow::Tensor> ReduceRows(const FunctionSpec& callee, int result, CallSpec::Reduce reduce,
                                              absl::Span<tensorflow::Tensor> rows);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_RUN_H_
