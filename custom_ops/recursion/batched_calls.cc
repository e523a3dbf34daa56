// What frames do between their blocks: call, wait, go on, return.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/batched_run.h"
#include "custom_ops/recursion/errors.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace batched {

using tensorflow::DataType;
using tensorflow::Tensor;

absl::Status BatchedRun::GoOn(const BlockPlan& plan, const Frames& frames) {
  const BlockSpec& block = *plan.spec;
  if (!block.moves.empty()) {
    for (Frame* frame : frames) {
      for (const auto& [to, from] : block.moves) Set(frame->slots()[to], frame->slots()[from]);
    }
  }
  if (block.next == BlockSpec::kJoin) {
    for (Frame* frame : frames) Arrive(frame);
    return absl::OkStatus();
  }
  if (block.side < 0 && block.calls.empty()) {
    for (size_t i = 0; i < frames.size(); ++i) {
      PrefetchFrame(frames, i);
      PrefetchParent(frames, i);
      if (!TryNext(block, frames[i])) Arrive(Return(block, frames[i]));
    }
    return absl::OkStatus();
  }
  // One more than there are calls: a frame whose mapped calls are all over nothing must not wait for ever.
  const int32_t pending = 1 + block.calls.size() + (block.side >= 0 ? 1 : 0);
  for (Frame* frame : frames) {
    frame->block = plan.index;
    frame->pending = pending;
    if (block.side >= 0) Push(block.side, frame);
  }
  // Call by call and not frame by frame: the rows that come back to one slot then lie side by side.
  for (size_t c = 0; c < block.calls.size(); ++c) {
    if (block.calls[c].mode == CallSpec::Mode::kOne) {
      TF_RETURN_IF_ERROR(Call(block, c, frames));
    } else {
      TF_RETURN_IF_ERROR(CallMapped(block, c, frames));
    }
  }
  for (Frame* frame : frames) Arrive(frame);
  return absl::OkStatus();
}

bool BatchedRun::TryNext(const BlockSpec& block, Frame* frame) {
  int next = block.next;
  if (block.calls.empty() && block.switch_slot >= 0) {
    const absl::StatusOr<int64_t> selector = Integer(frame->slots()[block.switch_slot]);
    next = block.targets[Target(block.targets, selector.value_or(0))];
  }
  if (next < 0) return false;
  Push(next, frame);
  return true;
}

void BatchedRun::Arrive(Frame* frame) {
  while (frame != nullptr && --frame->pending == 0) {
    const BlockSpec& block = program_.blocks[frame->block];
    if (TryNext(block, frame)) return;
    frame = Return(block, frame);
  }
}

Frame* BatchedRun::Return(const BlockSpec& block, Frame* frame) {
  const FunctionSpec& function = program_.functions[block.function];
  Frame* parent = frame->parent;
  Ref* slots = frame->slots();
  const CallSpec* call = parent == nullptr ? nullptr : &program_.blocks[parent->block].calls[frame->call];
  for (size_t r = 0; r < function.results.size(); ++r) {
    const Ref result = slots[function.results[r]];
    Hold(result);
    if (call == nullptr) {
      results_[r][frame->index] = result;
    } else if (call->mode == CallSpec::Mode::kOne) {
      Ref& slot = parent->slots()[call->results[r]];
      Release(slot);
      slot = result;
    } else {
      lists_.Rows(parent->slots()[call->results[r]])[frame->index] = result;
    }
    if (frame->serial >= 0) {
      Hold(result);
      calls_[function.num_args + r][frame->serial] = result;
    }
  }
  FramePool& pool = pools_[block.function];
  for (int s = 0; s < pool.num_slots(); ++s) Release(slots[s]);
  pool.Free(frame);
  --live_;
  return parent;
}

absl::StatusOr<Frame*> BatchedRun::NewFrame(int function, Frame* parent, int call, int64_t index) {
  const FunctionSpec& spec = program_.functions[function];
  if (++live_ > program_.max_live_calls) return TooManyCalls(program_, spec);
  Frame* frame = pools_[function].New();
  frame->parent = parent;
  frame->pending = 0;
  frame->call = call;
  frame->index = index;
  frame->serial = -1;
  if (parent == nullptr) {
    frame->depth = 1;
    frame->uid = ChildUid(0, -1, index);
  } else {
    frame->depth = parent->depth + (spec.is_branch ? 0 : 1);
    if (frame->depth > program_.max_depth) return TooDeep(program_, spec);
    if (plan_->needs_uid) frame->uid = ChildUid(parent->uid, program_.blocks[parent->block].calls[call].site, index);
  }
  return frame;
}

void BatchedRun::Enter(int function, Frame* frame) {
  const FunctionSpec& spec = program_.functions[function];
  if (request_.collect && function == program_.root) {
    frame->serial = calls_.empty() ? 0 : calls_[0].size();
    for (std::vector<Ref>& refs : calls_) refs.emplace_back();
    for (int a = 0; a < spec.num_args; ++a) {
      Hold(frame->slots()[a]);
      calls_[a].back() = frame->slots()[a];
    }
  }
  Push(spec.entry, frame);
}

absl::Status BatchedRun::Call(const BlockSpec& block, int c, const Frames& frames) {
  const CallSpec& call = block.calls[c];
  for (Frame* frame : frames) {
    TF_ASSIGN_OR_RETURN(const int callee, Callee(call, frame));
    TF_ASSIGN_OR_RETURN(Frame* child, NewFrame(callee, frame, c, 0));
    for (size_t a = 0; a < call.args.size(); ++a) {
      const Ref arg = frame->slots()[call.args[a]];
      Hold(arg);
      child->slots()[a] = arg;
    }
    Enter(callee, child);
  }
  return absl::OkStatus();
}

absl::Status BatchedRun::CallMapped(const BlockSpec& block, int c, const Frames& frames) {
  const CallSpec& call = block.calls[c];
  std::vector<int64_t> sizes(frames.size()), starts(frames.size());
  int64_t total = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    TF_ASSIGN_OR_RETURN(sizes[i], MappedSize(call, frames[i], &starts[i]));
    if (sizes[i] > program_.max_live_calls - live_ - total) return TooManyCalls(program_, program_.functions[call.callees[0]]);
    total += sizes[i];
  }
  std::vector<std::vector<Ref>> first(call.args.size());
  TF_RETURN_IF_ERROR(MappedArguments(call, frames, sizes, starts, &first));
  for (int slot : call.results) {
    const int list = lists_.New(sizes);
    for (size_t i = 0; i < frames.size(); ++i) {
      Ref& held = frames[i]->slots()[slot];
      Release(held);
      held = Lists::Slot(list, i);
    }
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    Frame* frame = frames[i];
    --frame->pending;
    frame->pending += sizes[i];
    TF_ASSIGN_OR_RETURN(const int callee, Callee(call, frame));
    for (int64_t j = 0; j < sizes[i]; ++j) {
      TF_ASSIGN_OR_RETURN(Frame* child, NewFrame(callee, frame, c, j));
      for (size_t a = 0; a < call.args.size(); ++a) {
        Ref arg = call.mapped[a] ? first[a][i] : frame->slots()[call.args[a]];
        if (call.mapped[a]) arg.row += j;
        Hold(arg);
        child->slots()[a] = arg;
      }
      Enter(callee, child);
    }
  }
  for (size_t a = 0; a < first.size(); ++a) {
    // Iota blocks belong to the calls alone.
    if (call.mapped[a] && call.mode == CallSpec::Mode::kRange && call.tables[a] == CallSpec::kIota && total > 0) {
      store_.Release(first[a][0].block);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BatchedRun::MappedSize(const CallSpec& call, Frame* frame, int64_t* start) const {
  if (call.mode == CallSpec::Mode::kRange) {
    TF_ASSIGN_OR_RETURN(*start, Integer(frame->slots()[call.start]));
    TF_ASSIGN_OR_RETURN(const int64_t limit, Integer(frame->slots()[call.limit]));
    return RangeSize(*start, limit);
  }
  int64_t size = -1;
  for (size_t a = 0; a < call.args.size(); ++a) {
    if (!call.mapped[a]) continue;
    const Ref arg = frame->slots()[call.args[a]];
    if (arg.block < 0) return absl::InternalError("A mapped argument was never written.");
    const tensorflow::TensorShape& shape = store_[arg.block].info.shape;
    if (shape.dims() < 2 || (size >= 0 && shape.dim_size(1) != size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Arguments that are mapped over must have one leading dimension of one size, not the shapes of which a row of ",
          shape.DebugString(), " is one", size < 0 ? "." : absl::StrCat("; another has ", size, " rows.")));
    }
    size = shape.dim_size(1);
  }
  return size < 0 ? 0 : size;
}

absl::Status BatchedRun::MappedArguments(const CallSpec& call, const Frames& frames, const std::vector<int64_t>& sizes,
                                         const std::vector<int64_t>& starts, std::vector<std::vector<Ref>>* first) {
  for (size_t a = 0; a < call.args.size(); ++a) {
    if (!call.mapped[a]) continue;
    std::vector<Ref>& refs = (*first)[a];
    refs.resize(frames.size());
    if (call.mode == CallSpec::Mode::kMap) {
      for (size_t i = 0; i < frames.size(); ++i) {
        const Ref arg = frames[i]->slots()[call.args[a]];
        if (sizes[i] > 0) refs[i] = Ref{store_.View(arg.block), static_cast<int32_t>(arg.row * sizes[i])};
      }
    } else if (call.tables[a] == CallSpec::kIota) {
      const DataType dtype = program_.functions[call.callees[0]].slot_types[a];
      TF_ASSIGN_OR_RETURN(const int block, Iota(dtype, sizes, starts));
      int32_t row = 0;
      for (size_t i = 0; i < frames.size(); row += sizes[i], ++i) refs[i] = Ref{block, row};
    } else {
      TF_ASSIGN_OR_RETURN(const int block, Table(call.tables[a]));
      const int64_t rows = request_.env[call.tables[a]].dim_size(0);
      for (size_t i = 0; i < frames.size(); ++i) {
        if (sizes[i] > 0 && (starts[i] < 0 || starts[i] + sizes[i] > rows)) {
          return absl::InvalidArgumentError(absl::StrCat("Calls over the range from ", starts[i], " to ",
                                                         starts[i] + sizes[i], " take rows of a table that has only ",
                                                         rows, "."));
        }
        refs[i] = Ref{block, static_cast<int32_t>(starts[i])};
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> BatchedRun::Table(int env) {
  if (tables_[env] >= 0) return tables_[env];
  const Tensor& table = request_.env[env];
  if (table.dims() < 1 || table.dim_size(0) > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Calls take rows of a tensor of shape ", table.shape().DebugString(), ", which has none, or too many."));
  }
  if (table.dim_size(0) == 0) return -1;  // no row will be asked for
  tables_[env] = store_.Add(table, /*users=*/1, tape_ != nullptr);
  if (tape_ != nullptr) tape_->tables.emplace_back(tables_[env], env);
  return tables_[env];
}

absl::StatusOr<int> BatchedRun::Iota(DataType dtype, const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& starts) {
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  if (total == 0) return -1;
  Tensor values(mover_.allocator, dtype, tensorflow::TensorShape({total}));
  const auto fill = [&](auto* to) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (int64_t j = 0; j < sizes[i]; ++j) *to++ = starts[i] + j;
    }
  };
  switch (dtype) {
    case tensorflow::DT_INT32: fill(static_cast<int32_t*>(values.data())); break;
    case tensorflow::DT_INT64: fill(static_cast<int64_t*>(values.data())); break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("Numbers of a range are passed as int32 or int64, not as ",
                                                     tensorflow::DataTypeString(dtype), "."));
  }
  return store_.Add(std::move(values), /*users=*/1, /*differentiated=*/false);
}

void BatchedRun::Push(int block, Frame* frame) {
  const BlockPlan& plan = plan_->blocks[block];
  if (!plan.keyed) return agenda_.Push(block, frame);
  MakeKey(plan, frame);
  agenda_.Push(block, key_, frame);
}

void BatchedRun::MakeKey(const BlockPlan& block, Frame* frame) {
  key_.clear();
  for (const SlotRead& read : block.reads) {
    if (!read.keyed) continue;
    Ref ref = frame->slots()[read.slot];
    if (IsList(ref)) {
      const absl::Span<const Ref> list = lists_.Rows(ref);
      if (read.kind == SlotKind::kStack) key_.push_back(list.size());
      ref = list.empty() ? Ref() : list[0];
    }
    if (ref.block < 0) {
      key_.push_back(-1);
      continue;
    }
    if (read.row_shape.IsFullyDefined()) continue;
    const tensorflow::TensorShape& shape = store_[ref.block].info.shape;
    key_.push_back(shape.dims());
    for (int d = 1; d < shape.dims(); ++d) key_.push_back(shape.dim_size(d));
  }
}

absl::StatusOr<int64_t> BatchedRun::Integer(Ref ref) const {
  if (ref.block < 0) return absl::InternalError("A selector was never written.");
  const RowBlock& block = store_[ref.block];
  switch (block.info.dtype) {
    case tensorflow::DT_BOOL: return reinterpret_cast<const bool*>(block.data)[ref.row] ? 1 : 0;
    case tensorflow::DT_INT32: return reinterpret_cast<const int32_t*>(block.data)[ref.row];
    case tensorflow::DT_INT64: return reinterpret_cast<const int64_t*>(block.data)[ref.row];
    default:
      return absl::InternalError(absl::StrCat("A selector has type ", tensorflow::DataTypeString(block.info.dtype),
                                              ", expected bool, int32 or int64."));
  }
}

int BatchedRun::Target(const std::vector<int>& targets, int64_t selector) {
  const int64_t last = targets.size() - 1;
  return selector < 0 || selector > last ? last : selector;
}

absl::StatusOr<int> BatchedRun::Callee(const CallSpec& call, Frame* frame) const {
  if (call.selector < 0) return call.callees[0];
  TF_ASSIGN_OR_RETURN(const int64_t selector, Integer(frame->slots()[call.selector]));
  return call.callees[Target(call.callees, selector)];
}

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext
