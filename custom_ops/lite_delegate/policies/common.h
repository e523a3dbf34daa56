// What several policies share: in which order jobs are looked at, and where a job's next piece would end first.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_COMMON_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_COMMON_H_

#include <memory>
#include <vector>

#include "custom_ops/lite_delegate/policy.h"

namespace tf_ext {
namespace lite {

std::unique_ptr<Policy> MakeFixed();
std::unique_ptr<Policy> MakeRoundRobin();
std::unique_ptr<Policy> MakeShortestExpectedLatency();
std::unique_ptr<Policy> MakeHeft();
std::unique_ptr<Policy> MakeHeftReserved();
std::unique_ptr<Policy> MakeLeastSlack();
std::unique_ptr<Policy> MakeAdaptive();

// A job that has waited this long counts as one priority higher, and so on, so that none starves behind others for ever.
constexpr Micros kPatience = 2000000;

// Its priority, raised by its patience.
std::int64_t Urgency(const JobView& job, Micros now);

// The least time that the rest of a job takes once it has come to a unit.
Micros Remaining(const Snapshot& snapshot, const JobView& job, int unit);

// The jobs as indices: the most urgent first, and among those of equal urgency the least `key` first, then the oldest.
void SortJobs(const Snapshot& snapshot, const std::vector<Micros>& key, std::vector<int>* order);

// When each worker will have done what it was assigned, at least `now`.
std::vector<Micros> FreeTimes(const Snapshot& snapshot);

bool IsIdle(const Snapshot& snapshot, int worker);

// A piece of a job on a worker.
struct Place {
  int worker = -1;  // -1: there is none
  int piece = -1;
  Micros end = kNever;    // of the piece
  Micros total = kNever;  // of the job, if nothing else were waiting
};

// Where the job would end first if each worker were free at `free`.
Place EarliestFinish(const Snapshot& snapshot, const JobView& job, const std::vector<Micros>& free);

// The same on one worker.
Place EarliestFinishOn(const Snapshot& snapshot, const JobView& job, int worker, Micros free);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_COMMON_H_
