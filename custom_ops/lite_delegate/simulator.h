// The planner under a virtual clock: the same queue, policies and books as in the engine, with workers that only wait.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SIMULATOR_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SIMULATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "custom_ops/lite_delegate/planner.h"

namespace tf_ext {
namespace lite {

struct Arrival {
  Micros time;
  int model;
  JobOptions options;
};

struct Disturbance {
  enum Kind { kWorkerLost, kWorkerBack, kPieceFails, kCancelJob, kThrottle };
  Micros time;
  Kind kind;
  int target;  // a worker, or an arrival
  double factor;
};

// A piece that a worker ran.
struct Run {
  int arrival;
  int piece;
  int worker;
  bool ok;
  Micros begin;
  Micros end;
};

// What became of an arrival.
struct Outcome {
  enum Kind { kUnfinished, kEnded, kRefused };
  Kind kind = kUnfinished;
  Ending ending = Ending::kFailed;
  Micros end = -1;
};

struct Scenario {
  int workers;
  std::vector<ModelCosts> models;
  std::vector<double> slowdowns;  // of each worker
  double noise;
  std::uint64_t seed;
  int queue_limit;
  std::vector<Arrival> arrivals;          // in the order of time
  std::vector<Disturbance> disturbances;  // in the order of time
};

struct Record {
  std::vector<Outcome> outcomes;
  std::vector<Micros> busy;
  std::vector<Run> runs;
  std::int64_t decisions = 0;
  double decide_ns = 0;  // mean processor time
};

Record Simulate(const Scenario& scenario, std::unique_ptr<Policy> policy);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SIMULATOR_H_
