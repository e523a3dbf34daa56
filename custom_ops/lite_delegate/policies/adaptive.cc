// Our own policy. At each event it makes a few plans over all waiting jobs, improves the best of them a little, starts what that
// one starts at once, and keeps the rest for the next event to improve further.
//
// What is best: with deadlines, the fewest jobs late, then the least risk. Without, the sum of the latencies and the makespan,
// each over the least that any plan has. While requests keep coming the end of those that wait is not the end of anything, and
// latency counts most; once they have stopped, a plan that is over later than need be has to be much better to be taken.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "custom_ops/lite_delegate/policies/candidates.h"
#include "custom_ops/lite_delegate/policies/common.h"
#include "custom_ops/lite_delegate/policies/plan_memory.h"

namespace tf_ext {
namespace lite {
namespace {

// Tuned on the simulated workloads with seeds 0-999; see tf_ext/lite/workloads.py.
constexpr double kMakespanWeight = 0.75;
constexpr double kOverrunWeight = 3;  // more of the makespan once no requests are expected
constexpr double kLateWeight = 1e3;
constexpr double kRiskWeight = 10;
constexpr double kLatencyWeightWithDeadlines = 3;
constexpr double kSilence = 3;  // requests have stopped when this many usual gaps pass without one
constexpr double kGapMemory = 0.8;
constexpr int kShortestWithin = 4;
// What bounds the time of a decision: no more plans are made after so much effort, nor after so many tries.
constexpr int kMostEffort = 2500;
constexpr int kMostTries = 100;
// More jobs than this are looked at in parts.
constexpr int kMostJobs = 64;
// A piece is queued behind one that is about to end: a worker would stand still about as long as a decision takes.
constexpr Micros kAhead = 100;

class Adaptive : public Policy {
 public:
  Adaptive() : candidates_(&outlook_) {}

  const char* name() const override { return "adaptive"; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    Watch(snapshot);
    outlook_.Look(snapshot);
    DropHopeless(snapshot, decisions);
    outlook_.Trim(kMostJobs);
    outlook_.set_exact(deadlines_);
    if (outlook_.items().empty() || decisions->size() == snapshot.jobs.size() || !AnyOpen(snapshot)) return;
    MakePlan(snapshot);
    memory_.Keep(outlook_, plan_);
    Start(snapshot, decisions);
  }

 private:
  // The least that any plan has.
  struct Least {
    double latency;
    double makespan;
  };

  void Watch(const Snapshot& snapshot) {
    for (const JobView& job : snapshot.jobs) {
      if (job.id <= last_id_) continue;
      if (last_id_ >= 0 && job.submitted > last_arrival_) {
        const double gap = static_cast<double>(job.submitted - last_arrival_);
        gap_ = gap_ < 0 ? gap : kGapMemory * gap_ + (1 - kGapMemory) * gap;
      }
      last_id_ = job.id;
      last_arrival_ = job.submitted;
    }
    coming_ = gap_ >= 0 && static_cast<double>(snapshot.now - last_arrival_) <= kSilence * gap_;
  }

  void DropHopeless(const Snapshot& snapshot, std::vector<Decision>* decisions) {
    const std::vector<Item>& items = outlook_.items();
    deadlines_ = false;
    for (int item = 0; item < static_cast<int>(items.size()); ++item) {
      if (items[item].deadline >= kNever) continue;
      deadlines_ = true;
      if (items[item].job < 0 || snapshot.now + items[item].remaining <= items[item].deadline) continue;
      decisions->push_back({items[item].job, kDrop, 0});
      outlook_.Remove(item);
    }
  }

  static bool IsOpen(const WorkerView& worker, Micros now) {
    return worker.available && worker.queued == 0 && worker.free_at <= now + kAhead;
  }

  static bool AnyOpen(const Snapshot& snapshot) {
    return std::any_of(snapshot.workers.begin(), snapshot.workers.end(),
                       [&snapshot](const WorkerView& worker) { return IsOpen(worker, snapshot.now); });
  }

  double Score(const Plan& plan, const Least& least, Micros now) const {
    const double latency = (plan.latency + 1) / least.latency;
    if (deadlines_) return kLateWeight * plan.late + kRiskWeight * plan.risk + kLatencyWeightWithDeadlines * latency;
    const double makespan = static_cast<double>(plan.makespan - now + 1) / least.makespan;
    return latency + (kMakespanWeight + (coming_ ? 0 : kOverrunWeight)) * makespan;
  }

  void MakePlan(const Snapshot& snapshot) {
    candidates_.Clear(snapshot.now);
    candidates_.AddForLatency();
    for (const bool new_first : {true, false}) {
      if (memory_.empty()) continue;
      Plan* plan = candidates_.New();
      memory_.Recall(outlook_, new_first, plan);
      outlook_.Place(plan);
    }
    if (deadlines_) candidates_.AddForDeadlines();
    if (outlook_.effort() < kMostEffort) candidates_.AddForMakespan();
    if (outlook_.effort() < kMostEffort) candidates_.AddShortestWithinMakespan(kShortestWithin);
    const Least least = FindLeast(snapshot.now);
    int best = 0;
    for (int index = 1; index < candidates_.size(); ++index) {
      if (Score(candidates_[index], least, snapshot.now) < Score(candidates_[best], least, snapshot.now)) best = index;
    }
    plan_ = candidates_[best];
    if (!deadlines_) Improve(least, snapshot.now);
  }

  Least FindLeast(Micros now) {
    Least least{candidates_[0].latency, static_cast<double>(candidates_[0].makespan)};
    for (int index = 1; index < candidates_.size(); ++index) {
      least.latency = std::min(least.latency, candidates_[index].latency);
      least.makespan = std::min(least.makespan, static_cast<double>(candidates_[index].makespan));
    }
    return {least.latency + 1, least.makespan - static_cast<double>(now) + 1};
  }

  // Changes the plan at random places and keeps what makes it better.
  void Improve(const Least& least, Micros now) {
    double score = Score(plan_, least, now);
    for (int tries = 0; tries < kMostTries && outlook_.effort() < kMostEffort; ++tries) {
      if (!Change()) continue;
      outlook_.Place(&trial_);
      const double found = Score(trial_, least, now);
      if (found >= score) continue;
      score = found;
      std::swap(plan_, trial_);
    }
  }

  // Makes trial_ out of plan_: an item starts elsewhere, or comes at another time.
  bool Change() {
    const std::vector<Item>& items = outlook_.items();
    const int from = Draw(static_cast<int>(items.size()));
    const int item = plan_.order[from];
    const int options = static_cast<int>(outlook_.stage(items[item]).options.size());
    const int kind = Draw(4);
    const int to = Draw(static_cast<int>(items.size()));
    const bool moves = kind >= 2 || options == 1;
    if (moves && (to == from || items[plan_.order[to]].urgency != items[item].urgency)) return false;
    trial_.order = plan_.order;
    trial_.choice = plan_.taken;
    trial_.ranked = plan_.ranked;
    if (!moves) {
      trial_.choice[item] = (plan_.taken[item] + 1 + Draw(options - 1)) % options;
      return true;
    }
    trial_.order.erase(trial_.order.begin() + from);
    trial_.order.insert(trial_.order.begin() + to, item);
    if (kind == 3) trial_.choice[item] = -1;
    return true;
  }

  // The same numbers in every run, so that the same requests lead to the same decisions.
  int Draw(int limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state_ >> 33) % static_cast<std::uint64_t>(limit));
  }

  void Start(const Snapshot& snapshot, std::vector<Decision>* decisions) {
    const std::vector<Item>& items = outlook_.items();
    started_.assign(snapshot.workers.size(), 0);
    for (const int item : plan_.order) {
      const Option& option = outlook_.option(item, plan_.taken[item]);
      if (items[item].job < 0 || started_[option.worker] || !IsOpen(snapshot.workers[option.worker], snapshot.now)) continue;
      // Where time counts to the letter, the worker waits for what comes.
      const Micros free_at = std::max(snapshot.now, snapshot.workers[option.worker].free_at);
      if (deadlines_ && plan_.starts[item] > free_at) continue;
      // It would take time from jobs that make it.
      if (plan_.ends[item] > items[item].deadline) continue;
      started_[option.worker] = 1;
      decisions->push_back({items[item].job, option.worker, option.piece});
    }
  }

  Outlook outlook_;
  Candidates candidates_;
  PlanMemory memory_;
  Plan plan_;
  Plan trial_;
  bool deadlines_ = false;
  bool coming_ = false;  // whether requests keep coming
  JobId last_id_ = -1;
  Micros last_arrival_ = 0;
  double gap_ = -1;  // usual time between arrivals; negative: not known
  std::uint64_t state_ = 1;
  std::vector<char> started_;
};

}  // namespace

std::unique_ptr<Policy> MakeAdaptive() { return std::make_unique<Adaptive>(); }

}  // namespace lite
}  // namespace tf_ext
