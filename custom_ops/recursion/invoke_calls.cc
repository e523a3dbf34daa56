// How calls of the invoke executor begin: callees, arguments, limits.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/errors.h"
#include "custom_ops/recursion/invoke_run.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::StatusOr<Frame*> InvokeRun::NewFrame(Lane& lane, int function, Frame* parent, int call, int64_t index) {
  const FunctionSpec& spec = program_.functions[function];
  Frame* frame = lane.frames->NewFrame(function);
  frame->parent = parent;
  frame->call = call;
  frame->index = index;
  frame->depth = (parent == nullptr ? 0 : parent->depth) + (spec.is_branch ? 0 : 1);
  if (parent == nullptr) {
    frame->uid = ChildUid(0, -1, index);
  } else {
    frame->uid = ChildUid(parent->uid, program_.blocks[parent->block].calls[call].site, index);
  }
  if (spec.is_branch) return frame;
  if (frame->depth > program_.max_depth) return TooDeep(program_, spec);
  if (!CountLive(lane, 1).ok()) return TooManyCalls(program_, spec);
  return frame;
}

// Workers count for themselves and meet every so many calls: one shared counter would be touched by every call.
absl::Status InvokeRun::CountLive(Lane& lane, int64_t change) {
  lane.live += change;
  if (std::abs(lane.live) < live_chunk_) return absl::OkStatus();
  const int64_t total = live_.fetch_add(lane.live, std::memory_order_relaxed) + lane.live;
  lane.live = 0;
  if (change > 0 && total > program_.max_live_calls) return absl::ResourceExhaustedError("too many calls");
  return absl::OkStatus();
}

// Leaves the calls in `lane.children`, pushed so that the first one is run first.
absl::Status InvokeRun::StartCalls(Lane& lane, Frame* frame, Record* record) {
  const BlockSpec& block = program_.blocks[frame->block];
  lane.children.clear();
  for (size_t c = 0; c < block.calls.size(); ++c) TF_RETURN_IF_ERROR(StartCall(lane, frame, c));
  const std::vector<Frame*>& children = lane.children;
  frame->pending.store(children.size(), std::memory_order_relaxed);
  if (keep() && !children.empty()) {
    record->num_children = children.size();
    record->children.reset(new Frame*[children.size()]);
    std::copy(children.begin(), children.end(), record->children.get());
  }
  for (auto it = children.rbegin(); it != children.rend(); ++it) {
    lane.worker->Push({*it, program_.functions[(*it)->function].entry});
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::StartCall(Lane& lane, Frame* frame, int index) {
  const CallSpec& call = program_.blocks[frame->block].calls[index];
  int callee = call.callees[0];
  if (call.selector >= 0) {
    TF_ASSIGN_OR_RETURN(const int64_t chosen, Integer(frame->slots[call.selector], "what a conditional chooses by"));
    const int64_t last = call.callees.size() - 1;
    callee = call.callees[chosen < 0 || chosen > last ? last : chosen];
  }
  if (call.mode != CallSpec::Mode::kOne) return StartMapped(lane, frame, index, callee);
  TF_ASSIGN_OR_RETURN(Frame * child, NewFrame(lane, callee, frame, index, 0));
  const std::vector<bool>& last = plan_->blocks[frame->block].args_last[index];
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (last[i]) {
      child->slots[i] = std::move(frame->slots[call.args[i]]);
    } else {
      child->slots[i] = frame->slots[call.args[i]];
    }
  }
  KeepArguments(child);
  lane.children.push_back(child);
  return absl::OkStatus();
}

void InvokeRun::KeepArguments(Frame* frame) {
  if (!request_.collect || frame->function != program_.root) return;
  const FunctionSpec& function = program_.functions[frame->function];
  frame->collected.reset(new Tensor[function.num_args + function.results.size()]);
  for (int i = 0; i < function.num_args; ++i) frame->collected[i] = frame->slots[i];
}

absl::Status InvokeRun::StartMapped(Lane& lane, Frame* frame, int index, int callee) {
  const CallSpec& call = program_.blocks[frame->block].calls[index];
  int64_t start = 0, num_rows = 0;
  TF_RETURN_IF_ERROR(NumRows(frame, call, &start, &num_rows));
  frame->mapped.resize(program_.blocks[frame->block].calls.size());
  if (num_rows > program_.max_live_calls) return TooManyCalls(program_, program_.functions[callee]);
  frame->mapped[index].rows.assign(call.results.size(), std::vector<Tensor>(num_rows));
  for (int64_t row = 0; row < num_rows; ++row) {
    TF_ASSIGN_OR_RETURN(Frame * child, NewFrame(lane, callee, frame, index, row));
    child->table_row = start + row;
    for (size_t i = 0; i < call.args.size(); ++i) {
      TF_RETURN_IF_ERROR(FillArgument(frame, call, i, child));
    }
    KeepArguments(child);
    lane.children.push_back(child);
  }
  const std::vector<bool>& last = plan_->blocks[frame->block].args_last[index];
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (last[i]) frame->slots[call.args[i]] = Tensor();
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::NumRows(Frame* frame, const CallSpec& call, int64_t* start, int64_t* rows) {
  if (call.mode == CallSpec::Mode::kRange) {
    TF_ASSIGN_OR_RETURN(*start, Integer(frame->slots[call.start], "the start of a range"));
    TF_ASSIGN_OR_RETURN(const int64_t limit, Integer(frame->slots[call.limit], "the limit of a range"));
    *rows = RangeSize(*start, limit);
    return absl::OkStatus();
  }
  *rows = -1;
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (!call.mapped[i]) continue;
    const Tensor& arg = frame->slots[call.args[i]];
    if (arg.dims() < 1) return absl::InvalidArgumentError("a mapped argument is a scalar; expected leading rows");
    if (*rows >= 0 && *rows != arg.dim_size(0)) {
      return absl::InvalidArgumentError(absl::StrCat("mapped arguments have ", *rows, " and ", arg.dim_size(0),
                                                     " rows; expected equal numbers"));
    }
    *rows = arg.dim_size(0);
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::FillArgument(Frame* frame, const CallSpec& call, int arg, Frame* child) {
  if (!call.mapped[arg]) {
    child->slots[arg] = frame->slots[call.args[arg]];
    return absl::OkStatus();
  }
  if (call.mode == CallSpec::Mode::kMap) {
    TF_ASSIGN_OR_RETURN(child->slots[arg], Row(frame->slots[call.args[arg]], child->index));
    return absl::OkStatus();
  }
  if (call.tables[arg] == CallSpec::kIota) {
    TF_ASSIGN_OR_RETURN(child->slots[arg],
                        Scalar(program_.functions[child->function].slot_types[arg], child->table_row));
    return absl::OkStatus();
  }
  TF_ASSIGN_OR_RETURN(child->slots[arg], Row(request_.env[call.tables[arg]], child->table_row));
  return absl::OkStatus();
}

absl::Status InvokeRun::CheckArgs() const {
  const FunctionSpec& root = program_.functions[program_.root];
  if (!plan_->complete) {
    return absl::FailedPreconditionError(absl::StrCat("the program of SubGraph '", root.name,
                                                      "' has graphs for batched execution only; expected \"batched\""));
  }
  if (request_.args.size() != root.num_args || request_.env.size() != program_.env_types.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "SubGraph '", root.name, "' takes ", root.num_args, " arguments and ", program_.env_types.size(),
        " environment values, got ", request_.args.size(), " and ", request_.env.size()));
  }
  for (int i = 0; i < root.num_args; ++i) {
    const Tensor& arg = request_.args[i];
    tensorflow::PartialTensorShape expected = root.slot_shapes[i];
    if (request_.map) expected = tensorflow::PartialTensorShape({-1}).Concatenate(expected);
    if (arg.dtype() != root.slot_types[i] || !expected.IsCompatibleWith(arg.shape())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "argument ", i, " of SubGraph '", root.name, "' must be ", tensorflow::DataTypeString(root.slot_types[i]),
          " of shape ", expected.DebugString(), ", got ", tensorflow::DataTypeString(arg.dtype()), " of shape ",
          arg.shape().DebugString()));
    }
    if (request_.map && arg.dim_size(0) != request_.args[0].dim_size(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("arguments 0 and ", i, " of SubGraph '", root.name, "' have ", request_.args[0].dim_size(0),
                       " and ", arg.dim_size(0), " rows; expected equal numbers"));
    }
  }
  for (size_t i = 0; i < request_.env.size(); ++i) {
    if (request_.env[i].dtype() != program_.env_types[i]) {
      return absl::InvalidArgumentError(
          absl::StrCat("environment value ", i, " of SubGraph '", root.name, "' must be ",
                       tensorflow::DataTypeString(program_.env_types[i]), ", got ",
                       tensorflow::DataTypeString(request_.env[i].dtype())));
    }
  }
  return absl::OkStatus();
}

absl::Status InvokeRun::StartRoots(Lane& lane, std::vector<WorkerPool::Task>* tasks) {
  const FunctionSpec& root = program_.functions[program_.root];
  if (request_.map && root.num_args == 0) {
    return absl::InvalidArgumentError(absl::StrCat("SubGraph '", root.name, "' has no argument to map over"));
  }
  const int64_t num_rows = request_.map ? request_.args[0].dim_size(0) : 1;
  root_results_.assign(root.results.size(), std::vector<Tensor>(num_rows));
  open_roots_ = num_rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    TF_ASSIGN_OR_RETURN(Frame * frame, NewFrame(lane, program_.root, nullptr, 0, row));
    for (int i = 0; i < root.num_args; ++i) {
      if (request_.map) {
        TF_ASSIGN_OR_RETURN(frame->slots[i], Row(request_.args[i], row));
      } else {
        frame->slots[i] = request_.args[i];
      }
    }
    KeepArguments(frame);
    roots_.push_back(frame);
  }
  for (auto it = roots_.rbegin(); it != roots_.rend(); ++it) tasks->push_back({*it, root.entry});
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReduceRows(const FunctionSpec& callee, int result, CallSpec::Reduce reduce,
                                  absl::Span<Tensor> rows) {
  if (reduce == CallSpec::Reduce::kStack && !rows.empty()) return Stack(rows);
  if (!rows.empty()) {
    Tensor sum = std::move(rows[0]);
    for (size_t i = 1; i < rows.size(); ++i) {
      if (rows[i].shape() == sum.shape() && sum.NumElements() == 0) continue;
      TF_RETURN_IF_ERROR(AddTo(&sum, rows[i]));
    }
    return sum;
  }
  const int slot = callee.results[result];
  const tensorflow::PartialTensorShape& row_shape = callee.slot_shapes[slot];
  TensorShape shape;
  if (reduce == CallSpec::Reduce::kStack) {
    shape.AddDim(0);
  } else if (!row_shape.IsFullyDefined()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sum over no calls of SubGraph '", callee.name,
        "' is zeros of a shape that is not known; expected a result signature with a complete shape, got ",
        row_shape.DebugString()));
  }
  for (int i = 0; i < row_shape.dims(); ++i) shape.AddDim(std::max<int64_t>(0, row_shape.dim_size(i)));
  return Zeros(callee.slot_types[slot], shape);
}

absl::Status InvokeRun::CollectResults(RunResult* result) {
  const FunctionSpec& root = program_.functions[program_.root];
  for (size_t i = 0; i < root.results.size(); ++i) {
    if (!request_.map) {
      result->results.push_back(std::move(root_results_[i][0]));
      continue;
    }
    TF_ASSIGN_OR_RETURN(result->results.emplace_back(),
                        ReduceRows(root, i, CallSpec::Reduce::kStack, absl::MakeSpan(root_results_[i])));
  }
  return absl::OkStatus();
}

// In the order in which one worker would begin the calls.
absl::Status InvokeRun::CollectCalls(RunResult* result) {
  const FunctionSpec& root = program_.functions[program_.root];
  const int num_values = root.num_args + root.results.size();
  std::vector<std::vector<Tensor>> values(num_values);
  std::vector<Frame*> open(roots_.rbegin(), roots_.rend());
  int64_t num_collected = 0;
  while (!open.empty()) {
    Frame* frame = open.back();
    open.pop_back();
    if (frame->collected != nullptr) {
      frame->collected_index = num_collected++;
      for (int i = 0; i < num_values; ++i) values[i].push_back(std::move(frame->collected[i]));
      frame->collected.reset();
    }
    for (Record* record = frame->last; record != nullptr; record = record->previous) {
      for (int64_t i = record->num_children - 1; i >= 0; --i) open.push_back(record->children[i]);
    }
  }
  for (int i = 0; i < num_values; ++i) {
    if (num_collected > 0) {
      TF_ASSIGN_OR_RETURN(result->calls.emplace_back(), Stack(values[i]));
      continue;
    }
    const int slot = i < root.num_args ? i : root.results[i - root.num_args];
    TensorShape shape({0});
    for (int d = 0; d < root.slot_shapes[slot].dims(); ++d) {
      shape.AddDim(std::max<int64_t>(0, root.slot_shapes[slot].dim_size(d)));
    }
    result->calls.push_back(Zeros(root.slot_types[slot], shape));
  }
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
