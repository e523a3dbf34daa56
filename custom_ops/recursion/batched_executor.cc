// The batched executor: roots, batches, results. Frames go on in batched_calls.cc.
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
      store_(mover_, /*keep=*/request_.record),
      agenda_(*plan_),
      step_(plan_->compiled->NewStep(ctx, &request_.env)),
      many_(std::min(kManyCalls, program_.max_live_calls / 2)),
      tables_(request_.env.size(), -1) {
  for (const FunctionSpec& function : program_.functions) pools_.emplace_back(function.slot_types.size());
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
  if (num_rows == 0) return absl::OkStatus();
  for (size_t a = 0; a < request_.args.size(); ++a) {
    Tensor arg = request_.args[a];
    if (!request_.map) {
      TensorShape shape = arg.shape();
      shape.InsertDim(0, 1);
      if (!arg.CopyFrom(request_.args[a], shape)) return absl::InternalError("An argument cannot be made a row.");
    } else if (arg.dims() < 1 || arg.dim_size(0) != num_rows) {
      return absl::InvalidArgumentError(absl::StrCat("Argument ", a, " of '", root.name, "' has shape ",
                                                     arg.shape().DebugString(), ", expected ", num_rows, " rows."));
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

absl::Status BatchedRun::Execute(const BlockPlan& block, const Frames& frames) {
  const bool record = tape_ != nullptr && block.gradient >= 0;
  CollectRefs(block, frames, record ? block.reads.size() : block.num_forward_reads);
  const int num_gathered = record ? block.gathered.size() : block.num_forward_gathered;
  gathered_.resize(num_gathered);
  for (int g = 0; g < num_gathered; ++g) {
    TF_RETURN_IF_ERROR(Gather(block, block.gathered[g], frames.size(), &gathered_[g]));
  }
  Feed(block, frames, record);
  TF_ASSIGN_OR_RETURN(const CompiledGraph* graph,
                      plan_->compiled->graph(record ? block.spec->batched : block.spec->batched_lean));
  TF_RETURN_IF_ERROR(graph->Run(*step_, absl::MakeSpan(feeds_), &fetches_));
  TF_RETURN_IF_ERROR(StoreOutputs(block, frames, record));
  if (record) Record(block, frames.size());
  return absl::OkStatus();
}

void BatchedRun::CollectRefs(const BlockPlan& block, const Frames& frames, int num_reads) {
  if (static_cast<int>(refs_.size()) < num_reads) {
    refs_.resize(num_reads);
    offsets_.resize(num_reads);
  }
  const int64_t num_rows = frames.size();
  for (int r = 0; r < num_reads; ++r) {
    std::vector<Ref>& refs = refs_[r];
    const int slot = block.reads[r].slot;
    if (block.reads[r].kind == SlotKind::kRow) {
      refs.resize(num_rows);
      for (int64_t i = 0; i < num_rows; ++i) {
        PrefetchFrame(frames, i);
        refs[i] = frames[i]->slots()[slot];
      }
      continue;
    }
    refs.clear();
    offsets_[r].assign(1, 0);
    for (Frame* frame : frames) {
      const Ref ref = frame->slots()[slot];
      if (IsList(ref)) {
        const absl::Span<const Ref> rows = lists_.Rows(ref);
        refs.insert(refs.end(), rows.begin(), rows.end());
      }
      offsets_[r].push_back(refs.size());
    }
  }
}

absl::Status BatchedRun::Gather(const BlockPlan& block, const Gathered& gathered, int64_t num_rows, Tensor* value) {
  if (gathered.parts.size() > 1) {
    absl::InlinedVector<absl::Span<const Ref>, 4> parts;
    for (int r : gathered.parts) parts.push_back(refs_[r]);
    return store_.GatherJoined(parts, value);
  }
  const int r = gathered.parts[0];
  const SlotRead& read = block.reads[r];
  switch (read.kind) {
    case SlotKind::kRow: return store_.Gather(refs_[r], value);
    case SlotKind::kSum: return store_.GatherSums(refs_[r], offsets_[r], read.row_shape, read.dtype, value);
    case SlotKind::kStack: return GatherStacks(read, refs_[r], num_rows, value);
  }
  return absl::OkStatus();
}

absl::Status BatchedRun::GatherStacks(const SlotRead& read, absl::Span<const Ref> refs, int64_t num_rows,
                                      Tensor* value) {
  TensorShape shape;
  Tensor rows;
  if (!refs.empty()) {
    TF_RETURN_IF_ERROR(store_.Gather(refs, &rows));
    shape = WithRows(rows.shape(), refs.size() / num_rows);
  } else if (read.row_shape.AsTensorShape(&shape)) {
    shape.InsertDim(0, 0);
    rows = Tensor(read.dtype, shape);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("The results of no calls need a known shape, not ", read.row_shape.DebugString(), "."));
  }
  shape.InsertDim(0, num_rows);
  if (!value->CopyFrom(rows, shape)) return absl::InternalError("Lists of different lengths share a batch.");
  return absl::OkStatus();
}

void BatchedRun::Feed(const BlockPlan& block, const Frames& frames, bool record) {
  if (block.needs_uid) {
    const int64_t num_rows = frames.size();
    uids_ = Tensor(mover_.allocator, tensorflow::DT_INT64, TensorShape({num_rows}));
    int64_t* uids = static_cast<int64_t*>(uids_.data());
    for (int64_t i = 0; i < num_rows; ++i) uids[i] = static_cast<int64_t>(frames[i]->uid);
  }
  feeds_.resize(block.feeds.size());
  for (size_t f = 0; f < feeds_.size(); ++f) {
    const batched::Feed& feed = block.feeds[f];
    switch (feed.kind) {
      case batched::Feed::Kind::kSlot: feeds_[f] = gathered_[feed.index]; break;
      case batched::Feed::Kind::kEnv: break;  // the step has it
      case batched::Feed::Kind::kRows: feeds_[f] = Tensor(static_cast<int32_t>(frames.size())); break;
      default: feeds_[f] = uids_; break;
    }
  }
  // What nobody will read again may be overwritten by the kernels.
  for (size_t g = 0; g < gathered_.size(); ++g) {
    if (!record || !block.gathered[g].kept) gathered_[g] = Tensor();
  }
  if (!record) uids_ = Tensor();
}

absl::Status BatchedRun::CheckOutput(const BlockPlan& block, const Output& output, const TensorShape& shape,
                                     int64_t num_rows) const {
  const int first = output.stacked ? 1 : 0;
  bool fits = shape.dims() >= first && (!output.stacked || shape.dim_size(0) == num_rows);
  if (fits && !output.row_shape.unknown_rank()) {
    fits = shape.dims() - first == output.row_shape.dims();
    for (int d = 0; fits && d < output.row_shape.dims(); ++d) {
      const int64_t size = output.row_shape.dim_size(d);
      fits = size < 0 || size == shape.dim_size(d + first);
    }
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "A batch of ", num_rows, " computed ", shape.DebugString(), " for ", program_.graphs[block.spec->batched].fetches[output.fetch],
      ", expected ", output.stacked ? "rows of " : "one row of ", output.row_shape.DebugString(), "."));
}

absl::Status BatchedRun::StoreOutputs(const BlockPlan& block, const Frames& frames, bool record) {
  const int32_t num_rows = frames.size();
  outputs_.resize(block.outputs.size());
  for (size_t o = 0; o < block.outputs.size(); ++o) {
    const Output& output = block.outputs[o];
    Tensor value = std::move(fetches_[record ? output.fetch : output.lean_fetch]);
    TF_RETURN_IF_ERROR(CheckOutput(block, output, value.shape(), num_rows));
    if (!output.stacked) {
      TensorShape shape = value.shape();
      shape.InsertDim(0, 1);
      const Tensor row = value;
      if (!value.CopyFrom(row, shape)) return absl::InternalError("A value cannot be made a row.");
    }
    const int index = store_.Add(std::move(value), num_rows, tape_ != nullptr && output.differentiated);
    outputs_[o] = index;
    for (int32_t i = 0; i < num_rows; ++i) {
      Ref& slot = frames[i]->slots()[output.slot];
      Release(slot);
      slot = Ref{index, output.stacked ? i : 0};
    }
  }
  return absl::OkStatus();
}

void BatchedRun::Record(const BlockPlan& block, int64_t num_rows) {
  tape_->batches.emplace_back();
  BatchRecord& record = tape_->batches.back();
  record.block = block.index;
  record.num_rows = num_rows;
  record.outputs = outputs_;
  record.kept.reserve(block.kept_slots.size() + block.kept_fetches.size() + 1);
  for (int g : block.kept_slots) record.kept.push_back(std::move(gathered_[g]));
  for (int f : block.kept_fetches) record.kept.push_back(fetches_[f]);
  if (block.keeps_uid) record.kept.push_back(uids_);
  record.sources.reserve(block.slot_gradients.size());
  for (const SlotGradient& gradient : block.slot_gradients) {
    const int r = gradient.read;
    if (block.reads[r].kind != SlotKind::kSum) {
      record.sources.push_back(DescribeRows(refs_[r]));
      continue;
    }
    SourceRows rows;
    rows.count = num_rows;
    rows.refs = refs_[r];
    rows.offsets = offsets_[r];
    record.sources.push_back(std::move(rows));
  }
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
      TF_RETURN_IF_ERROR(store_.Gather(refs[r], &(*values)[r]));
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
  TF_ASSIGN_OR_RETURN(std::shared_ptr<const batched::BatchedPlan> plan, request.program->batched_plan());
  return batched::BatchedRun(ctx, std::move(plan), std::move(request)).Run(result);
}

}  // namespace recursion
}  // namespace tf_ext
