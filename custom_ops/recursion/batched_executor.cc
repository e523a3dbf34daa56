// The batched executor: roots, agenda, results. Batches run in batched_batch.cc, frames go on in batched_calls.cc.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/batched_run.h"
#include "custom_ops/recursion/errors.h"
#include "custom_ops/recursion/step.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace batched {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

// With more open calls than this, those that can return go first: batches are large either way, and memory is finite.
constexpr int64_t kManyCalls = 1 << 20;

}  // namespace

BatchedRun::BatchedRun(OpKernelContext* ctx, std::shared_ptr<const BatchedPlan> plan, RunRequest request)
    : ctx_(ctx),
      plan_(std::move(plan)),
      program_(plan_->program()),
      request_(std::move(request)),
      mover_{ctx->device()->GetAllocator({}), ctx->device()->tensorflow_cpu_worker_threads()},
      store_(/*keep=*/request_.record),
      agenda_(*plan_),
      many_(std::min(kManyCalls, program_.max_live_calls / 2)),
      tables_(request_.env.size(), -1) {
  for (const FunctionSpec& function : program_.functions) pools_.emplace_back(function.slot_types.size());
  whole_.mover = mover_;
  whole_.step = plan_->compiled->NewStep(ctx, &request_.env);
  if (request_.record) tape_ = std::make_shared<BatchedTape>(plan_, request_);
}

absl::Status BatchedRun::Run(RunResult* result) {
  TF_RETURN_IF_ERROR(Start());
  TF_RETURN_IF_ERROR(Loop());
  return Finish(result);
}

absl::Status BatchedRun::Start() {
  const FunctionSpec& root = program_.functions[program_.root];
  const int64_t num_rows = request_.map && !request_.args.empty() ? request_.args[0].dim_size(0) : 1;
  if (num_rows > std::numeric_limits<int32_t>::max()) return TooManyCalls(program_, root);
  results_.assign(root.results.size(), std::vector<Ref>(num_rows));
  if (request_.collect) calls_.resize(root.num_args + root.results.size());
  args_.assign(request_.args.size(), -1);
  for (size_t a = 1; request_.map && a < request_.args.size(); ++a) {
    const int64_t other = request_.args[a].dims() < 1 ? 0 : request_.args[a].dim_size(0);
    if (other == num_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("arguments 0 and ", a, " of SubGraph '", root.name, "' have ",
                                                   num_rows, " and ", other, " rows; expected equal numbers"));
  }
  if (num_rows == 0) return absl::OkStatus();
  for (size_t a = 0; a < request_.args.size(); ++a) {
    Tensor arg = request_.args[a];
    if (!request_.map) {
      TensorShape shape = arg.shape();
      shape.InsertDim(0, 1);
      if (!arg.CopyFrom(request_.args[a], shape)) return absl::InternalError("An argument cannot be made a row.");
    }
    args_[a] = store_.Add(std::move(arg), /*users=*/1, request_.record);
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    TF_ASSIGN_OR_RETURN(Frame* frame, NewFrame(program_.root, nullptr, 0, row));
    for (size_t a = 0; a < args_.size(); ++a) Set(frame->slots()[a], Ref{args_[a], static_cast<int32_t>(row)});
    Enter(program_.root, frame);
  }
  for (int32_t block : args_) store_.Release(block);
  return absl::OkStatus();
}

absl::Status BatchedRun::Loop() {
  Frames frames;
  int block = 0;
  const auto scarce = [this] {
    return live_ > many_ ? std::optional<int64_t>(program_.max_live_calls - live_) : std::nullopt;
  };
  while (agenda_.Pop(scarce(), &block, &frames)) {
    if (ctx_->cancellation_manager() != nullptr && ctx_->cancellation_manager()->IsCancelled()) {
      return absl::CancelledError("A recursion was cancelled.");
    }
    const BlockPlan& plan = plan_->blocks[block];
    absl::Status status = plan.spec->batched < 0 ? absl::OkStatus() : Execute(plan, frames);
    if (status.ok()) status = GoOn(plan, frames);
    if (status.ok()) continue;
    const auto [least, greatest] = std::minmax_element(
        frames.begin(), frames.end(), [](const Frame* a, const Frame* b) { return a->depth < b->depth; });
    return InCall(status, *plan.function, (*least)->depth, (*greatest)->depth);
  }
  return absl::OkStatus();
}

absl::Status BatchedRun::GatherResults(std::vector<std::vector<Ref>>& refs, const std::vector<int>& slots,
                                       std::vector<Tensor>* values, std::vector<SourceRows>* rows) {
  const FunctionSpec& root = program_.functions[program_.root];
  values->resize(refs.size());
  for (size_t r = 0; r < refs.size(); ++r) {
    if (refs[r].empty()) {
      TensorShape shape({0});
      const tensorflow::PartialTensorShape& row = root.slot_shapes[slots[r]];
      for (int d = 0; d < row.dims(); ++d) shape.AddDim(std::max<int64_t>(row.dim_size(d), 0));
      (*values)[r] = Tensor(root.slot_types[slots[r]], shape);
    } else {
      TF_RETURN_IF_ERROR(store_.Gather(refs[r], mover_, &(*values)[r]));
    }
    if (rows != nullptr) rows->push_back(DescribeRows(refs[r]));
  }
  return absl::OkStatus();
}

absl::Status BatchedRun::Finish(RunResult* result) {
  if (live_ != 0) return absl::InternalError(absl::StrCat(live_, " calls never returned."));
  const FunctionSpec& root = program_.functions[program_.root];
  TF_RETURN_IF_ERROR(GatherResults(results_, root.results, &result->results, tape_ ? &tape_->results : nullptr));
  if (!request_.map) {
    for (Tensor& value : result->results) {
      TensorShape shape = value.shape();
      shape.RemoveDim(0);
      const Tensor row = value;
      if (!value.CopyFrom(row, shape)) return absl::InternalError("A row cannot be made a value.");
    }
  }
  if (request_.collect) {
    std::vector<int> slots(root.num_args);
    for (int a = 0; a < root.num_args; ++a) slots[a] = a;
    slots.insert(slots.end(), root.results.begin(), root.results.end());
    TF_RETURN_IF_ERROR(GatherResults(calls_, slots, &result->calls, tape_ ? &tape_->calls : nullptr));
  }
  if (tape_ == nullptr) return absl::OkStatus();
  tape_->args = args_;
  tape_->blocks = store_.TakeInfos();
  result->tape = tape_;
  return absl::OkStatus();
}

}  // namespace batched

absl::Status RunBatched(tensorflow::OpKernelContext* ctx, RunRequest request, RunResult* result) {
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const batched::BatchedPlan> plan, request.program->batched_plan(ctx));
  return batched::BatchedRun(ctx, std::move(plan), std::move(request)).Run(result);
}

}  // namespace recursion
}  // namespace tf_ext
