#include "custom_ops/recursion/batched_tape.h"

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
  Pass(const BatchedTape& tape, OpKernelContext* ctx, EnvGradients* env_gradients)
      : tape_(tape),
        plan_(*tape.plan_),
        ctx_(ctx),
        env_gradients_(env_gradients),
        mover_{ctx->device()->GetAllocator({}), ctx->device()->tensorflow_cpu_worker_threads()},
        gradients_(tape.blocks, mover_),
        step_(plan_.compiled->NewStep(ctx, &tape.env())) {}

  absl::Status Start(const std::vector<SourceRows>& rows, const std::vector<Tensor>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].NumElements() == 0 || !tensorflow::DataTypeIsFloating(gradients[i].dtype())) continue;
      TF_RETURN_IF_ERROR(gradients_.Scatter(rows[i], gradients[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Walk() {
    for (auto record = tape_.batches.rbegin(); record != tape_.batches.rend(); ++record) {
      if (ctx_->cancellation_manager() != nullptr && ctx_->cancellation_manager()->IsCancelled()) {
        return absl::CancelledError("The gradient of a recursion was cancelled.");
      }
      TF_RETURN_IF_ERROR(Differentiate(*record));
    }
    return absl::OkStatus();
  }

  absl::Status Differentiate(const BatchRecord& record) {
    const BlockPlan& block = plan_.blocks[record.block];
    bool reached = false;
    for (size_t o = 0; o < block.outputs.size() && !reached; ++o) {
      reached = block.outputs[o].differentiated && gradients_.Reached(record.outputs[o]);
    }
    if (!reached) return absl::OkStatus();
    TF_RETURN_IF_ERROR(Feed(block, record));
    TF_ASSIGN_OR_RETURN(const CompiledGraph* graph, plan_.compiled->graph(block.gradient));
    TF_RETURN_IF_ERROR(graph->Run(*step_, absl::MakeSpan(feeds_), &fetches_));
    TF_RETURN_IF_ERROR(env_gradients_->Add(plan_.program().graphs[block.gradient], fetches_));
    for (size_t i = 0; i < block.slot_gradients.size(); ++i) {
      const SlotGradient& slot = block.slot_gradients[i];
      TF_RETURN_IF_ERROR(slot.part ? gradients_.ScatterPart(record.sources[i], fetches_[slot.fetch], slot.offset)
                                   : gradients_.Scatter(record.sources[i], std::move(fetches_[slot.fetch])));
    }
    return absl::OkStatus();
  }

  absl::Status Feed(const BlockPlan& block, const BatchRecord& record) {
    feeds_.resize(block.gradient_feeds.size());
    for (size_t f = 0; f < feeds_.size(); ++f) {
      const batched::Feed& feed = block.gradient_feeds[f];
      switch (feed.kind) {
        case batched::Feed::Kind::kKept: feeds_[f] = record.kept[feed.index]; break;
        case batched::Feed::Kind::kEnv: break;  // the step has it
        case batched::Feed::Kind::kRows: feeds_[f] = Tensor(record.num_rows); break;
        case batched::Feed::Kind::kOutputGradient:
          TF_RETURN_IF_ERROR(gradients_.Take(record.outputs[feed.index], &feeds_[f]));
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
  std::unique_ptr<Step> step_;
  std::vector<Tensor> feeds_, fetches_;
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
