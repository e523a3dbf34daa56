// Heterogeneous earliest finish time (Band, section 3.3, after Topcuoglu et al., 2002): the job with the most work left comes
// first and goes where it ends first. If that worker is busy, the job waits, and one with less work may take an idle worker;
// with reservation, later jobs see the time on the busy worker as taken.

#include "custom_ops/lite_delegate/policies/common.h"

namespace tf_ext {
namespace lite {
namespace {

class Heft : public Policy {
 public:
  explicit Heft(bool reserves) : reserves_(reserves) {}

  const char* name() const override { return reserves_ ? "heft_reserved" : "heft"; }

  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override {
    keys_.clear();
    for (const JobView& job : snapshot.jobs) keys_.push_back(-Remaining(snapshot, job, job.unit));
    SortJobs(snapshot, keys_, &order_);
    std::vector<Micros> free = FreeTimes(snapshot);
    for (const int index : order_) {
      const Place place = EarliestFinish(snapshot, snapshot.jobs[index], free);
      if (place.worker < 0) continue;
      const bool idle = IsIdle(snapshot, place.worker) && free[place.worker] == snapshot.now;
      if (idle) decisions->push_back({index, place.worker, place.piece});
      if (idle || reserves_) free[place.worker] = place.end;
    }
  }

 private:
  bool reserves_;
  std::vector<Micros> keys_;
  std::vector<int> order_;
};

}  // namespace

std::unique_ptr<Policy> MakeHeft() { return std::make_unique<Heft>(false); }
std::unique_ptr<Policy> MakeHeftReserved() { return std::make_unique<Heft>(true); }

}  // namespace lite
}  // namespace tf_ext
