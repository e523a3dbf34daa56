#include "custom_ops/recursion/invoke_backward.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/errors.h"
#include "custom_ops/recursion/invoke_run.h"
#include "custom_ops/recursion/step.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

using tensorflow::Tensor;

BackwardRun::BackwardRun(tensorflow::OpKernelContext* ctx, const RunRequest& request,
                         std::shared_ptr<const InvokePlan> plan, const std::vector<Tensor>& dresults,
                         const std::vector<Tensor>& dcalls, EnvGradients* env_gradients)
    : ctx_(ctx),
      request_(request),
      program_(request.program->program()),
      plan_(std::move(plan)),
      dresults_(dresults),
      dcalls_(dcalls),
      log_(env_gradients),
      lanes_(request.sequential ? 1 : WorkerPool::DefaultWorkers(ctx)) {}

BackwardRun::Lane& BackwardRun::LaneOf(WorkerPool::Worker& worker) {
  Lane& lane = lanes_[worker.index()];
  if (lane.step == nullptr) {
    lane.step = request_.program->NewStep(ctx_, &request_.env);
    lane.slots.resize(program_.functions.size());
  }
  lane.worker = &worker;
  return lane;
}

absl::Status BackwardRun::Run(const std::vector<Frame*>& roots, std::vector<Tensor>* dargs) {
  const FunctionSpec& root = program_.functions[program_.root];
  root_gradients_.assign(root.num_args, std::vector<Tensor>(roots.size()));
  open_roots_ = roots.size();
  lanes_[0].segment = log_.first();
  std::vector<WorkerPool::Task> tasks;
  for (auto it = roots.rbegin(); it != roots.rend(); ++it) tasks.push_back({*it, /*step=*/0});
  if (!tasks.empty()) TF_RETURN_IF_ERROR(WorkerPool::Run(ctx_, lanes_.size(), this, tasks));
  TF_RETURN_IF_ERROR(log_.CloseAll());
  TF_RETURN_IF_ERROR(close_status_);
  dargs->assign(root.num_args, Tensor());
  for (int i = 0; i < root.num_args; ++i) {
    std::vector<Tensor>& rows = root_gradients_[i];
    if (std::all_of(rows.begin(), rows.end(), IsNone)) continue;
    if (!request_.map) {
      (*dargs)[i] = std::move(rows[0]);
      continue;
    }
    tensorflow::TensorShape row_shape = request_.args[i].shape();
    row_shape.RemoveDim(0);
    for (Tensor& row : rows) {
      if (IsNone(row)) row = Zeros(root.slot_types[i], row_shape);
    }
    TF_ASSIGN_OR_RETURN((*dargs)[i], Stack(rows));
  }
  return absl::OkStatus();
}

// Step 0: a root frame to begin with. Step 1: a BackFrame.
absl::Status BackwardRun::RunTask(WorkerPool::Worker& worker, WorkerPool::Task task) {
  Lane& lane = LaneOf(worker);
  if (task.step == 1) return Advance(lane, static_cast<BackFrame*>(task.item));
  Frame* frame = static_cast<Frame*>(task.item);
  BackFrame* back = NewFrame(lane, frame, nullptr);
  const FunctionSpec& root = program_.functions[frame->function];
  for (size_t i = 0; i < root.results.size(); ++i) {
    if (IsNone(dresults_[i])) continue;
    Tensor gradient = dresults_[i];
    if (request_.map) {
      TF_ASSIGN_OR_RETURN(gradient, Row(dresults_[i], frame->index));
    }
    TF_RETURN_IF_ERROR(AddTo(&back->gradients[root.results[i]], gradient));
  }
  TF_RETURN_IF_ERROR(AddCollected(back, /*arguments=*/false));
  return Advance(lane, back);
}

// What a worker does after a task that it gives away comes later in the log; so does the caller's part once it is back.
void BackwardRun::OnGive(WorkerPool::Worker& worker, WorkerPool::Task* task) {
  GradientLog::Segment* segment = log_.InsertAfter(lanes_[worker.index()].segment);
  task->order = segment;
  BackFrame* parent = task->step == 1 ? static_cast<BackFrame*>(task->item)->parent : nullptr;
  if (parent != nullptr && parent->segment == nullptr) parent->segment = log_.InsertAfter(segment);
}

void BackwardRun::OnTake(WorkerPool::Worker& worker, WorkerPool::Task* task) {
  lanes_[worker.index()].segment = static_cast<GradientLog::Segment*>(task->order);
}

void BackwardRun::OnIdle(WorkerPool::Worker& worker) {
  GradientLog::Segment*& segment = lanes_[worker.index()].segment;
  if (segment == nullptr) return;
  const absl::Status status = log_.Close(segment);
  segment = nullptr;
  std::unique_lock<std::mutex> lock(close_mutex_);
  close_status_.Update(status);
}

absl::Status BackwardRun::Explain(const BackFrame& back, const absl::Status& status) const {
  if (status.ok()) return status;
  return InCall(status, program_.functions[back.frame->function], back.frame->depth, back.frame->depth);
}

BackFrame* BackwardRun::NewFrame(Lane& lane, Frame* frame, BackFrame* parent) {
  BackFrame* back;
  if (lane.frames.empty()) {
    back = lane.all_frames.New();
  } else {
    back = lane.frames.back();
    lane.frames.pop_back();
  }
  std::vector<Tensor*>& free = lane.slots[frame->function];
  if (free.empty()) {
    constexpr int kChunk = 16;
    const size_t size = std::max<size_t>(1, program_.functions[frame->function].slot_types.size());
    lane.all_slots.emplace_back(new Tensor[size * kChunk]);
    for (int i = kChunk - 1; i >= 0; --i) free.push_back(lane.all_slots.back().get() + i * size);
  }
  back->gradients = free.back();
  free.pop_back();
  back->frame = frame;
  back->record = frame->last;
  back->parent = parent;
  back->segment = nullptr;
  frame->back = back;
  return back;
}

void BackwardRun::FreeFrame(Lane& lane, BackFrame* back) {
  const int function = back->frame->function;
  for (size_t i = 0; i < program_.functions[function].slot_types.size(); ++i) back->gradients[i] = Tensor();
  lane.slots[function].push_back(back->gradients);
  back->frame->back = nullptr;
  lane.frames.push_back(back);
}

absl::Status BackwardRun::Advance(Lane& lane, BackFrame* back) {
  while (!lane.worker->stopped()) {
    Record* record = back->record;
    if (record != nullptr) {
      if (record->side != nullptr) TF_RETURN_IF_ERROR(Explain(*back, Undo(lane, back, record->side)));
      TF_RETURN_IF_ERROR(Explain(*back, StartChildren(lane, back, record)));
      if (!lane.children.empty()) return absl::OkStatus();
    } else {
      BackFrame* ready = nullptr;
      TF_RETURN_IF_ERROR(Leave(lane, back, &ready));
      if (ready == nullptr) return absl::OkStatus();
      back = ready;
      record = back->record;
      TF_RETURN_IF_ERROR(Explain(*back, Join(lane, back, record)));
    }
    TF_RETURN_IF_ERROR(Explain(*back, Undo(lane, back, record)));
    back->record = record->previous;
  }
  return absl::OkStatus();
}

// The gradients of the arguments stay with a call until its parent takes them.
absl::Status BackwardRun::Leave(Lane& lane, BackFrame* back, BackFrame** ready) {
  const FunctionSpec& function = program_.functions[back->frame->function];
  for (size_t i = function.num_args; i < function.slot_types.size(); ++i) back->gradients[i] = Tensor();
  TF_RETURN_IF_ERROR(AddCollected(back, /*arguments=*/true));
  BackFrame* parent = back->parent;
  if (parent == nullptr) {
    for (int i = 0; i < function.num_args; ++i) {
      root_gradients_[i][back->frame->index] = std::move(back->gradients[i]);
    }
    FreeFrame(lane, back);
    if (open_roots_.fetch_sub(1, std::memory_order_acq_rel) == 1) lane.worker->Finish();
    return absl::OkStatus();
  }
  if (parent->pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return absl::OkStatus();
  *ready = parent;
  if (parent->segment == nullptr) return absl::OkStatus();
  GradientLog::Segment* finished = lane.segment;
  lane.segment = parent->segment;
  parent->segment = nullptr;
  return log_.Close(finished);
}

// Moves, then the graph.
absl::Status BackwardRun::Undo(Lane& lane, BackFrame* back, Record* record) {
  const BlockSpec& block = program_.blocks[record->block];
  Tensor* gradients = back->gradients;
  for (auto it = block.moves.rbegin(); it != block.moves.rend(); ++it) {
    const Tensor gradient = std::move(gradients[it->first]);
    gradients[it->first] = Tensor();
    TF_RETURN_IF_ERROR(AddTo(&gradients[it->second], gradient));
  }
  const std::vector<int>& written = plan_->blocks[record->block].written;
  const auto reached = [&](int slot) { return !IsNone(gradients[slot]); };
  if (block.plain_grad < 0 || std::none_of(written.begin(), written.end(), reached)) {
    for (int slot : written) gradients[slot] = Tensor();
    return absl::OkStatus();
  }
  return RunGraph(lane, back, record);
}

absl::Status BackwardRun::RunGraph(Lane& lane, BackFrame* back, Record* record) {
  const BlockSpec& block = program_.blocks[record->block];
  TF_ASSIGN_OR_RETURN(const CompiledGraph* graph, request_.program->graph(block.plain_grad));
  const GraphSpec& spec = graph->spec();
  TF_RETURN_IF_ERROR(FillFeeds(lane, back, record, spec));
  for (int slot : plan_->blocks[record->block].written) back->gradients[slot] = Tensor();
  TF_RETURN_IF_ERROR(graph->Run(*lane.step, absl::MakeSpan(lane.feeds), &lane.fetches));
  bool environment = false;
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    const Target& target = spec.targets[i];
    if (target.kind == Target::Kind::kSlotGradient) {
      Tensor gradient = std::move(lane.fetches[i]);
      Tensor& sum = back->gradients[target.index];
      if (IsNone(sum)) {
        sum = std::move(gradient);
      } else {
        TF_RETURN_IF_ERROR(AddTo(&sum, gradient));
      }
    } else {
      environment = true;
    }
  }
  if (!environment) return absl::OkStatus();
  std::vector<Tensor> fetches;
  std::swap(fetches, lane.fetches);
  return log_.Add(lane.segment, spec, std::move(fetches));
}

absl::Status BackwardRun::FillFeeds(Lane& lane, BackFrame* back, Record* record, const GraphSpec& graph) {
  const BlockPlan& plan = plan_->blocks[record->block];
  const FunctionSpec& function = program_.functions[back->frame->function];
  lane.feeds.resize(graph.sources.size());
  for (size_t i = 0; i < graph.sources.size(); ++i) {
    const Source& source = graph.sources[i];
    const int kept = plan.gradient_feeds[i];
    Tensor& feed = lane.feeds[i];
    switch (source.kind) {
      case Source::Kind::kSlot:
        feed = record->values[kept];
        break;
      case Source::Kind::kSaved:
        feed = record->values[plan.kept_slots.size() + source.index];
        break;
      case Source::Kind::kOutputGradient: {
        feed = back->gradients[source.index];
        if (!IsNone(feed)) break;
        tensorflow::TensorShape shape;
        if (kept >= 0) {
          shape = record->shapes[kept];
        } else {
          function.slot_shapes[source.index].AsTensorShape(&shape);
        }
        feed = Zeros(function.slot_types[source.index], shape);
        break;
      }
      case Source::Kind::kRows:
        feed = Tensor(int32_t{1});
        break;
      case Source::Kind::kUid:
        feed = Tensor(static_cast<int64_t>(back->frame->uid));
        break;
      case Source::Kind::kEnv:
        break;
    }
  }
  return absl::OkStatus();
}

namespace {

class InvokeTape : public Tape {
 public:
  InvokeTape(RunRequest request, std::shared_ptr<const InvokePlan> plan, std::vector<Frame*> roots,
             std::vector<std::unique_ptr<FramePool>> frames)
      : plan_(std::move(plan)), roots_(std::move(roots)), frames_(std::move(frames)) {
    request_ = std::move(request);
  }

  absl::Status Backward(tensorflow::OpKernelContext* ctx, const std::vector<Tensor>& dresults,
                        const std::vector<Tensor>& dcalls, std::vector<Tensor>* dargs,
                        EnvGradients* env_gradients) override {
    std::unique_lock<std::mutex> lock(mutex_);  // frames point to where their gradients are
    BackwardRun run(ctx, request_, plan_, dresults, dcalls, env_gradients);
    return run.Run(roots_, dargs);
  }

 private:
  const std::shared_ptr<const InvokePlan> plan_;
  const std::vector<Frame*> roots_;
  const std::vector<std::unique_ptr<FramePool>> frames_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<Tape> MakeInvokeTape(RunRequest request, std::shared_ptr<const InvokePlan> plan,
                                     std::vector<Frame*> roots, std::vector<std::unique_ptr<FramePool>> frames) {
  return std::make_shared<InvokeTape>(std::move(request), std::move(plan), std::move(roots), std::move(frames));
}

}  // namespace recursion
}  // namespace tf_ext
