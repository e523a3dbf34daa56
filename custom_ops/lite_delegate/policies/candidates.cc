#include "custom_ops/lite_delegate/policies/candidates.h"

#include <algorithm>
#include <numeric>

namespace tf_ext {
namespace lite {
namespace {

// More plans than any decision makes: they must not move while one is made from another.
constexpr int kMostPlans = 32;
// Where many jobs wait, each plan takes long, and the later ones are left out.
constexpr int kMostEffort = 2500;
constexpr int kMostEffortGivingUp = 6000;
// From the least sum of latencies to the least makespan; the more useful ones first.
constexpr double kEvenness[] = {0, 1, 1e6, 0.3, 3};

}  // namespace

void Candidates::Clear(Micros now) {
  now_ = now;
  used_ = 0;
  plans_.resize(kMostPlans);
  entries_.resize(outlook_->free().size());
}

Plan* Candidates::New() {
  Plan* plan = &plans_[std::min(used_, kMostPlans - 1)];
  used_ = std::min(used_ + 1, kMostPlans);
  const std::size_t count = outlook_->items().size();
  plan->order.resize(count);
  std::iota(plan->order.begin(), plan->order.end(), 0);
  plan->choice.assign(count, -1);
  plan->ranked = false;
  return plan;
}

template <typename Key>
Plan* Candidates::Sorted(Key key) {
  const std::vector<Item>& items = outlook_->items();
  Plan* plan = New();
  key_.resize(items.size());
  for (std::size_t item = 0; item < items.size(); ++item) key_[item] = key(items[item]);
  // Items are numbered from the most urgent and oldest on.
  std::sort(plan->order.begin(), plan->order.end(), [&](int a, int b) {
    if (items[a].urgency != items[b].urgency) return items[a].urgency > items[b].urgency;
    return key_[a] != key_[b] ? key_[a] < key_[b] : a < b;
  });
  outlook_->Place(plan);
  return plan;
}

void Candidates::AddForLatency() {
  outlook_->Place(New());
  Sorted([](const Item& item) { return item.remaining; });
}

void Candidates::AddForMakespan() {
  const Plan* longest = Sorted([](const Item& item) { return -item.remaining; });
  Plan* ranked = New();
  ranked->order = longest->order;
  ranked->ranked = true;
  outlook_->Place(ranked);
  for (const double evenness : kEvenness) {
    if (outlook_->effort() < kMostEffort) AddSpread(longest->order, evenness);
  }
}

void Candidates::AddSpread(const std::vector<int>& longest_first, double evenness) {
  const std::vector<Item>& items = outlook_->items();
  Plan* plan = New();
  outlook_->Spread(longest_first, evenness, &plan->choice);
  key_.resize(items.size());
  for (const int item : plan->order) key_[item] = outlook_->option(item, plan->choice[item]).cost;
  std::sort(plan->order.begin(), plan->order.end(), [&](int a, int b) {
    if (items[a].urgency != items[b].urgency) return items[a].urgency > items[b].urgency;
    return key_[a] != key_[b] ? key_[a] < key_[b] : a < b;
  });
  outlook_->Place(plan);
}

void Candidates::AddShortestWithinMakespan(int most) {
  scratch_.resize(used_);
  std::iota(scratch_.begin(), scratch_.end(), 0);
  std::stable_sort(scratch_.begin(), scratch_.end(),
                   [this](int a, int b) { return plans_[a].makespan < plans_[b].makespan; });
  if (static_cast<int>(scratch_.size()) > most) scratch_.resize(most);
  const std::vector<int> chosen = scratch_;
  for (const int index : chosen) AddShortestWithin(plans_[index], plans_[chosen[0]].makespan);
}

void Candidates::AddShortestWithin(const Plan& from, Micros makespan) {
  const std::vector<Item>& items = outlook_->items();
  Plan* plan = New();
  plan->choice = from.taken;
  std::vector<Micros> load = outlook_->free();
  for (auto& entries : entries_) entries.clear();
  for (const int item : from.order) {
    const Option& option = outlook_->option(item, from.taken[item]);
    entries_[option.worker].push_back({item, option.cost, makespan - option.rest, false});
    load[option.worker] += option.cost;
  }
  key_.resize(items.size());
  for (std::size_t worker = 0; worker < entries_.size(); ++worker) SequenceBackwards(&entries_[worker], load[worker]);
  std::sort(plan->order.begin(), plan->order.end(), [&](int a, int b) {
    if (items[a].urgency != items[b].urgency) return items[a].urgency > items[b].urgency;
    return key_[a] != key_[b] ? key_[a] < key_[b] : a < b;
  });
  outlook_->Place(plan);
}

void Candidates::SequenceBackwards(std::vector<Entry>* entries, Micros end) {
  const std::vector<Item>& items = outlook_->items();
  for (std::size_t left = entries->size(); left > 0; --left) {
    Entry* last = nullptr;
    for (Entry& entry : *entries) {
      if (entry.placed) continue;
      bool later = last == nullptr;
      if (!later && items[entry.item].urgency != items[last->item].urgency) {
        later = items[entry.item].urgency < items[last->item].urgency;
      } else if (!later) {
        const bool fits = entry.due >= end, last_fits = last->due >= end;
        later = fits != last_fits ? fits : fits ? entry.cost > last->cost : entry.due > last->due;
      }
      if (later) last = &entry;
    }
    last->placed = true;
    end -= last->cost;
    key_[last->item] = end;
  }
}

void Candidates::AddForDeadlines() {
  const Plan* deadline = Sorted([](const Item& item) { return item.deadline; });
  const Plan* slack = Sorted([](const Item& item) { return item.deadline - item.remaining; });
  AddGivingUp(*deadline);
  AddGivingUp(*slack);
}

void Candidates::AddGivingUp(const Plan& from) {
  if (from.late == 0) return;
  const std::vector<Item>& items = outlook_->items();
  Plan* plan = New();
  plan->order = from.order;
  std::vector<int> given_up;
  outlook_->Place(plan);
  while (plan->late > 0 && plan->order.size() > 1 && outlook_->effort() < kMostEffortGivingUp) {
    // Of those up to the first late one, the largest takes the most time from the others.
    std::size_t largest = 0;
    for (std::size_t at = 0; at < plan->order.size(); ++at) {
      const int item = plan->order[at];
      if (items[item].remaining > items[plan->order[largest]].remaining) largest = at;
      if (plan->ends[item] > items[item].deadline) break;
    }
    given_up.push_back(plan->order[largest]);
    plan->order.erase(plan->order.begin() + largest);
    outlook_->Place(plan);
  }
  plan->order.insert(plan->order.end(), given_up.begin(), given_up.end());
  outlook_->Place(plan);
}

}  // namespace lite
}  // namespace tf_ext
