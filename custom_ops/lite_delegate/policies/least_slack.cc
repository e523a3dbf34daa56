// Least slack time first (Band, section 3.3): the job whose deadline leaves the least time beyond its own work comes first. Jobs
// that could not make it any more even if they began at once are dropped, so that they take no time from others.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

class LeastSlack : public Policy {
 public:
  const char* name() const override { return "least_slack"; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    keys_.clear();
    for (const JobView& job : snapshot.jobs) {
      const Micros slack = job.deadline - snapshot.now - Remaining(snapshot, job, job.unit);
      keys_.push_back(job.deadline >= kNever ? kNever : slack);
    }
    SortJobs(snapshot, keys_, &order_);
    std::vector<Micros> free = FreeTimes(snapshot);
    for (const int index : order_) {
      if (keys_[index] < 0) {
        decisions->push_back({index, kDrop, 0});
        continue;
      }
      const Place place = EarliestFinish(snapshot, snapshot.jobs[index], free);
      if (place.worker < 0 || !IsIdle(snapshot, place.worker) || free[place.worker] > snapshot.now) continue;
      decisions->push_back({index, place.worker, place.piece});
      free[place.worker] = place.end;
    }
  }

 private:
  std::vector<Micros> keys_;
  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeLeastSlack() { return std::make_unique<LeastSlack>(); }

}  // namespace lite
}  // namespace tf_ext
