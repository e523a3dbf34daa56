#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/errors.h"
#include "custom_ops/recursion/invoke_run.h"
#include "custom_ops/recursion/step.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

using tensorflow::Tensor;

namespace {

absl::Status WrongType(const std::string& fetch, const Tensor& value) {
  return absl::InternalError(absl::StrCat("a block's graph gives '", fetch, "' as ",
                                          tensorflow::DataTypeString(value.dtype()), ", its slot has another type"));
}

}  // namespace

InvokeRun::InvokeRun(tensorflow::OpKernelContext* ctx, const RunRequest& request)
    : ctx_(ctx), request_(request), program_(request.program->program()), plan_(request.program->invoke_plan()) {
  lanes_.resize(request.sequential ? 1 : WorkerPool::DefaultWorkers(ctx));
  live_chunk_ = std::clamp<int64_t>(program_.max_live_calls / 64, 1, 256);
}

InvokeRun::Lane& InvokeRun::LaneOf(WorkerPool::Worker& worker) {
  Lane& lane = lanes_[worker.index()];
  if (lane.step == nullptr) {
    if (lane.frames == nullptr) lane.frames = std::make_unique<FramePool>(program_);
    lane.step = request_.program->NewStep(ctx_, &request_.env);
    lane.graphs.resize(program_.graphs.size());
    lane.one = Tensor(int32_t{1});
  }
  lane.worker = &worker;
  return lane;
}

absl::Status InvokeRun::Run(RunResult* result) {
  TF_RETURN_IF_ERROR(CheckArgs());
  std::vector<WorkerPool::Task> tasks;
  lanes_[0].frames = std::make_unique<FramePool>(program_);
  TF_RETURN_IF_ERROR(StartRoots(lanes_[0], &tasks));
  if (!tasks.empty()) TF_RETURN_IF_ERROR(WorkerPool::Run(ctx_, lanes_.size(), this, tasks));
  TF_RETURN_IF_ERROR(CollectResults(result));
  return request_.collect ? CollectCalls(result) : absl::OkStatus();
}

std::shared_ptr<Tape> InvokeRun::TakeTape() {
  std::vector<std::unique_ptr<FramePool>> frames;
  for (Lane& lane : lanes_) {
    if (lane.frames == nullptr) continue;
    lane.frames->DropSlots();
    frames.push_back(std::move(lane.frames));
  }
  return MakeInvokeTape(request_, plan_, std::move(roots_), std::move(frames));
}

absl::Status InvokeRun::RunTask(WorkerPool::Worker& worker, WorkerPool::Task task) {
  return Advance(LaneOf(worker), static_cast<Frame*>(task.item), task.step);
}

absl::Status InvokeRun::Explain(const Frame& frame, const absl::Status& status) const {
  if (status.ok()) return status;
  return InCall(status, program_.functions[frame.function], frame.depth, frame.depth);
}

// Runs a call until it waits for calls of its own or is done; then goes on with the caller that waited for it last. One
// loop, so that depth costs no stack.
absl::Status InvokeRun::Advance(Lane& lane, Frame* frame, int block) {
  while (!lane.worker->stopped()) {
    const BlockSpec& spec = program_.blocks[block];
    frame->block = block;
    Record* record = nullptr;
    TF_RETURN_IF_ERROR(Explain(*frame, RunBlock(lane, frame, block, &record)));
    if (spec.side >= 0) {
      TF_RETURN_IF_ERROR(Explain(*frame, RunBlock(lane, frame, spec.side, keep() ? &record->side : nullptr)));
    }
    if (!spec.calls.empty()) {
      TF_RETURN_IF_ERROR(Explain(*frame, StartCalls(lane, frame, record)));
      if (!lane.children.empty()) return absl::OkStatus();
      TF_RETURN_IF_ERROR(Explain(*frame, FinishCalls(frame)));
    }
    TF_RETURN_IF_ERROR(Explain(*frame, FindNext(*frame, spec, &block)));
    while (block == BlockSpec::kReturn) {
      Frame* ready = nullptr;
      TF_RETURN_IF_ERROR(Return(lane, frame, &ready));
      if (ready == nullptr) return absl::OkStatus();
      frame = ready;
      TF_RETURN_IF_ERROR(Explain(*frame, FinishCalls(frame)));
      block = program_.blocks[frame->block].next;
    }
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::FindNext(const Frame& frame, const BlockSpec& block, int* next) const {
  *next = block.next;
  if (block.switch_slot < 0) return absl::OkStatus();
  TF_ASSIGN_OR_RETURN(const int64_t target, Integer(frame.slots[block.switch_slot], "what a conditional chooses by"));
  const int64_t last = block.targets.size() - 1;
  *next = block.targets[target < 0 || target > last ? last : target];
  return absl::OkStatus();
}

absl::Status InvokeRun::RunBlock(Lane& lane, Frame* frame, int block, Record** record) {
  const BlockSpec& spec = program_.blocks[block];
  const BlockPlan& plan = plan_->blocks[block];
  Record* made = nullptr;
  if (keep()) {
    made = *record = lane.frames->NewRecord();
    made->block = block;
    if (spec.next != BlockSpec::kJoin) {
      made->previous = frame->last;
      frame->last = made;
    }
    if (request_.record && plan.num_values() > 0) {
      made->values.reset(new Tensor[plan.num_values()]);
      for (size_t i = 0; i < plan.kept_slots.size(); ++i) made->values[i] = frame->slots[plan.kept_slots[i]];
    }
  }
  if (spec.plain >= 0) TF_RETURN_IF_ERROR(RunGraph(lane, frame, block, made));
  for (size_t i = 0; i < spec.moves.size(); ++i) {
    const auto& [to, from] = spec.moves[i];
    if (plan.move_last[i]) {
      frame->slots[to] = std::move(frame->slots[from]);
    } else {
      frame->slots[to] = frame->slots[from];
    }
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::RunGraph(Lane& lane, Frame* frame, int block, Record* record) {
  const int index = program_.blocks[block].plain;
  const BlockPlan& plan = plan_->blocks[block];
  const CompiledGraph*& graph = lane.graphs[index];
  if (graph == nullptr) {
    TF_ASSIGN_OR_RETURN(graph, request_.program->graph(index));
  }
  const GraphSpec& spec = graph->spec();
  TF_RETURN_IF_ERROR(FillFeeds(lane, frame, spec, plan.feed_last));
  TF_RETURN_IF_ERROR(graph->Run(*lane.step, absl::MakeSpan(lane.feeds), &lane.fetches));
  const bool record_values = request_.record && record != nullptr;
  const std::vector<tensorflow::DataType>& slot_types = program_.functions[frame->function].slot_types;
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    const Target& target = spec.targets[i];
    if (target.kind == Target::Kind::kSlot) {
      if (lane.fetches[i].dtype() != slot_types[target.index]) return WrongType(spec.fetches[i], lane.fetches[i]);
      frame->slots[target.index] = std::move(lane.fetches[i]);
    } else if (target.kind == Target::Kind::kSaved) {
      if (record_values) record->values[plan.kept_slots.size() + target.index] = std::move(lane.fetches[i]);
    }
  }
  if (record_values && !plan.shape_slots.empty()) {
    record->shapes.reset(new tensorflow::TensorShape[plan.shape_slots.size()]);
    for (size_t i = 0; i < plan.shape_slots.size(); ++i) {
      record->shapes[i] = frame->slots[plan.shape_slots[i]].shape();
    }
  }
  return absl::OkStatus();
}

// Environment values come from the step.
absl::Status InvokeRun::FillFeeds(Lane& lane, Frame* frame, const GraphSpec& graph, const std::vector<bool>& last) {
  lane.feeds.resize(graph.sources.size());
  for (size_t i = 0; i < graph.sources.size(); ++i) {
    const Source& source = graph.sources[i];
    switch (source.kind) {
      case Source::Kind::kSlot:
        if (last[i]) {
          lane.feeds[i] = std::move(frame->slots[source.index]);
        } else {
          lane.feeds[i] = frame->slots[source.index];
        }
        break;
      case Source::Kind::kEnv:
        break;
      case Source::Kind::kRows:
        lane.feeds[i] = lane.one;
        break;
      case Source::Kind::kUid:
        lane.feeds[i] = Tensor(static_cast<int64_t>(frame->uid));
        break;
      default:
        return absl::InternalError("a forward graph asks for values of the gradient");
    }
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::Return(Lane& lane, Frame* frame, Frame** ready) {
  const FunctionSpec& function = program_.functions[frame->function];
  const std::vector<bool>& last = plan_->result_last[frame->function];
  Frame* parent = frame->parent;
  const CallSpec* call = parent == nullptr ? nullptr : &program_.blocks[parent->block].calls[frame->call];
  for (size_t i = 0; i < function.results.size(); ++i) {
    Tensor& slot = frame->slots[function.results[i]];
    if (frame->collected != nullptr) frame->collected[function.num_args + i] = slot;
    Tensor& to = call == nullptr                        ? root_results_[i][frame->index]
                 : call->mode == CallSpec::Mode::kOne ? parent->slots[call->results[i]]
                                                      : parent->mapped[frame->call].rows[i][frame->index];
    if (last[i]) {
      to = std::move(slot);
    } else {
      to = slot;
    }
  }
  for (size_t i = 0; i < function.slot_types.size(); ++i) frame->slots[i] = Tensor();
  lane.frames->FreeSlots(frame);
  if (!function.is_branch) TF_RETURN_IF_ERROR(CountLive(lane, -1));
  if (!keep()) lane.frames->FreeFrame(frame);
  if (parent == nullptr) {
    if (open_roots_.fetch_sub(1, std::memory_order_acq_rel) == 1) lane.worker->Finish();
  } else if (parent->pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    *ready = parent;
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::FinishCalls(Frame* frame) {
  if (frame->mapped.empty()) return absl::OkStatus();
  const BlockSpec& block = program_.blocks[frame->block];
  for (size_t c = 0; c < block.calls.size(); ++c) {
    const CallSpec& call = block.calls[c];
    if (call.mode == CallSpec::Mode::kOne) continue;
    const FunctionSpec& callee = program_.functions[call.callees[0]];
    for (size_t i = 0; i < call.results.size(); ++i) {
      TF_ASSIGN_OR_RETURN(frame->slots[call.results[i]],
                          ReduceRows(callee, i, call.reduce, absl::MakeSpan(frame->mapped[c].rows[i])));
    }
  }
  frame->mapped.clear();
  return absl::OkStatus();
}

absl::Status RunInvoke(tensorflow::OpKernelContext* ctx, RunRequest request, RunResult* result) {
  InvokeRun run(ctx, request);
  TF_RETURN_IF_ERROR(run.Run(result));
  if (request.record) result->tape = run.TakeTape();
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
