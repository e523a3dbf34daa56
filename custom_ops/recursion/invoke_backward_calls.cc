// Calls on their way back: what a caller gives to them and takes from them.
#include <algorithm>
#include <utility>
#include <vector>

#include "custom_ops/recursion/invoke_backward.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

using tensorflow::Tensor;

absl::Status BackwardRun::AddCollected(BackFrame* back, bool arguments) {
  if (dcalls_.empty() || back->frame->collected_index < 0) return absl::OkStatus();
  const FunctionSpec& function = program_.functions[back->frame->function];
  const int num_args = function.num_args;
  const int first = arguments ? 0 : num_args, last = arguments ? num_args : dcalls_.size();
  for (int i = first; i < last; ++i) {
    if (IsNone(dcalls_[i])) continue;
    TF_ASSIGN_OR_RETURN(const Tensor row, Row(dcalls_[i], back->frame->collected_index));
    TF_RETURN_IF_ERROR(AddTo(&back->gradients[arguments ? i : function.results[i - num_args]], row));
  }
  return absl::OkStatus();
}

absl::Status BackwardRun::StartChildren(Lane& lane, BackFrame* back, Record* record) {
  lane.children.clear();
  const BlockSpec& block = program_.blocks[record->block];
  for (int64_t i = 0; i < record->num_children; ++i) {
    Frame* child = record->children[i];
    TF_RETURN_IF_ERROR(StartChild(lane, back, block.calls[child->call], child));
  }
  for (const CallSpec& call : block.calls) {
    for (int slot : call.results) back->gradients[slot] = Tensor();
  }
  back->pending.store(lane.children.size(), std::memory_order_relaxed);
  for (auto it = lane.children.rbegin(); it != lane.children.rend(); ++it) lane.worker->Push({*it, /*step=*/1});
  return absl::OkStatus();
}

// A call that no gradient reaches is passed over, unless one may come from the collected calls below it.
absl::Status BackwardRun::StartChild(Lane& lane, BackFrame* back, const CallSpec& call, Frame* child) {
  const auto reached = [&](int slot) { return !IsNone(back->gradients[slot]); };
  child->back = nullptr;
  if (dcalls_.empty() && std::none_of(call.results.begin(), call.results.end(), reached)) return absl::OkStatus();
  BackFrame* child_back = NewFrame(lane, child, back);
  const std::vector<int>& results = program_.functions[child->function].results;
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor gradient = back->gradients[call.results[i]];
    if (IsNone(gradient)) continue;
    if (call.reduce == CallSpec::Reduce::kStack) {
      TF_ASSIGN_OR_RETURN(gradient, Row(gradient, child->index));
    }
    TF_RETURN_IF_ERROR(AddTo(&child_back->gradients[results[i]], gradient));
  }
  TF_RETURN_IF_ERROR(AddCollected(child_back, /*arguments=*/false));
  lane.children.push_back(child_back);
  return absl::OkStatus();
}

absl::Status BackwardRun::Join(Lane& lane, BackFrame* back, Record* record) {
  const BlockSpec& block = program_.blocks[record->block];
  Frame** first = record->children.get();
  Frame** const end = first + record->num_children;
  while (first != end) {
    Frame** last = first;
    while (last != end && (*last)->call == (*first)->call) ++last;
    const CallSpec& call = block.calls[(*first)->call];
    for (size_t i = 0; i < call.args.size(); ++i) {
      TF_RETURN_IF_ERROR(JoinArgument(lane, back, call, i, absl::MakeSpan(first, last)));
    }
    first = last;
  }
  for (int64_t i = 0; i < record->num_children; ++i) {
    if (BackFrame* child = record->children[i]->back) FreeFrame(lane, child);
  }
  return absl::OkStatus();
}

absl::Status BackwardRun::JoinArgument(Lane& lane, BackFrame* back, const CallSpec& call, int arg,
                                       absl::Span<Frame*> children) {
  const bool mapped = call.mode != CallSpec::Mode::kOne && call.mapped[arg];
  if (mapped && call.mode == CallSpec::Mode::kMap) return JoinRows(back, call.args[arg], arg, children);
  for (Frame* child : children) {
    if (child->back == nullptr || IsNone(child->back->gradients[arg])) continue;
    Tensor& gradient = child->back->gradients[arg];
    if (!mapped) {
      Tensor& sum = back->gradients[call.args[arg]];
      if (IsNone(sum)) {
        sum = std::move(gradient);
      } else {
        TF_RETURN_IF_ERROR(AddTo(&sum, gradient));
      }
    } else if (call.tables[arg] >= 0) {
      TF_RETURN_IF_ERROR(log_.AddRow(lane.segment, call.tables[arg], child->table_row, std::move(gradient)));
    }
  }
  return absl::OkStatus();
}

absl::Status BackwardRun::JoinRows(BackFrame* back, int slot, int arg, absl::Span<Frame*> children) {
  const Tensor* reached = nullptr;
  for (Frame* child : children) {
    if (child->back != nullptr && !IsNone(child->back->gradients[arg])) reached = &child->back->gradients[arg];
  }
  if (reached == nullptr) return absl::OkStatus();
  Tensor zeros;
  std::vector<Tensor> rows;
  for (Frame* child : children) {
    const bool none = child->back == nullptr || IsNone(child->back->gradients[arg]);
    if (none && IsNone(zeros)) zeros = Zeros(reached->dtype(), reached->shape());
    rows.push_back(none ? zeros : child->back->gradients[arg]);
  }
  TF_ASSIGN_OR_RETURN(const Tensor stacked, Stack(rows));
  return AddTo(&back->gradients[slot], stacked);
}

}  // namespace recursion
}  // namespace tf_ext
