// Shortest expected latency (Band, section 3.3): each job, in the order of arrival, goes at once into the queue of the worker
// where it is expected to end first. The time that work ahead of it takes counts.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

class ShortestExpectedLatency : public Policy {
 public:
  const char* name() const override { return "shortest_expected_latency"; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    SortJobs(snapshot, std::vector<Micros>(snapshot.jobs.size(), 0), &order_);
    std::vector<Micros> free = FreeTimes(snapshot);
    for (const int index : order_) {
      const Place place = EarliestFinish(snapshot, snapshot.jobs[index], free);
      if (place.worker < 0) continue;
      free[place.worker] = place.end;
      decisions->push_back({index, place.worker, place.piece});
    }
  }

 private:
  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeShortestExpectedLatency() { return std::make_unique<ShortestExpectedLatency>(); }

}  // namespace lite
}  // namespace tf_ext
