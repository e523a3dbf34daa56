// TfExtLitePolicies and TfExtLiteSimulate.

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "custom_ops/lite_delegate/callback_policy.h"
#include "custom_ops/lite_delegate/last_error.h"
#include "custom_ops/lite_delegate/simulator.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace tf_ext {
namespace lite {
namespace {

TfExtLiteStatus Invalid(const std::string& text) { return Fail(kTfExtLiteInvalidArgument, "TfExtLiteSimulate: " + text); }

std::string At(const char* what, int index, const std::string& expected, std::int64_t came) {
  return std::string(what) + "[" + std::to_string(index) + "] is expected to be " + expected + ", not " + std::to_string(came) +
         ".";
}

std::string Below(int limit) { return "from 0 to " + std::to_string(limit - 1); }

TfExtLiteStatus CheckSizes(const TfExtLiteSimulation& in, Scenario* scenario) {
  if (in.size != sizeof(TfExtLiteSimulation)) {
    return Invalid("size is expected to be " + std::to_string(sizeof(TfExtLiteSimulation)) + ", not " + std::to_string(in.size) +
                   ": the caller was built for another version.");
  }
  if (in.num_workers < 1 || in.num_workers > kMaxWorkers) {
    return Invalid("num_workers is expected to be from 1 to " + std::to_string(kMaxWorkers) + ", not " +
                   std::to_string(in.num_workers) + ".");
  }
  if (in.num_models < 0 || in.num_jobs < 0 || in.num_events < 0) return Invalid("a negative number of models, jobs or events.");
  if (in.num_models > 0 && !(in.units && in.num_pieces && in.pieces && in.expected)) return Invalid("a table of models is null.");
  if (in.num_jobs > 0 && !(in.job_model && in.job_arrival)) return Invalid("job_model or job_arrival is null.");
  if (in.num_events > 0 && !in.events) return Invalid("events is null.");
  if (!(in.noise >= 0 && in.noise < 1)) return Invalid("noise is expected to be at least 0 and less than 1.");
  return kTfExtLiteOk;
}

TfExtLiteStatus ReadModels(const TfExtLiteSimulation& in, Scenario* scenario) {
  const int32_t* bounds = in.pieces;
  const int64_t* expected = in.expected;
  for (int model = 0; model < in.num_models; ++model) {
    const int units = in.units[model], count = in.num_pieces[model];
    if (units < 1) return Invalid(At("units", model, "at least 1", units));
    if (count < 0) return Invalid(At("num_pieces", model, "at least 0", count));
    std::vector<Piece> pieces;
    for (int piece = 0; piece < count; ++piece, bounds += 2) {
      if (bounds[0] < 0 || bounds[1] <= bounds[0] || bounds[1] > units) {
        return Invalid("piece " + std::to_string(piece) + " of model " + std::to_string(model) + " holds the units from " +
                       std::to_string(bounds[0]) + " to " + std::to_string(bounds[1]) + " of " + std::to_string(units) + ".");
      }
      pieces.push_back({bounds[0], bounds[1]});
    }
    std::vector<Micros> times(expected, expected + count * in.num_workers);
    expected += count * in.num_workers;
    if (std::any_of(times.begin(), times.end(), [](Micros time) { return time < 0; })) {
      return Invalid("an expected time of model " + std::to_string(model) + " is negative.");
    }
    scenario->models.emplace_back(units, std::move(pieces), in.num_workers, std::move(times));
  }
  return kTfExtLiteOk;
}

TfExtLiteStatus ReadWorkers(const TfExtLiteSimulation& in, Scenario* scenario) {
  scenario->workers = in.num_workers;
  scenario->slowdowns.assign(in.num_workers, 1.0);
  for (int worker = 0; in.slowdowns && worker < in.num_workers; ++worker) {
    if (!(in.slowdowns[worker] > 0)) return Invalid("slowdowns[" + std::to_string(worker) + "] is expected to be above 0.");
    scenario->slowdowns[worker] = in.slowdowns[worker];
  }
  scenario->noise = in.noise;
  scenario->seed = in.seed;
  scenario->queue_limit = in.queue_limit > 0 ? in.queue_limit : std::numeric_limits<int>::max();
  return kTfExtLiteOk;
}

TfExtLiteStatus ReadJobs(const TfExtLiteSimulation& in, Scenario* scenario) {
  Micros last = 0;
  for (int job = 0; job < in.num_jobs; ++job) {
    const Micros time = in.job_arrival[job], slo = in.job_slo ? in.job_slo[job] : 0;
    const int model = in.job_model[job], pinned = in.job_pinned ? in.job_pinned[job] : -1;
    if (model < 0 || model >= in.num_models) return Invalid(At("job_model", job, Below(in.num_models), model));
    if (time < last || time >= kNever / 2) return Invalid(At("job_arrival", job, "in order, and from 0", time));
    if (slo < 0) return Invalid(At("job_slo", job, "at least 0", slo));
    if (pinned < -1 || pinned >= in.num_workers) return Invalid(At("job_pinned", job, "-1 or " + Below(in.num_workers), pinned));
    last = time;
    JobOptions options;
    options.priority = in.job_priority ? in.job_priority[job] : 0;
    options.pinned = pinned;
    options.deadline = slo > 0 && slo < kNever - time ? time + slo : kNever;
    scenario->arrivals.push_back({time, model, options});
  }
  return kTfExtLiteOk;
}

TfExtLiteStatus ReadEvents(const TfExtLiteSimulation& in, Scenario* scenario) {
  Micros last = 0;
  for (int index = 0; index < in.num_events; ++index) {
    const TfExtLiteEvent& event = in.events[index];
    if (event.time < last || event.time >= kNever / 2) return Invalid(At("events.time", index, "in order, and from 0", event.time));
    if (event.kind < 0 || event.kind > kTfExtLiteThrottle) return Invalid(At("events.kind", index, Below(5), event.kind));
    const int limit = event.kind == kTfExtLiteCancelJob ? in.num_jobs : in.num_workers;
    if (event.target < 0 || event.target >= limit) return Invalid(At("events.target", index, Below(limit), event.target));
    if (event.kind == kTfExtLiteThrottle && !(event.factor > 0)) return Invalid("events.factor is expected to be above 0.");
    last = event.time;
    scenario->disturbances.push_back(
        {event.time, static_cast<Disturbance::Kind>(event.kind), event.target, event.factor});
  }
  return kTfExtLiteOk;
}

TfExtLiteStatus StatusOf(const Outcome& outcome) {
  if (outcome.kind == Outcome::kRefused) return kTfExtLiteQueueFull;
  if (outcome.kind == Outcome::kUnfinished) return kTfExtLiteInternal;
  switch (outcome.ending) {
    case Ending::kDone:
      return kTfExtLiteOk;
    case Ending::kDropped:
      return kTfExtLiteDeadlineExceeded;
    case Ending::kCancelled:
      return kTfExtLiteCancelled;
    case Ending::kFailed:
      return kTfExtLiteUnavailable;
  }
  return kTfExtLiteInternal;
}

void Write(const Record& record, TfExtLiteSimulated* out) {
  for (std::size_t job = 0; job < record.outcomes.size(); ++job) {
    const Outcome& outcome = record.outcomes[job];
    if (out->job_end) out->job_end[job] = outcome.end;
    if (out->job_status) out->job_status[job] = StatusOf(outcome);
  }
  if (out->worker_busy) std::copy(record.busy.begin(), record.busy.end(), out->worker_busy);
  out->num_runs = static_cast<int64_t>(record.runs.size());
  for (int64_t index = 0; out->runs && index < std::min(out->num_runs, out->max_runs); ++index) {
    const Run& run = record.runs[index];
    out->runs[index] = {run.arrival, run.piece, run.worker, run.ok, run.begin, run.end};
  }
  out->decisions = record.decisions;
  out->decide_ns = record.decide_ns;
}

std::string Names() {
  std::string names;
  for (const std::string& name : PolicyNames()) names += (names.empty() ? "" : ",") + name;
  return names;
}

TfExtLiteStatus RunScenario(const TfExtLiteSimulation& in, std::unique_ptr<Policy> policy, TfExtLiteSimulated* out) {
  Scenario scenario;
  for (const auto step : {CheckSizes, ReadWorkers, ReadModels, ReadJobs, ReadEvents}) {
    const TfExtLiteStatus status = step(in, &scenario);
    if (status != kTfExtLiteOk) return status;
  }
  Write(Simulate(scenario, std::move(policy)), out);
  return kTfExtLiteOk;
}

TfExtLiteStatus ChoosePolicy(const char* name, TfExtLitePolicyCallback callback, void* user, std::unique_ptr<Policy>* policy) {
  if (callback) {
    *policy = std::make_unique<CallbackPolicy>(callback, user);
    return kTfExtLiteOk;
  }
  const std::string text = name ? name : "";
  *policy = MakePolicy(text);
  if (*policy) return kTfExtLiteOk;
  return Fail(kTfExtLiteNotFound, "There is no policy '" + text + "'; there are " + Names() + ".");
}

}  // namespace
}  // namespace lite
}  // namespace tf_ext

const char* TfExtLitePolicies(void) {
  static const std::string* const names = new std::string(tf_ext::lite::Names());
  return names->c_str();
}

TfExtLiteStatus TfExtLiteSimulate(const TfExtLiteSimulation* simulation, const char* policy, TfExtLitePolicyCallback callback,
                                  void* user, TfExtLiteSimulated* result) try {
  using namespace tf_ext::lite;  // NOLINT: this is the namespace's C face
  if (!simulation || !result) return Invalid("simulation or result is null.");
  if (result->size != sizeof(TfExtLiteSimulated)) return Invalid("the result's size is that of another version.");
  std::unique_ptr<Policy> chosen;
  const TfExtLiteStatus status = ChoosePolicy(policy, callback, user, &chosen);
  return status == kTfExtLiteOk ? RunScenario(*simulation, std::move(chosen), result) : status;
} catch (const std::exception& error) {
  return tf_ext::lite::Invalid(std::string(error.what()) + ": a smaller simulation was expected.");
}
