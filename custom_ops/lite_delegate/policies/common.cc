#include "custom_ops/lite_delegate/policies/common.h"

#include <algorithm>
#include <numeric>

namespace tf_ext {
namespace lite {
namespace {

void Improve(const Snapshot& snapshot, const JobView& job, int worker, Micros free, Place* best) {
  const ModelCosts& costs = *snapshot.models[job.model];
  for (const int piece : costs.StartingAt(job.unit)) {
    const Micros cost = snapshot.Expected(job, piece, worker);
    if (cost >= kNever) continue;
    const Micros end = free + cost;
    const Micros total = end + Remaining(snapshot, job, costs.pieces()[piece].end);
    if (total < best->total) *best = {worker, piece, end, total};
  }
}

}  // namespace

std::int64_t Urgency(const JobView& job, Micros now) { return job.priority + (now - job.submitted) / kPatience; }

Micros Remaining(const Snapshot& snapshot, const JobView& job, int unit) {
  const ModelCosts& costs = *snapshot.models[job.model];
  return job.pinned < 0 ? costs.Remaining(unit) : costs.RemainingOn(unit, job.pinned);
}

void SortJobs(const Snapshot& snapshot, const std::vector<Micros>& key, std::vector<int>* order) {
  order->resize(snapshot.jobs.size());
  std::iota(order->begin(), order->end(), 0);
  std::stable_sort(order->begin(), order->end(), [&](int a, int b) {
    const std::int64_t urgency_a = Urgency(snapshot.jobs[a], snapshot.now);
    const std::int64_t urgency_b = Urgency(snapshot.jobs[b], snapshot.now);
    return urgency_a != urgency_b ? urgency_a > urgency_b : key[a] < key[b];
  });
}

std::vector<Micros> FreeTimes(const Snapshot& snapshot) {
  std::vector<Micros> free;
  for (const WorkerView& worker : snapshot.workers) free.push_back(std::max(worker.free_at, snapshot.now));
  return free;
}

bool IsIdle(const Snapshot& snapshot, int worker) {
  const WorkerView& view = snapshot.workers[worker];
  return view.available && view.queued == 0 && view.free_at <= snapshot.now;
}

Place EarliestFinish(const Snapshot& snapshot, const JobView& job, const std::vector<Micros>& free) {
  Place best;
  for (int worker = 0; worker < static_cast<int>(free.size()); ++worker) {
    if (job.MayRunOn(worker)) Improve(snapshot, job, worker, free[worker], &best);
  }
  return best;
}

Place EarliestFinishOn(const Snapshot& snapshot, const JobView& job, int worker, Micros free) {
  Place best;
  if (job.MayRunOn(worker)) Improve(snapshot, job, worker, free, &best);
  return best;
}

}  // namespace lite
}  // namespace tf_ext
