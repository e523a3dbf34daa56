#include "custom_ops/recursion/batched_tape.h"

#include "custom_ops/recursion/shares.h"
#include "custom_ops/recursion/step.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace batched {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// One walk over the log.
class BatchedTape::Pass {
 public:
  struct Lane {
    std::unique_ptr<Step> step;
    std::vector<Tensor> feeds, fetches;
    absl::Status status;
  };

  Pass(const BatchedTape& tape, OpKernelContext* ctx, EnvGradients* env_gradients)
      : tape_(tape),
        plan_(*tape.plan_),
        ctx_(ctx),
        env_gradients_(env_gradients),
        mover_{ctx->device()->GetAllocator({}), ctx->device()->tensorflow_cpu_worker_threads()},
        gradients_(tape.blocks, mover_),
        packed_(&tape.env()) {
    whole_.step = plan_.compiled->NewStep(ctx, &tape.env());
    whole_.step->UsePacked(&packed_);
  }

  absl::Status Start(const std::vector<SourceRows>& rows, const std::vector<Tensor>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].NumElements() == 0 || !tensorflow::DataTypeIsFloating(gradients[i].dtype())) continue;
      TF_RETURN_IF_ERROR(gradients_.Scatter(rows[i], gradients[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Walk() {
    const std::vector<BatchRecord>& records = tape_.batches;
    for (int64_t end = records.size(); end > 0;) {
      if (ctx_->cancellation_manager() != nullptr && ctx_->cancellation_manager()->IsCancelled()) {
        return absl::CancelledError("The gradient of a recursion was cancelled.");
      }
      const int64_t begin = end - 1 - records[end - 1].share;
      TF_RETURN_IF_ERROR(Differentiate(absl::MakeSpan(records).subspan(begin, end - begin)));
      end = begin;
    }
    return absl::OkStatus();
  }

  // The shares of one batch.
  absl::Status Differentiate(absl::Span<const BatchRecord> shares) {
    const BlockPlan& block = plan_.blocks[shares[0].block];
    reached_.clear();
    for (const BatchRecord& record : shares) {
      if (Reached(block, record)) reached_.push_back(&record);
    }
    const int num = reached_.size();
    if (num == 0) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const CompiledGraph* graph, plan_.compiled->graph(block.gradient));
    if (num > 1 && block.divisible_gradient) {
      while (static_cast<int>(lanes_.size()) < num) AddLane();
      for (int i = 0; i < num; ++i) TF_RETURN_IF_ERROR(Feed(block, *reached_[i], lanes_[i]));
      RunShares(mover_.workers, num, [&](int i) { Run(*graph, lanes_[i]); });
      for (int i = 0; i < num; ++i) TF_RETURN_IF_ERROR(Add(block, *reached_[i], lanes_[i]));
      return absl::OkStatus();
    }
    for (const BatchRecord* record : reached_) {
      TF_RETURN_IF_ERROR(Feed(block, *record, whole_));
      Run(*graph, whole_);
      TF_RETURN_IF_ERROR(Add(block, *record, whole_));
    }
    return absl::OkStatus();
  }

  bool Reached(const BlockPlan& block, const BatchRecord& record) const {
    for (size_t o = 0; o < block.outputs.size(); ++o) {
      if (block.outputs[o].differentiated && gradients_.Reached(record.outputs[o])) return true;
    }
    return false;
  }

  void AddLane() {
    Lane& lane = lanes_.emplace_back();
    lane.step = plan_.compiled->NewStep(ctx_, &tape_.env());
    lane.step->UseSerialDevice(plan_.serial_device.get());
    lane.step->UsePacked(&packed_);
  }

  static void Run(const CompiledGraph& graph, Lane& lane) {
    lane.status = graph.Run(*lane.step, absl::MakeSpan(lane.feeds), &lane.fetches);
  }

  absl::Status Add(const BlockPlan& block, const BatchRecord& record, Lane& lane) {
    TF_RETURN_IF_ERROR(lane.status);
    TF_RETURN_IF_ERROR(env_gradients_->Add(plan_.program().graphs[block.gradient], lane.fetches));
    for (size_t i = 0; i < block.slot_gradients.size(); ++i) {
      const SlotGradient& slot = block.slot_gradients[i];
      TF_RETURN_IF_ERROR(slot.part ? gradients_.ScatterPart(record.sources[i], lane.fetches[slot.fetch], slot.offset)
                                   : gradients_.Scatter(record.sources[i], std::move(lane.fetches[slot.fetch])));
    }
    return absl::OkStatus();
  }

  absl::Status Feed(const BlockPlan& block, const BatchRecord& record, Lane& lane) {
    lane.feeds.resize(block.gradient_feeds.size());
    for (size_t f = 0; f < lane.feeds.size(); ++f) {
      const batched::Feed& feed = block.gradient_feeds[f];
      Tensor& value = lane.feeds[f];
      switch (feed.kind) {
        case batched::Feed::Kind::kKept: value = record.kept[feed.index]; break;
        case batched::Feed::Kind::kEnv: break;  // the step has it
        case batched::Feed::Kind::kRows: value = Tensor(record.num_rows); break;
        case batched::Feed::Kind::kOutputGradient:
          TF_RETURN_IF_ERROR(gradients_.Take(record.outputs[feed.index], &value));
          break;
        default: return absl::InternalError("A gradient graph is fed by a frame.");
      }
    }
    return absl::OkStatus();
  }

  // A table of the environment that rows were taken from has its gradient as one dense tensor.
  absl::Status Tables() {
    for (const auto& [block, env] : tape_.tables) {
      if (!gradients_.Reached(block)) continue;
      Tensor gradient;
      TF_RETURN_IF_ERROR(gradients_.Take(block, &gradient));
      TF_RETURN_IF_ERROR(env_gradients_->AddDense(env, gradient));
    }
    return absl::OkStatus();
  }

  absl::Status Arguments(std::vector<Tensor>* dargs) {
    dargs->assign(tape_.args.size(), Tensor());
    for (size_t a = 0; a < tape_.args.size(); ++a) {
      if (tape_.args[a] < 0 || !gradients_.Reached(tape_.args[a])) continue;
      Tensor gradient;
      TF_RETURN_IF_ERROR(gradients_.Take(tape_.args[a], &gradient));
      if (!(*dargs)[a].CopyFrom(gradient, tape_.request().args[a].shape())) {
        return absl::InternalError("The gradient of an argument has another size than the argument.");
      }
    }
    return absl::OkStatus();
  }

 private:
  const BatchedTape& tape_;
  const BatchedPlan& plan_;
  OpKernelContext* ctx_;
  EnvGradients* env_gradients_;
  RowMover mover_;
  RowGradients gradients_;
  PackedMatrices packed_;
  Lane whole_;               // its kernels use the device's threads
  std::vector<Lane> lanes_;  // theirs do not
  std::vector<const BatchRecord*> reached_;
};

BatchedTape::BatchedTape(std::shared_ptr<const BatchedPlan> plan, RunRequest request) : plan_(std::move(plan)) {
  request_ = std::move(request);
}

absl::Status BatchedTape::Backward(OpKernelContext* ctx, const std::vector<Tensor>& dresults,
                                   const std::vector<Tensor>& dcalls, std::vector<Tensor>* dargs,
                                   EnvGradients* env_gradients) {
  Pass pass(*this, ctx, env_gradients);
  TF_RETURN_IF_ERROR(pass.Start(results, dresults));
  TF_RETURN_IF_ERROR(pass.Start(calls, dcalls));
  TF_RETURN_IF_ERROR(pass.Walk());
  TF_RETURN_IF_ERROR(pass.Tables());
  return pass.Arguments(dargs);
}

SourceRows DescribeRows(absl::Span<const Ref> refs) {
  SourceRows rows;
  if (refs.empty()) return rows;
  rows.count = refs.size();
  const int64_t start = Consecutive(refs);
  if (start < 0) {
    rows.refs.assign(refs.begin(), refs.end());
  } else {
    rows.block = refs[0].block;
    rows.start = start;
  }
  return rows;
}

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext
