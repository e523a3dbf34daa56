// How a batch runs: its rows come together, the graph of its block runs, its outputs become blocks of rows.
#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/batched_run.h"
#include "custom_ops/recursion/shares.h"
#include "custom_ops/recursion/step.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace batched {

using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status BatchedRun::Execute(const BlockPlan& block, const Frames& frames) {
  const bool record = tape_ != nullptr && block.gradient >= 0;
  const int64_t num_rows = frames.size();
  CollectRefs(block, frames, record ? block.reads.size() : block.num_forward_reads);
  const int threads = plan_->serial_device == nullptr ? 1 : mover_.workers->num_threads;
  const int num = NumShares(block.cost, request_.env, num_rows, threads);
  if (num == 1) {
    TF_RETURN_IF_ERROR(RunShare(block, frames, 0, num_rows, record, whole_));
    return StoreShare(block, frames, 0, num_rows, record, whole_, 0);
  }
  while (static_cast<int>(lanes_.size()) < num) AddLane();
  RunShares(mover_.workers, num, [&](int i) {
    const int64_t begin = ShareBegin(num_rows, num, i), end = ShareBegin(num_rows, num, i + 1);
    lanes_[i].status = RunShare(block, frames, begin, end, record, lanes_[i]);
  });
  for (int i = 0; i < num; ++i) {
    TF_RETURN_IF_ERROR(lanes_[i].status);
    const int64_t begin = ShareBegin(num_rows, num, i), end = ShareBegin(num_rows, num, i + 1);
    TF_RETURN_IF_ERROR(StoreShare(block, frames, begin, end, record, lanes_[i], i));
  }
  return absl::OkStatus();
}

void BatchedRun::AddLane() {
  Lane& lane = lanes_.emplace_back();
  lane.mover = {mover_.allocator, nullptr};
  lane.step = plan_->compiled->NewStep(ctx_, &request_.env);
  lane.step->UseSerialDevice(plan_->serial_device.get());
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

// What follows up to Run is done by several threads at once: it changes nothing but its lane.
absl::Status BatchedRun::RunShare(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record,
                                  Lane& lane) const {
  const int num_gathered = record ? block.gathered.size() : block.num_forward_gathered;
  lane.gathered.resize(num_gathered);
  for (int g = 0; g < num_gathered; ++g) {
    TF_RETURN_IF_ERROR(Gather(block, block.gathered[g], begin, end, lane.mover, &lane.gathered[g]));
  }
  Feed(block, frames, begin, end, record, lane);
  TF_ASSIGN_OR_RETURN(const CompiledGraph* graph,
                      plan_->compiled->graph(record ? block.spec->batched : block.spec->batched_lean));
  return graph->Run(*lane.step, absl::MakeSpan(lane.feeds), &lane.fetches);
}

absl::Span<const Ref> BatchedRun::Refs(const BlockPlan& block, int read, int64_t begin, int64_t end) const {
  const absl::Span<const Ref> refs = refs_[read];
  if (block.reads[read].kind == SlotKind::kRow) return refs.subspan(begin, end - begin);
  return refs.subspan(offsets_[read][begin], offsets_[read][end] - offsets_[read][begin]);
}

absl::Status BatchedRun::Gather(const BlockPlan& block, const Gathered& gathered, int64_t begin, int64_t end,
                                const RowMover& mover, Tensor* value) const {
  if (gathered.parts.size() > 1) {
    absl::InlinedVector<absl::Span<const Ref>, 4> parts;
    for (int r : gathered.parts) parts.push_back(Refs(block, r, begin, end));
    return store_.GatherJoined(parts, mover, value);
  }
  const int r = gathered.parts[0];
  const SlotRead& read = block.reads[r];
  switch (read.kind) {
    case SlotKind::kRow: return store_.Gather(Refs(block, r, begin, end), mover, value);
    case SlotKind::kSum:
      return store_.GatherSums(refs_[r], absl::MakeSpan(offsets_[r]).subspan(begin, end - begin + 1), read.row_shape,
                               read.dtype, mover, value);
    case SlotKind::kStack: return GatherStacks(read, Refs(block, r, begin, end), end - begin, mover, value);
  }
  return absl::OkStatus();
}

absl::Status BatchedRun::GatherStacks(const SlotRead& read, absl::Span<const Ref> refs, int64_t num_rows,
                                      const RowMover& mover, Tensor* value) const {
  TensorShape shape;
  Tensor rows;
  if (!refs.empty()) {
    TF_RETURN_IF_ERROR(store_.Gather(refs, mover, &rows));
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

void BatchedRun::Feed(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record,
                      Lane& lane) const {
  const int64_t num_rows = end - begin;
  if (block.needs_uid) {
    lane.uids = Tensor(mover_.allocator, tensorflow::DT_INT64, TensorShape({num_rows}));
    int64_t* uids = static_cast<int64_t*>(lane.uids.data());
    for (int64_t i = 0; i < num_rows; ++i) uids[i] = static_cast<int64_t>(frames[begin + i]->uid);
  }
  lane.feeds.resize(block.feeds.size());
  for (size_t f = 0; f < lane.feeds.size(); ++f) {
    const batched::Feed& feed = block.feeds[f];
    switch (feed.kind) {
      case batched::Feed::Kind::kSlot: lane.feeds[f] = lane.gathered[feed.index]; break;
      case batched::Feed::Kind::kEnv: break;  // the step has it
      case batched::Feed::Kind::kRows: lane.feeds[f] = Tensor(static_cast<int32_t>(num_rows)); break;
      default: lane.feeds[f] = lane.uids; break;
    }
  }
  // What nobody will read again may be overwritten by the kernels.
  for (size_t g = 0; g < lane.gathered.size(); ++g) {
    if (!record || !block.gathered[g].kept) lane.gathered[g] = Tensor();
  }
  if (!record) lane.uids = Tensor();
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

// Makes blocks of what a share computed, in the slots of its frames, and keeps what its gradient needs.
absl::Status BatchedRun::StoreShare(const BlockPlan& block, const Frames& frames, int64_t begin, int64_t end, bool record,
                                    Lane& lane, int share) {
  const int32_t num_rows = end - begin;
  outputs_.resize(block.outputs.size());
  for (size_t o = 0; o < block.outputs.size(); ++o) {
    const Output& output = block.outputs[o];
    Tensor value = std::move(lane.fetches[record ? output.fetch : output.lean_fetch]);
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
      Ref& slot = frames[begin + i]->slots()[output.slot];
      Release(slot);
      slot = Ref{index, output.stacked ? i : 0};
    }
  }
  if (record) Record(block, begin, end, lane, share);
  return absl::OkStatus();
}

void BatchedRun::Record(const BlockPlan& block, int64_t begin, int64_t end, Lane& lane, int share) {
  BatchRecord& record = tape_->batches.emplace_back();
  record.block = block.index;
  record.num_rows = end - begin;
  record.share = share;
  record.outputs = outputs_;
  record.kept.reserve(block.kept_slots.size() + block.kept_fetches.size() + 1);
  for (int g : block.kept_slots) record.kept.push_back(std::move(lane.gathered[g]));
  for (int f : block.kept_fetches) record.kept.push_back(lane.fetches[f]);
  if (block.keeps_uid) record.kept.push_back(lane.uids);
  record.sources.reserve(block.slot_gradients.size());
  for (const SlotGradient& gradient : block.slot_gradients) {
    const int r = gradient.read;
    SourceRows& rows = record.sources.emplace_back();
    if (block.reads[r].kind != SlotKind::kSum) {
      rows = DescribeRows(Refs(block, r, begin, end));
      continue;
    }
    const absl::Span<const Ref> refs = Refs(block, r, begin, end);
    rows.count = record.num_rows;
    rows.refs.assign(refs.begin(), refs.end());
    for (int64_t i = begin; i <= end; ++i) rows.offsets.push_back(offsets_[r][i] - offsets_[r][begin]);
  }
}

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext
