#include "custom_ops/lite_delegate/policies/plan_memory.h"

#include <algorithm>

namespace tf_ext {
namespace lite {

void PlanMemory::Keep(const Outlook& outlook, const Plan& plan) {
  kept_.clear();
  ranked_ = plan.ranked;
  for (const int item : plan.order) {
    const Item& job = outlook.items()[item];
    const Option& option = outlook.option(item, plan.taken[item]);
    kept_.push_back({job.id, job.unit, option.worker, option.piece, static_cast<int>(kept_.size())});
  }
  std::sort(kept_.begin(), kept_.end(), [](const Kept& a, const Kept& b) { return a.id < b.id; });
}

void PlanMemory::Recall(const Outlook& outlook, bool new_first, Plan* plan) {
  const std::vector<Item>& items = outlook.items();
  plan->ranked = ranked_;
  position_.assign(items.size(), new_first ? -1 : static_cast<int>(kept_.size()));
  for (int item = 0; item < static_cast<int>(items.size()); ++item) {
    const Item& job = items[item];
    const auto kept = std::lower_bound(kept_.begin(), kept_.end(), job.id,
                                       [](const Kept& entry, JobId id) { return entry.id < id; });
    if (kept == kept_.end() || kept->id != job.id) continue;
    position_[item] = kept->position;
    if (kept->unit != job.unit) continue;
    const std::vector<Option>& options = outlook.stage(items[item]).options;
    const auto same = std::find_if(options.begin(), options.end(), [kept](const Option& option) {
      return option.worker == kept->worker && option.piece == kept->piece;
    });
    if (same != options.end()) plan->choice[item] = static_cast<int>(same - options.begin());
  }
  std::sort(plan->order.begin(), plan->order.end(), [&](int a, int b) {
    if (items[a].urgency != items[b].urgency) return items[a].urgency > items[b].urgency;
    return position_[a] != position_[b] ? position_[a] < position_[b] : a < b;
  });
}

}  // namespace lite
}  // namespace tf_ext
