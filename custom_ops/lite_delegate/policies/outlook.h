// What the waiting jobs look like to a policy that plans ahead: flat tables of where their pieces may run, and the schedule that
// follows from an order of the jobs.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_OUTLOOK_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_OUTLOOK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/lite_delegate/policy.h"

namespace tf_ext {
namespace lite {

// A piece on a worker.
struct Option {
  int worker;
  int piece;
  int next;     // the stage that follows, or -1 at the end
  Micros cost;
  Micros rest;  // of the job behind the piece, at least
};

// Jobs of one model that are at the same unit and may run on the same workers have the same options.
struct Stage {
  int model;
  int unit;
  int pinned;
  std::uint64_t excluded;
  Micros remaining;  // at least, to the end of the job; kNever where it cannot go on
  std::vector<Option> options;
};

struct Item {
  int job;       // index into Snapshot::jobs; -1: it is still running
  JobId id;
  int unit;
  Micros ready;  // when it can begin, at least now
  int stage;
  std::int64_t urgency;
  Micros remaining;
  Micros submitted;
  Micros deadline;
};

// An order of the items, and the schedule that it leads to.
struct Plan {
  std::vector<int> order;   // of items; those of the larger urgency first
  std::vector<int> choice;  // by item: which of its stage's options it takes first; -1: where it ends first
  // By the work that a job has left, piece by piece, the most first, instead of in the order, job by job.
  bool ranked = false;

  // What Place found.
  std::vector<int> taken;    // by item: the option that it takes first
  std::vector<Micros> starts;  // by item: when its next piece begins
  std::vector<Micros> ends;    // by item: when the job ends
  int late = 0;              // jobs that end behind their deadline
  double risk = 0;           // how close to their deadlines the others end, summed: 1 is on the deadline
  double latency = 0;        // summed over the jobs
  Micros makespan = 0;       // when the last job ends
};

// A worker's time in a schedule: up to the tail it is taken, but for a few gaps where it waits for a piece to become ready.
//
// Exact to those gaps, a schedule can be kept to the letter. Otherwise only the work counts as taken, not the wait before it:
// what a worker does meanwhile is left open, and it always finds something where many jobs wait.
struct Line {
  static constexpr int kGaps = 3;
  struct Gap {
    Micros begin;
    Micros end;
  };

  Micros tail;
  int count;
  Gap gaps[kGaps];

  // When a piece that is ready at `ready` can begin.
  Micros Start(Micros ready, Micros cost) const {
    for (int index = 0; index < count; ++index) {
      const Micros begin = std::max(ready, gaps[index].begin);
      if (begin + cost <= gaps[index].end) return begin;
    }
    return std::max(ready, tail);
  }
  void Book(Micros start, Micros cost);
};

class Outlook {
 public:
  // Fills the tables from a snapshot.
  void Look(const Snapshot& snapshot);

  // Whether plans are exact to the gaps; not so at first.
  void set_exact(bool exact) { exact_ = exact; }

  // Leaves an item out.
  void Remove(int item) { items_[item].stage = -1; }
  // Drops those left out, and all but the `most` most urgent ones, the oldest first.
  void Trim(int most);

  const std::vector<Item>& items() const { return items_; }
  const Stage& stage(const Item& item) const { return stages_[item.stage]; }
  const Option& option(int item, int choice) const { return stages_[items_[item].stage].options[choice]; }
  const std::vector<Micros>& free() const { return free_; }

  // How many places were looked at since Look: what a decision takes, told without a clock.
  int effort() const { return effort_; }

  // Schedules the items of a plan one after the other, each where it ends first or where its choice says.
  void Place(Plan* plan);

  // Chooses where each item of `order` starts, so that the sum of the latencies stays small if each worker then takes its
  // shortest pieces first, and the load even in the measure of `evenness`.
  void Spread(const std::vector<int>& order, double evenness, std::vector<int>* choice);

 private:
  struct Ranked {
    std::int64_t urgency;
    Micros rank;
    int item;
    int stage;
    Micros ready;
  };

  void AddItem(const Snapshot& snapshot, const JobView& job, int index, Micros ready);
  int FindStage(const Snapshot& snapshot, const JobView& like, int unit, std::uint64_t excluded);
  void FillStage(const Snapshot& snapshot, const JobView& like, int index);
  int Best(const std::vector<Option>& options, Micros ready);
  Micros Book(const Option& option, Micros ready);
  void PlaceInOrder(Plan* plan);
  void PlaceByRank(Plan* plan);
  void NoteEnd(int item, Micros end, Plan* plan) const;

  Micros now_ = 0;
  bool exact_ = false;
  int effort_ = 0;
  std::vector<Micros> free_;
  std::vector<Item> items_;
  std::vector<Stage> stages_;  // the first used_ of them; the others keep their memory
  int used_ = 0;
  std::vector<Line> lines_;
  std::vector<Micros> load_;
  std::vector<int> count_;
  std::vector<Ranked> heap_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_OUTLOOK_H_
