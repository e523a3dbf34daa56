// The queue of requests and the books of the workers. It reads no clock and starts no thread: the engine drives it under a
// mutex with the real time, the simulator with a virtual one.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLANNER_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLANNER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "custom_ops/lite_delegate/costs.h"
#include "custom_ops/lite_delegate/policy.h"

namespace tf_ext {
namespace lite {

struct JobOptions {
  int priority = 0;
  int pinned = -1;
  Micros deadline = kNever;
};

// A piece of a job on a worker.
struct Assignment {
  JobId job;
  int model;
  int piece;
  int worker;
};

// How a job ended that no worker runs any more.
enum class Ending { kDone, kDropped, kFailed, kCancelled };

struct Ended {
  JobId job;
  Ending ending;
};

// How much is assigned ahead is the policy's choice. A policy may leave all jobs waiting until a worker is idle: the thread that
// ends a piece calls Finish, Plan and Next in a row, so that its worker stands still no longer than the policy thinks. Where
// pieces are so short that this counts, `adaptive` queues one piece behind the one that is about to end.
class Planner {
 public:
  // At most kMaxWorkers workers.
  Planner(int workers, std::unique_ptr<Policy> policy, int queue_limit);
  ~Planner();

  void SetPolicy(std::unique_ptr<Policy> policy);
  const Policy& policy() const { return *policy_; }

  // Returns the model's index.
  int AddModel(ModelCosts costs);
  const ModelCosts& model(int index) const { return *models_[index]; }

  // Returns the job's id, or -1 where as many jobs wait as may (back-pressure). Ids grow.
  JobId Submit(int model, const JobOptions& options, Micros now);

  // Whether the job was waiting and has ended by this; it is not told again. A piece that runs is run to its end, and the job is
  // appended to `ended` then.
  bool Cancel(JobId job, Micros now);

  // Lets the policy decide over the waiting jobs. Jobs that it dropped, or that no worker can run any more, are appended to
  // `ended`. Returns whether any worker has new work.
  bool Plan(Micros now, std::vector<Ended>* ended);

  // What the worker should run now, if anything; it counts as running until Finish. An idle worker whose own queue is empty
  // takes work that another has queued, if it is expected to end it sooner and the policy lets it.
  bool Next(int worker, Micros now, Assignment* assignment);

  // The piece that Next gave begins to compute only now: what went before (loading it) tells nothing about its cost.
  void Began(int worker, Micros now);

  // The worker ended its piece. If `ok`, the job goes on at the piece's end, or is appended to `ended`. If not, its unit is
  // planned again on other workers; a job that none can run has failed. Does nothing where the worker runs nothing.
  void Finish(int worker, Micros now, bool ok, std::vector<Ended>* ended);

  // The worker cannot run the piece that Next gave: it does not compile there, or is damaged. The piece is never planned there
  // again; its unit is, with other pieces or on other workers. Does nothing where the worker runs nothing.
  void Refuse(int worker, std::vector<Ended>* ended);

  // A worker that hung or crashed: what it ran and what it had queued goes elsewhere. It may come back, once the thread that
  // hung no longer reports.
  void SetAvailable(int worker, bool available, Micros now, std::vector<Ended>* ended);

  int waiting() const { return static_cast<int>(waiting_.size()); }  // for the policy
  int running() const;                                               // on workers now
  int queued() const;                                                // on workers, not begun
  // What pieces lately took over what they were expected to take, on this worker: over 1 where it is throttled. The policies see
  // it fade while the worker runs nothing.
  double slowdown(int worker) const;
  // How many decisions broke a rule: an index out of range, a piece that cannot run there, a job twice.
  std::int64_t refused() const { return refused_; }

 private:
  struct Job {
    JobId id;
    int model;
    int unit;
    JobOptions options;
    Micros submitted;
    std::uint64_t excluded;
    bool cancelled;
  };
  struct Queued {
    Job job;
    int piece;
  };
  struct Worker;

  JobView View(const Job& job) const;
  bool CanEnd(const Job& job) const;
  static double SlowdownAt(const Worker& worker, Micros now);
  Micros CurrentEnd(const Worker& worker, int index, Micros now) const;
  Micros FreeAt(const Worker& worker, int index, Micros now) const;
  Micros Cost(const Job& job, int piece, int worker) const;
  void EndHopeless(std::vector<Ended>* ended);
  void MakeViews(Micros now);
  void ViewComing(const Queued& queued, Micros ready);
  bool Valid(const Snapshot& snapshot, const Decision& decision) const;
  bool Apply(const Snapshot& snapshot, std::vector<Ended>* ended);
  bool Idle() const;
  bool Rescue(const Snapshot& snapshot);
  void Enqueue(JobId id, int piece, int worker);
  bool Steal(int worker, Micros now);
  void TryElsewhere(Job job, std::vector<Ended>* ended);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Policy> policy_;
  int queue_limit_;
  JobId next_id_ = 0;
  std::int64_t refused_ = 0;
  bool unchecked_ = false;  // whether a job may wait that no worker can run
  std::map<JobId, Job> waiting_;
  std::vector<std::unique_ptr<ModelCosts>> models_;
  std::vector<const ModelCosts*> model_views_;
  std::vector<Micros> last_ran_;  // by model: when a piece of it last ended, or its first job came

  // Kept between calls for their memory.
  std::vector<JobView> job_views_;
  std::vector<WorkerView> worker_views_;
  std::vector<ComingView> coming_views_;
  std::vector<Decision> decisions_;
  std::vector<char> decided_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLANNER_H_
