// One processor per model, as an app does that gives each interpreter a delegate of its own: the baseline.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

class Fixed : public Policy {
 public:
  const char* name() const override { return "fixed"; }
  bool steals() const override { return false; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    SortJobs(snapshot, std::vector<Micros>(snapshot.jobs.size(), 0), &order_);
    std::vector<Micros> free = FreeTimes(snapshot);
    for (const int index : order_) {
      const JobView& job = snapshot.jobs[index];
      const int worker = Home(snapshot, job);
      Place place;
      if (worker >= 0) {
        JobView whole = job;
        whole.pinned = worker;
        place = EarliestFinishOn(snapshot, whole, worker, free[worker]);
      }
      // Its worker is lost, or has failed, or cannot run all of it: what is left falls back on the others.
      if (place.worker < 0) place = EarliestFinish(snapshot, job, free);
      if (place.worker < 0) continue;
      free[place.worker] = place.end;
      decisions->push_back({index, place.worker, place.piece});
    }
  }

 private:
  // Worker i mod n for model i, or the next one that is able to run the rest of it; -1 where none is.
  static int Home(const Snapshot& snapshot, const JobView& job) {
    if (job.pinned >= 0) return job.pinned;
    const int workers = static_cast<int>(snapshot.workers.size());
    for (int step = 0; step < workers; ++step) {
      const int worker = (job.model + step) % workers;
      if (job.MayRunOn(worker) && snapshot.models[job.model]->RemainingOn(job.unit, worker) < kNever) return worker;
    }
    return -1;
  }

  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeFixed() { return std::make_unique<Fixed>(); }

}  // namespace lite
}  // namespace tf_ext
