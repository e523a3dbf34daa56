#include "custom_ops/lite_delegate/statistics.h"

#include <algorithm>

#include "custom_ops/lite_delegate/engine.h"
#include "custom_ops/lite_delegate/json.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr std::size_t kLatencies = 4096;

std::string Number(const char* name, std::int64_t value) { return Quoted(name) + ":" + std::to_string(value); }

// Times are whole microseconds, so that no locale has a say.
std::string Thousandths(double value) {
  const auto whole = static_cast<std::int64_t>(value * 1000 + 0.5);
  std::string rest = std::to_string(whole % 1000);
  return std::to_string(whole / 1000) + "." + std::string(3 - rest.size(), '0') + rest;
}

}  // namespace

void ModelStatistics::Went(Ending ending, Micros latency) {
  ++endings_[static_cast<int>(ending)];
  if (ending != Ending::kDone) return;
  if (latencies_.size() < kLatencies) {
    latencies_.push_back(latency);
  } else {
    latencies_[next_++ % kLatencies] = latency;
  }
}

std::string ModelStatistics::Json() const {
  std::string json = Number("requests", requests_) + "," + Number("done", endings_[0]) + "," +
                     Number("dropped", endings_[1]) + "," + Number("failed", endings_[2]) + "," +
                     Number("cancelled", endings_[3]) + ",\"latency_us\":{";
  std::vector<Micros> sorted = latencies_;
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double part) { return sorted[static_cast<std::size_t>(part * (sorted.size() - 1) + 0.5)]; };
  if (!sorted.empty()) {
    json += Number("p50", at(0.5)) + "," + Number("p90", at(0.9)) + "," + Number("p99", at(0.99)) + "," +
            Number("max", sorted.back());
  }
  return json + "}";
}

std::string Engine::Statistics() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string workers, models;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = *workers_[i];
    const WorkerStatistics& did = worker.statistics;
    std::string pieces, refused;
    for (const auto& [which, piece] : did.pieces) {
      const PieceSpec& spec = models_[which.first]->bundle->pieces()[which.second];
      pieces += std::string(pieces.empty() ? "" : ",") + "{" + Number("model", which.first) + ",\"units\":[" +
                std::to_string(spec.begin) + "," + std::to_string(spec.end) + "]," + Number("runs", piece.runs) + "," +
                Number("mean_us", piece.runs == 0 ? 0 : piece.time / piece.runs) + "," +
                Number("expected_us", planner_.model(which.first).Expected(which.second, static_cast<int>(i))) + "," +
                Number("threads", piece.threads) + ",\"accelerator\":" + Quoted(piece.accelerator) +
                ",\"precision\":" + Quoted(piece.precision) + "}";
    }
    for (const auto& [which, why] : did.refused) {
      refused += std::string(refused.empty() ? "" : ",") + "{" + Number("model", which.first) + "," +
                 Number("piece", which.second) + ",\"reason\":" + Quoted(why) + "}";
    }
    workers += std::string(i == 0 ? "" : ",") + "{\"name\":" + Quoted(worker.name) + ",\"processor\":" +
               Quoted(worker.options.processor) + "," + Number("runs", did.runs) + "," + Number("busy_us", did.busy) + "," +
               Number("failed", did.failed) + "," + Number("times_lost", did.lost) + ",\"lost\":" +
               (worker.lost ? "true" : "false") + ",\"slowdown\":" +
               Thousandths(planner_.slowdown(static_cast<int>(i))) + ",\"pieces\":[" + pieces + "],\"refused\":[" + refused +
               "]}";
  }
  for (std::size_t i = 0; i < models_.size(); ++i) {
    models += std::string(i == 0 ? "" : ",") + "{\"name\":" + Quoted(models_[i]->bundle->name()) + "," +
              models_[i]->statistics.Json() + "}";
  }
  return "{\"workers\":[" + workers + "],\"models\":[" + models + "],\"queue\":{" + Number("waiting", planner_.waiting()) + "," +
         Number("queued", planner_.queued()) + "," + Number("running", planner_.running()) + "," +
         Number("limit", options_.queue_limit) + "," + Number("refused_decisions", planner_.refused()) +
         "},\"policy\":" + Quoted(planner_.policy().name()) + ",\"runtime\":" + Quoted(litert_->path()) + "}";
}

}  // namespace lite
}  // namespace tf_ext
