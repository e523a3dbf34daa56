// What decides which piece of which request runs where. A policy sees a snapshot and answers with decisions; it keeps no
// queue and reads no clock, so that the engine and the simulator run the same one.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICY_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/costs.h"

namespace tf_ext {
namespace lite {

using JobId = std::int64_t;

// A request that waits for its next piece.
struct JobView {
  JobId id;
  int model;         // index into Snapshot::models
  int unit;          // the next unit to run
  int priority;      // the larger, the sooner
  int pinned;        // the only worker that it may run on, or -1
  Micros submitted;  // when the request came
  Micros deadline;   // when it should be done (its service-level objective), or kNever
  std::uint64_t excluded;  // bit w: worker w has failed at this unit of this request and is not to try it again

  bool MayRunOn(int worker) const { return (pinned < 0 || pinned == worker) && (excluded >> worker & 1) == 0; }
};

// A request whose present piece is assigned to a worker and is not its last one, as it will be behind that piece.
struct ComingView {
  JobView job;
  Micros ready;  // when the piece is expected to end
};

struct WorkerView {
  bool available;   // takes work at all
  int queued;       // pieces assigned and not yet begun
  Micros free_at;   // when it is expected to have done all that it was assigned; at most `now` where it is idle
  double slowdown;  // what pieces take now over what they were expected to take: over 1 where it is throttled
};

struct Snapshot {
  Micros now;
  const std::vector<JobView>& jobs;  // in the order in which they came
  const std::vector<WorkerView>& workers;
  const std::vector<const ModelCosts*>& models;
  const std::vector<ComingView>& coming;  // not to be decided on yet

  Micros Expected(int model, int piece, int worker) const {
    const Micros plain = models[model]->Expected(piece, worker);
    return plain >= kNever ? kNever : static_cast<Micros>(plain * workers[worker].slowdown);
  }

  // `kNever` also where the job must not run on the worker, or could not be brought to its end after the piece.
  Micros Expected(const JobView& job, int piece, int worker) const {
    const ModelCosts& costs = *models[job.model];
    const int end = costs.pieces()[piece].end;
    const Micros rest = job.pinned < 0 ? costs.Remaining(end) : costs.RemainingOn(end, job.pinned);
    return rest >= kNever || !job.MayRunOn(worker) ? kNever : Expected(job.model, piece, worker);
  }
};

// Sets of workers are words.
constexpr int kMaxWorkers = 64;

// The job is given up: it cannot be done in time any more.
constexpr int kDrop = -1;

struct Decision {
  int job;     // index into Snapshot::jobs; each at most once
  int worker;  // or kDrop
  int piece;   // one that starts at the job's unit
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual const char* name() const = 0;
  // Whether an idle worker may take a piece that was assigned to another one.
  virtual bool steals() const { return true; }
  // Appends decisions. To decide nothing means to wait until a piece ends or a request comes. Pieces may be assigned to workers
  // that are busy; they wait in the worker's queue, those of the larger priority first. Decisions that break a rule are refused.
  virtual void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) = 0;
};

// Returns the policy of that name, or null. Names: see PolicyNames().
std::unique_ptr<Policy> MakePolicy(const std::string& name);
const std::vector<std::string>& PolicyNames();

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICY_H_
