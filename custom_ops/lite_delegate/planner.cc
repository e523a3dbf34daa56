#include "custom_ops/lite_delegate/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tf_ext {
namespace lite {
namespace {

// The slowdown moves by this part of the difference: it follows a change of the clock rate within some ten pieces.
constexpr double kSlowdownRate = 0.25;
constexpr double kMostSlowdown = 16;
// Of shorter pieces the clock and the threads' hand-over tell more than the processor.
constexpr Micros kTooShort = 50;
// Of a worker that has run nothing the slowdown is forgotten by half in this time: it cools down, and if it seemed too slow for
// everything it must be tried again.
constexpr Micros kForgotten = 1000000;
// What a model is expected to take is only known if it runs from time to time: after so long without, nothing else to do and all
// its jobs about to be dropped, one is run after all.
constexpr Micros kStale = 1000000;

}  // namespace

struct Planner::Worker {
  bool available = true;
  bool running = false;
  Queued current{};
  Micros begun = 0;
  std::deque<Queued> queue;
  Micros ended = 0;     // its last piece
  double slowdown = 1;  // when that ended
};

Planner::Planner(int workers, std::unique_ptr<Policy> policy, int queue_limit)
    : policy_(std::move(policy)), queue_limit_(queue_limit), worker_views_(workers) {
  for (int worker = 0; worker < workers; ++worker) workers_.push_back(std::make_unique<Worker>());
}

Planner::~Planner() = default;

void Planner::SetPolicy(std::unique_ptr<Policy> policy) { policy_ = std::move(policy); }

int Planner::AddModel(ModelCosts costs) {
  models_.push_back(std::make_unique<ModelCosts>(std::move(costs)));
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    if (!workers_[worker]->available) models_.back()->SetAvailable(worker, false);
  }
  model_views_.push_back(models_.back().get());
  last_ran_.push_back(-1);
  return static_cast<int>(models_.size()) - 1;
}

JobId Planner::Submit(int model, const JobOptions& options, Micros now) {
  if (waiting() + queued() >= queue_limit_) return -1;
  if (last_ran_[model] < 0) last_ran_[model] = now;
  const JobId id = next_id_++;
  waiting_.emplace(id, Job{id, model, 0, options, now, 0, false});
  unchecked_ = true;
  return id;
}

bool Planner::Cancel(JobId job, Micros now) {
  if (waiting_.erase(job) > 0) return true;
  for (auto& worker : workers_) {
    if (worker->running && worker->current.job.id == job) {
      worker->current.job.cancelled = true;
      return false;
    }
    auto& queue = worker->queue;
    const auto found = std::find_if(queue.begin(), queue.end(), [job](const Queued& q) { return q.job.id == job; });
    if (found != queue.end()) {
      queue.erase(found);
      return true;
    }
  }
  return false;
}

bool Planner::Plan(Micros now, std::vector<Ended>* ended) {
  EndHopeless(ended);
  if (waiting_.empty()) return false;
  MakeViews(now);
  const Snapshot snapshot{now, job_views_, worker_views_, model_views_, coming_views_};
  decisions_.clear();
  policy_->Decide(snapshot, &decisions_);
  bool assigned = Apply(snapshot, ended);
  // Nothing would ever wake a policy that lets all workers stand still.
  if (!assigned && !waiting_.empty() && Idle()) assigned = Rescue(snapshot);
  return assigned;
}

bool Planner::Next(int worker, Micros now, Assignment* assignment) {
  Worker& self = *workers_[worker];
  if (!self.available || self.running) return false;
  if (self.queue.empty() && !(policy_->steals() && Steal(worker, now))) return false;
  self.current = std::move(self.queue.front());
  self.queue.pop_front();
  self.running = true;
  self.begun = now;
  *assignment = {self.current.job.id, self.current.job.model, self.current.piece, worker};
  return true;
}

void Planner::Began(int worker, Micros now) { workers_[worker]->begun = now; }

void Planner::Finish(int worker, Micros now, bool ok, std::vector<Ended>* ended) {
  Worker& self = *workers_[worker];
  if (!self.running) return;
  self.running = false;
  Job job = std::move(self.current.job);
  ModelCosts& costs = *models_[job.model];
  const Micros expected = costs.Expected(self.current.piece, worker);
  const Micros took = now - self.begun;
  if (ok && expected >= kTooShort && expected < kNever) {
    const double ratio = std::min(static_cast<double>(took) / static_cast<double>(expected), kMostSlowdown);
    const double before = SlowdownAt(self, self.begun);
    self.slowdown = before + kSlowdownRate * (ratio - before);
    self.ended = now;
  }
  last_ran_[job.model] = now;
  if (ok) costs.Observe(self.current.piece, worker, static_cast<Micros>(took / std::max(self.slowdown, 1 / kMostSlowdown)));
  if (!ok && !job.cancelled) {
    job.excluded |= std::uint64_t{1} << worker;
    TryElsewhere(job, ended);
    return;
  }
  if (ok) job.unit = costs.pieces()[self.current.piece].end;
  job.excluded = 0;
  if (job.unit == costs.units()) {
    ended->push_back({job.id, Ending::kDone});
  } else if (job.cancelled) {
    ended->push_back({job.id, Ending::kCancelled});
  } else {
    TryElsewhere(job, ended);
  }
}

void Planner::Refuse(int worker, std::vector<Ended>* ended) {
  Worker& self = *workers_[worker];
  if (!self.running) return;
  self.running = false;
  const Queued refused = std::move(self.current);
  models_[refused.job.model]->Forbid(refused.piece, worker);
  unchecked_ = true;
  std::deque<Queued> queue;
  queue.swap(self.queue);
  for (Queued& queued : queue) {
    if (queued.job.model == refused.job.model && queued.piece == refused.piece) {
      TryElsewhere(queued.job, ended);
    } else {
      self.queue.push_back(std::move(queued));
    }
  }
  if (refused.job.cancelled) {
    ended->push_back({refused.job.id, Ending::kCancelled});
  } else {
    TryElsewhere(refused.job, ended);
  }
  EndHopeless(ended);
}

void Planner::SetAvailable(int worker, bool available, Micros now, std::vector<Ended>* ended) {
  Worker& self = *workers_[worker];
  if (self.available == available) return;
  self.available = available;
  for (auto& model : models_) model->SetAvailable(worker, available);
  unchecked_ = true;
  if (available) {
    self.slowdown = 1;
    return;
  }
  if (self.running) Finish(worker, now, false, ended);
  std::deque<Queued> queue;
  queue.swap(self.queue);
  for (Queued& queued : queue) TryElsewhere(queued.job, ended);
  EndHopeless(ended);
}

int Planner::running() const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [](const auto& w) { return w->running; }));
}

int Planner::queued() const {
  std::size_t count = 0;
  for (const auto& worker : workers_) count += worker->queue.size();
  return static_cast<int>(count);
}

double Planner::slowdown(int worker) const { return workers_[worker]->slowdown; }

double Planner::SlowdownAt(const Worker& worker, Micros now) {
  if (worker.running || now <= worker.ended || worker.slowdown == 1) return worker.slowdown;
  return 1 + (worker.slowdown - 1) * std::exp2(-static_cast<double>(now - worker.ended) / kForgotten);
}

JobView Planner::View(const Job& job) const {
  return {job.id,        job.model,     job.unit,
          job.options.priority, job.options.pinned, job.submitted,
          job.options.deadline, job.excluded};
}

bool Planner::CanEnd(const Job& job) const {
  const ModelCosts& costs = *models_[job.model];
  const int pinned = job.options.pinned;
  if (pinned >= static_cast<int>(workers_.size())) return false;
  if ((pinned < 0 ? costs.Remaining(job.unit) : costs.RemainingOn(job.unit, pinned)) >= kNever) return false;
  if (job.excluded == 0) return true;
  const JobView view = View(job);
  for (const int piece : costs.StartingAt(job.unit)) {
    const int end = costs.pieces()[piece].end;
    if ((pinned < 0 ? costs.Remaining(end) : costs.RemainingOn(end, pinned)) >= kNever) continue;
    for (int worker = 0; worker < costs.workers(); ++worker) {
      if (view.MayRunOn(worker) && costs.Expected(piece, worker) < kNever) return true;
    }
  }
  return false;
}

Micros Planner::Cost(const Job& job, int piece, int worker) const {
  const Micros plain = models_[job.model]->Expected(piece, worker);
  return plain >= kNever ? kNever : static_cast<Micros>(plain * workers_[worker]->slowdown);
}

Micros Planner::CurrentEnd(const Worker& worker, int index, Micros now) const {
  const Micros cost = Cost(worker.current.job, worker.current.piece, index);
  // What takes longer than expected is taken to end soon, not at once.
  return worker.begun + cost > now ? worker.begun + cost : now + 1 + cost / 8;
}

Micros Planner::FreeAt(const Worker& worker, int index, Micros now) const {
  Micros free_at = worker.running ? CurrentEnd(worker, index, now) : now;
  for (const Queued& queued : worker.queue) free_at += Cost(queued.job, queued.piece, index);
  return free_at;
}

void Planner::EndHopeless(std::vector<Ended>* ended) {
  if (!unchecked_) return;
  unchecked_ = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (CanEnd(it->second)) {
      ++it;
    } else {
      ended->push_back({it->first, Ending::kFailed});
      it = waiting_.erase(it);
    }
  }
}

void Planner::MakeViews(Micros now) {
  job_views_.clear();
  for (const auto& entry : waiting_) job_views_.push_back(View(entry.second));
  coming_views_.clear();
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index) {
    const Worker& worker = *workers_[index];
    Micros time = now;
    if (worker.running) {
      time = CurrentEnd(worker, index, now);
      ViewComing(worker.current, time);
    }
    for (const Queued& queued : worker.queue) {
      time += Cost(queued.job, queued.piece, index);
      ViewComing(queued, time);
    }
    worker_views_[index] = {worker.available, static_cast<int>(worker.queue.size()), time, SlowdownAt(worker, now)};
  }
}

void Planner::ViewComing(const Queued& queued, Micros ready) {
  const ModelCosts& costs = *models_[queued.job.model];
  const int end = costs.pieces()[queued.piece].end;
  if (end == costs.units() || queued.job.cancelled) return;
  coming_views_.push_back({View(queued.job), ready});
  coming_views_.back().job.unit = end;
  coming_views_.back().job.excluded = 0;
}

bool Planner::Valid(const Snapshot& snapshot, const Decision& decision) const {
  if (decision.job < 0 || decision.job >= static_cast<int>(snapshot.jobs.size()) || decided_[decision.job]) return false;
  if (decision.worker == kDrop) return true;
  if (decision.worker < 0 || decision.worker >= static_cast<int>(workers_.size())) return false;
  const JobView& job = snapshot.jobs[decision.job];
  const ModelCosts& costs = *models_[job.model];
  if (decision.piece < 0 || decision.piece >= static_cast<int>(costs.pieces().size())) return false;
  return costs.pieces()[decision.piece].begin == job.unit && snapshot.Expected(job, decision.piece, decision.worker) < kNever;
}

bool Planner::Apply(const Snapshot& snapshot, std::vector<Ended>* ended) {
  bool assigned = false;
  decided_.assign(snapshot.jobs.size(), 0);
  for (const Decision& decision : decisions_) {
    if (!Valid(snapshot, decision)) {
      ++refused_;
      continue;
    }
    decided_[decision.job] = 1;
    const JobId id = snapshot.jobs[decision.job].id;
    if (decision.worker == kDrop) {
      if (Idle() && snapshot.now - last_ran_[snapshot.jobs[decision.job].model] > kStale) continue;
      waiting_.erase(id);
      ended->push_back({id, Ending::kDropped});
    } else {
      Enqueue(id, decision.piece, decision.worker);
      assigned = true;
    }
  }
  return assigned;
}

bool Planner::Idle() const { return running() == 0 && queued() == 0; }

bool Planner::Rescue(const Snapshot& snapshot) {
  // The oldest of the highest priority that is still here, to where it ends first; all workers are idle.
  const JobView* oldest = nullptr;
  for (const JobView& job : snapshot.jobs) {
    if (waiting_.count(job.id) > 0 && (oldest == nullptr || job.priority > oldest->priority)) oldest = &job;
  }
  const ModelCosts& costs = *models_[oldest->model];
  Micros least = kNever;
  Decision best{};
  for (const int piece : costs.StartingAt(oldest->unit)) {
    for (int worker = 0; worker < costs.workers(); ++worker) {
      const Micros cost = snapshot.Expected(*oldest, piece, worker);
      if (cost >= kNever) continue;
      const Micros whole = cost + costs.Remaining(costs.pieces()[piece].end);
      if (whole < least) {
        least = whole;
        best = {0, worker, piece};
      }
    }
  }
  if (least >= kNever) return false;
  Enqueue(oldest->id, best.piece, best.worker);
  return true;
}

void Planner::Enqueue(JobId id, int piece, int worker) {
  const auto found = waiting_.find(id);
  auto& queue = workers_[worker]->queue;
  const int priority = found->second.options.priority;
  // Behind all of its own priority.
  const auto at = std::find_if(queue.begin(), queue.end(),
                               [priority](const Queued& q) { return q.job.options.priority < priority; });
  queue.insert(at, {found->second, piece});
  waiting_.erase(found);
}

bool Planner::Steal(int worker, Micros now) {
  Micros most = 0;
  int urgency = std::numeric_limits<int>::min();
  int victim = -1;
  std::size_t position = 0;
  for (int index = 0; index < static_cast<int>(workers_.size()); ++index) {
    const Worker& other = *workers_[index];
    if (index == worker || other.queue.empty()) continue;
    Micros end = FreeAt(other, index, now);
    // From the back: what would wait longest there gains most.
    for (std::size_t at = other.queue.size(); at-- > 0;) {
      const Queued& queued = other.queue[at];
      const Micros here = View(queued.job).MayRunOn(worker) ? Cost(queued.job, queued.piece, worker) : kNever;
      const int priority = queued.job.options.priority;
      const Micros gain = end - now - here;
      if (here < kNever && gain > 0 && (priority > urgency || (priority == urgency && gain > most))) {
        most = gain;
        urgency = priority;
        victim = index;
        position = at;
      }
      end -= Cost(queued.job, queued.piece, index);
    }
  }
  if (victim < 0) return false;
  auto& queue = workers_[victim]->queue;
  workers_[worker]->queue.push_back(std::move(queue[position]));
  queue.erase(queue.begin() + position);
  return true;
}

void Planner::TryElsewhere(Job job, std::vector<Ended>* ended) {
  if (CanEnd(job)) {
    waiting_.emplace(job.id, job);
  } else {
    ended->push_back({job.id, Ending::kFailed});
  }
}

}  // namespace lite
}  // namespace tf_ext
