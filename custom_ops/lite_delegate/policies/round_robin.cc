// Idle workers in turn take the oldest job that they can run.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

class RoundRobin : public Policy {
 public:
  const char* name() const override { return "round_robin"; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    SortJobs(snapshot, std::vector<Micros>(snapshot.jobs.size(), 0), &order_);
    const int workers = static_cast<int>(snapshot.workers.size());
    const int first = next_;
    for (int step = 0; step < workers; ++step) {
      const int worker = (first + step) % workers;
      if (IsIdle(snapshot, worker) && GiveWork(snapshot, worker, decisions)) next_ = (worker + 1) % workers;
    }
  }

 private:
  bool GiveWork(const Snapshot& snapshot, int worker, std::vector<Decision>* decisions) {
    for (int& index : order_) {
      if (index < 0) continue;
      const Place place = EarliestFinishOn(snapshot, snapshot.jobs[index], worker, snapshot.now);
      if (place.worker < 0) continue;
      decisions->push_back({index, worker, place.piece});
      index = -1;
      return true;
    }
    return false;
  }

  int next_ = 0;
  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeRoundRobin() { return std::make_unique<RoundRobin>(); }

}  // namespace lite
}  // namespace tf_ext
