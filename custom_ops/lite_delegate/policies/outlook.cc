#include "custom_ops/lite_delegate/policies/outlook.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

// Times are expectations: a job that is to end within this part of its time before the deadline may well be late.
// To book a place takes about as long as to look at so many; to the letter, three times that.
constexpr int kBooking = 4;
constexpr double kMargin = 0.3;

double Risk(Micros deadline, Micros end, Micros now) {
  const double margin = static_cast<double>(deadline - end) / static_cast<double>(end - now + 1);
  return margin >= kMargin ? 0 : 1 - margin / kMargin;
}

}  // namespace

void Line::Book(Micros start, Micros cost) {
  if (start >= tail) {
    if (start > tail && count < kGaps) gaps[count++] = {tail, start};
    tail = start + cost;
    return;
  }
  int index = 0;
  while (start < gaps[index].begin || start + cost > gaps[index].end) ++index;
  const Gap before{gaps[index].begin, start}, after{start + cost, gaps[index].end};
  // What is left on both sides; the larger part alone where there is no room.
  gaps[index] = before.end - before.begin > after.end - after.begin ? before : after;
  const Gap other = before.end - before.begin > after.end - after.begin ? after : before;
  if (other.end > other.begin && count < kGaps) gaps[count++] = other;
  if (gaps[index].end == gaps[index].begin) gaps[index] = gaps[--count];
}

void Outlook::Look(const Snapshot& snapshot) {
  now_ = snapshot.now;
  free_.clear();
  for (const WorkerView& worker : snapshot.workers) free_.push_back(std::max(worker.free_at, now_));
  used_ = 0;
  effort_ = 0;
  items_.clear();
  for (int index = 0; index < static_cast<int>(snapshot.jobs.size()); ++index) {
    AddItem(snapshot, snapshot.jobs[index], index, now_);
  }
  for (const ComingView& coming : snapshot.coming) AddItem(snapshot, coming.job, -1, std::max(coming.ready, now_));
}

void Outlook::AddItem(const Snapshot& snapshot, const JobView& job, int index, Micros ready) {
  const int stage = FindStage(snapshot, job, job.unit, job.excluded);
  const Micros remaining = stages_[stage].remaining;
  if (remaining >= kNever) return;
  items_.push_back(
      {index, job.id, job.unit, ready, stage, Urgency(job, now_), remaining, job.submitted, job.deadline});
}

void Outlook::Trim(int most) {
  items_.erase(std::remove_if(items_.begin(), items_.end(), [](const Item& item) { return item.stage < 0; }), items_.end());
  const auto before = [](const Item& a, const Item& b) {
    return a.urgency != b.urgency ? a.urgency > b.urgency : a.id < b.id;
  };
  if (static_cast<int>(items_.size()) > most) {
    std::nth_element(items_.begin(), items_.begin() + most, items_.end(), before);
    items_.resize(most);
  }
  std::sort(items_.begin(), items_.end(), before);
}

int Outlook::FindStage(const Snapshot& snapshot, const JobView& like, int unit, std::uint64_t excluded) {
  for (int index = 0; index < used_; ++index) {
    const Stage& stage = stages_[index];
    if (stage.model == like.model && stage.unit == unit && stage.pinned == like.pinned && stage.excluded == excluded) {
      return index;
    }
  }
  const int index = used_++;
  if (used_ > static_cast<int>(stages_.size())) stages_.emplace_back();
  Stage& stage = stages_[index];
  stage.model = like.model;
  stage.unit = unit;
  stage.pinned = like.pinned;
  stage.excluded = excluded;
  FillStage(snapshot, like, index);
  return index;
}

void Outlook::FillStage(const Snapshot& snapshot, const JobView& like, int index) {
  JobView job = like;
  job.excluded = stages_[index].excluded;
  const ModelCosts& costs = *snapshot.models[like.model];
  // Stages move when one is added, so the options are filled aside.
  std::vector<Option> options = std::move(stages_[index].options);
  options.clear();
  Micros remaining = kNever;
  for (const int piece : costs.StartingAt(stages_[index].unit)) {
    const int end = costs.pieces()[piece].end;
    const Micros rest = Remaining(snapshot, job, end);
    int next = end == costs.units() ? -1 : -2;
    for (int worker = 0; worker < costs.workers(); ++worker) {
      const Micros cost = snapshot.Expected(job, piece, worker);
      if (cost >= kNever) continue;
      if (next == -2) next = FindStage(snapshot, like, end, 0);
      options.push_back({worker, piece, next, cost, rest});
      remaining = std::min(remaining, cost + rest);
    }
  }
  // Those that are soon at the end by themselves come first, so that few others need a closer look.
  std::stable_sort(options.begin(), options.end(),
                   [](const Option& a, const Option& b) { return a.cost + a.rest < b.cost + b.rest; });
  stages_[index].options = std::move(options);
  stages_[index].remaining = remaining;
}

int Outlook::Best(const std::vector<Option>& options, Micros ready) {
  const int count = static_cast<int>(options.size());
  effort_ += count;
  Micros least = std::numeric_limits<Micros>::max();
  int best = 0;
  for (int index = 0; index < count; ++index) {
    const Option& option = options[index];
    const Micros behind = option.cost + option.rest;
    // Most are out of the question wherever they could begin.
    if (ready + behind >= least) continue;
    const Micros total = lines_[option.worker].Start(ready, option.cost) + behind;
    if (total < least) {
      least = total;
      best = index;
    }
  }
  return best;
}

Micros Outlook::Book(const Option& option, Micros ready) {
  effort_ += exact_ ? 3 * kBooking : kBooking;
  Line& line = lines_[option.worker];
  const Micros start = line.Start(ready, option.cost);
  if (exact_) {
    line.Book(start, option.cost);
  } else {
    line.tail += option.cost;
  }
  return start + option.cost;
}

void Outlook::Place(Plan* plan) {
  lines_.clear();
  for (const Micros free : free_) lines_.push_back({free, 0, {}});
  plan->starts.assign(items_.size(), now_);
  plan->taken.assign(items_.size(), -1);
  plan->ends.assign(items_.size(), now_);
  plan->late = 0;
  plan->risk = 0;
  plan->latency = 0;
  plan->makespan = now_;
  if (plan->ranked) {
    PlaceByRank(plan);
  } else {
    PlaceInOrder(plan);
  }
}

void Outlook::PlaceInOrder(Plan* plan) {
  for (const int item : plan->order) {
    int stage = items_[item].stage;
    Micros ready = items_[item].ready;
    bool first = true;
    int choice = plan->choice[item] >= 0 ? plan->choice[item] : Best(stages_[stage].options, ready);
    plan->taken[item] = choice;
    for (;;) {
      const Option& option = stages_[stage].options[choice];
      ready = Book(option, ready);
      if (first) plan->starts[item] = ready - option.cost;
      first = false;
      stage = option.next;
      if (stage < 0) break;
      choice = Best(stages_[stage].options, ready);
    }
    NoteEnd(item, ready, plan);
  }
}

void Outlook::PlaceByRank(Plan* plan) {
  const auto later = [](const Ranked& a, const Ranked& b) {
    if (a.urgency != b.urgency) return a.urgency < b.urgency;
    return a.rank != b.rank ? a.rank < b.rank : a.item > b.item;
  };
  heap_.clear();
  for (const int item : plan->order) {
    const Item& it = items_[item];
    heap_.push_back({it.urgency, it.remaining, item, it.stage, it.ready});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Ranked& top = heap_.back();
    const std::vector<Option>& options = stages_[top.stage].options;
    const bool first = plan->taken[top.item] < 0;
    const int choice = first && plan->choice[top.item] >= 0 ? plan->choice[top.item] : Best(options, top.ready);
    if (first) plan->taken[top.item] = choice;
    const Option& option = options[choice];
    top.ready = Book(option, top.ready);
    if (first) plan->starts[top.item] = top.ready - option.cost;
    top.rank = option.rest;
    top.stage = option.next;
    if (option.next >= 0) {
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    NoteEnd(top.item, top.ready, plan);
    heap_.pop_back();
  }
}

void Outlook::NoteEnd(int item, Micros end, Plan* plan) const {
  const Item& it = items_[item];
  plan->ends[item] = end;
  plan->latency += static_cast<double>(end - it.submitted);
  plan->makespan = std::max(plan->makespan, end);
  if (it.deadline >= kNever) return;
  if (end > it.deadline) {
    ++plan->late;
  } else {
    plan->risk += Risk(it.deadline, end, now_);
  }
}

void Outlook::Spread(const std::vector<int>& order, double evenness, std::vector<int>* choice) {
  load_ = free_;
  count_.assign(free_.size(), 0);
  choice->assign(items_.size(), -1);
  for (const int item : order) {
    int stage = items_[item].stage;
    while (stage >= 0) {
      const std::vector<Option>& options = stages_[stage].options;
      double least = std::numeric_limits<double>::infinity();
      int best = 0;
      for (int index = 0; index < static_cast<int>(options.size()); ++index) {
        const Option& option = options[index];
        // Longest first, so that a piece with k others behind it on its worker (each of them longer) makes all of them wait.
        const Micros waits = free_[option.worker] - now_ + (count_[option.worker] + 1) * option.cost;
        const Micros ends = load_[option.worker] - now_ + option.cost;
        const double total = static_cast<double>(waits + option.rest) + evenness * static_cast<double>(ends + option.rest);
        if (total < least) {
          least = total;
          best = index;
        }
      }
      const Option& option = options[best];
      if ((*choice)[item] < 0) (*choice)[item] = best;
      load_[option.worker] += option.cost;
      ++count_[option.worker];
      stage = option.next;
    }
  }
}

}  // namespace lite
}  // namespace tf_ext
