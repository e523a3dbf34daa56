#include "custom_ops/lite_delegate/simulator.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace tf_ext {
namespace lite {
namespace {

// Nanoseconds of the processor that this thread has used: what else runs on the machine does not count.
std::int64_t ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * std::int64_t{1000000000} + time.tv_nsec;
}

// Passes on to a policy and measures how long it thinks.
class Timed : public Policy {
 public:
  Timed(std::unique_ptr<Policy> policy, std::int64_t* calls, std::int64_t* ns)
      : policy_(std::move(policy)), calls_(calls), ns_(ns) {}

  const char* name() const override { return policy_->name(); }
  bool steals() const override { return policy_->steals(); }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    const std::int64_t start = ThreadTime();
    policy_->Decide(snapshot, decisions);
    *ns_ += ThreadTime() - start;
    ++*calls_;
  }

 private:
  std::unique_ptr<Policy> policy_;
  std::int64_t* calls_;
  std::int64_t* ns_;
};

// Splitmix64: the same numbers on every machine, whatever order the runs come in.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Busy {
  bool running = false;
  bool fails = false;
  Run run{};
};

class Simulator {
 public:
  Simulator(const Scenario& scenario, std::unique_ptr<Policy> policy)
      : scenario_(scenario),
        planner_(scenario.workers, std::make_unique<Timed>(std::move(policy), &record_.decisions, &decide_ns_),
                 scenario.queue_limit),
        workers_(scenario.workers),
        slowdowns_(scenario.slowdowns) {
    for (const ModelCosts& costs : scenario.models) planner_.AddModel(costs);
    record_.outcomes.resize(scenario.arrivals.size());
    record_.busy.resize(scenario.workers);
  }

  Record Run() {
    while (NextTime(&now_)) {
      Complete();
      Disturb();
      Arrive();
      planner_.Plan(now_, &ended_);
      Note();
      Start();
    }
    if (record_.decisions > 0) record_.decide_ns = static_cast<double>(decide_ns_) / record_.decisions;
    return std::move(record_);
  }

 private:
  bool NextTime(Micros* time) const {
    Micros next = kNever;
    for (const Busy& worker : workers_) {
      if (worker.running) next = std::min(next, worker.run.end);
    }
    if (arrived_ < scenario_.arrivals.size()) next = std::min(next, scenario_.arrivals[arrived_].time);
    if (disturbed_ < scenario_.disturbances.size()) next = std::min(next, scenario_.disturbances[disturbed_].time);
    *time = std::max(*time, next);
    return next < kNever;
  }

  void Complete() {
    for (int index = 0; index < scenario_.workers; ++index) {
      Busy& worker = workers_[index];
      if (!worker.running || worker.run.end > now_) continue;
      Stop(index, !worker.fails);
      planner_.Finish(index, now_, !worker.fails, &ended_);
    }
  }

  void Stop(int index, bool ok) {
    Busy& worker = workers_[index];
    worker.running = false;
    worker.run.end = now_;
    worker.run.ok = ok;
    record_.busy[index] += now_ - worker.run.begin;
    record_.runs.push_back(worker.run);
  }

  void Disturb() {
    for (; disturbed_ < scenario_.disturbances.size() && scenario_.disturbances[disturbed_].time <= now_; ++disturbed_) {
      const Disturbance& what = scenario_.disturbances[disturbed_];
      switch (what.kind) {
        case Disturbance::kWorkerLost:
          if (workers_[what.target].running) Stop(what.target, false);
          planner_.SetAvailable(what.target, false, now_, &ended_);
          break;
        case Disturbance::kWorkerBack:
          planner_.SetAvailable(what.target, true, now_, &ended_);
          break;
        case Disturbance::kPieceFails:
          workers_[what.target].fails = workers_[what.target].running;
          break;
        case Disturbance::kCancelJob:
          Cancel(what.target);
          break;
        case Disturbance::kThrottle:
          slowdowns_[what.target] = what.factor;
          break;
      }
    }
  }

  void Cancel(int arrival) {
    const auto found = std::find(arrival_of_.begin(), arrival_of_.end(), arrival);
    if (found == arrival_of_.end()) return;
    const JobId id = found - arrival_of_.begin();
    if (planner_.Cancel(id, now_)) ended_.push_back({id, Ending::kCancelled});
  }

  void Arrive() {
    for (; arrived_ < scenario_.arrivals.size() && scenario_.arrivals[arrived_].time <= now_; ++arrived_) {
      const Arrival& arrival = scenario_.arrivals[arrived_];
      if (planner_.Submit(arrival.model, arrival.options, now_) < 0) {
        record_.outcomes[arrived_] = {Outcome::kRefused, Ending::kFailed, -1};
      } else {
        arrival_of_.push_back(static_cast<int>(arrived_));  // ids count from 0
      }
    }
  }

  void Note() {
    for (const Ended& end : ended_) record_.outcomes[arrival_of_[end.job]] = {Outcome::kEnded, end.ending, now_};
    ended_.clear();
  }

  void Start() {
    Assignment assignment;
    for (int index = 0; index < scenario_.workers; ++index) {
      Busy& worker = workers_[index];
      if (worker.running || !planner_.Next(index, now_, &assignment)) continue;
      worker.running = true;
      worker.fails = false;
      const int arrival = arrival_of_[assignment.job];
      worker.run = {arrival, assignment.piece, index, true, now_, now_ + Duration(assignment, arrival)};
    }
  }

  Micros Duration(const Assignment& assignment, int arrival) const {
    const Micros expected = scenario_.models[assignment.model].Expected(assignment.piece, assignment.worker);
    const std::uint64_t bits = Mix(Mix(Mix(scenario_.seed + arrival) + assignment.piece) + assignment.worker);
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
    const double factor = slowdowns_[assignment.worker] * (1 + scenario_.noise * (2 * unit - 1));
    return std::max<Micros>(static_cast<Micros>(static_cast<double>(expected) * factor + 0.5), 0);
  }

  const Scenario& scenario_;
  Record record_;
  std::int64_t decide_ns_ = 0;
  Planner planner_;
  Micros now_ = 0;
  std::vector<Busy> workers_;
  std::vector<double> slowdowns_;
  std::size_t arrived_ = 0;
  std::size_t disturbed_ = 0;
  std::vector<int> arrival_of_;  // by job
  std::vector<Ended> ended_;
};

}  // namespace

Record Simulate(const Scenario& scenario, std::unique_ptr<Policy> policy) {
  return Simulator(scenario, std::move(policy)).Run();
}

}  // namespace lite
}  // namespace tf_ext
