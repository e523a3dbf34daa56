#include "custom_ops/lite_delegate/tracer.h"

#include <utility>

#include "custom_ops/lite_delegate/json.h"

namespace tf_ext {
namespace lite {
namespace {

// Some 60 MB: a trace that nobody stops must not take all memory.
constexpr std::size_t kMostEvents = 1 << 20;

std::string Common(const char* phase, int lane, const std::string& name, Micros at) {
  return std::string("{\"ph\":\"") + phase + "\",\"pid\":1,\"tid\":" + std::to_string(lane) + ",\"name\":" + Quoted(name) +
         ",\"ts\":" + std::to_string(at);
}

}  // namespace

void Tracer::Add(Event event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (events_.size() < kMostEvents) {
    events_.push_back(std::move(event));
  } else {
    ++left_out_;
  }
}

void Tracer::Ran(int worker, const std::string& what, JobId job, Micros begin, Micros end) {
  if (enabled_) Add({'X', worker, what, job, begin, end});
}

void Tracer::Request(const std::string& model, JobId job, Micros begin, Micros end, const char* ending) {
  if (enabled_) Add({'b', 0, model + (*ending == '\0' ? "" : std::string(" (") + ending + ")"), job, begin, end});
}

void Tracer::Mark(int worker, const char* what, Micros at) {
  if (enabled_) Add({'i', worker, what, -1, at, at});
}

std::string Tracer::Json() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string json = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"left_out\":" + std::to_string(left_out_) + "},\"traceEvents\":[";
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    json += Common("M", static_cast<int>(i), "thread_name", 0) + ",\"args\":{\"name\":" + Quoted(workers_[i]) + "}},";
  }
  json += Common("M", 0, "process_name", 0) + ",\"args\":{\"name\":\"tf_ext.lite\"}}";
  for (const Event& event : events_) {
    const std::string id = std::to_string(event.job);
    json += ",\n";
    if (event.phase == 'X') {
      json += Common("X", event.lane, event.name, event.begin) + ",\"dur\":" + std::to_string(event.end - event.begin) +
              ",\"args\":{\"job\":" + id + "}}";
    } else if (event.phase == 'i') {
      json += Common("i", event.lane, event.name, event.begin) + ",\"s\":\"t\"}";
    } else {  // requests overlap: each is an asynchronous pair
      const std::string more = ",\"cat\":\"request\",\"id\":" + id + "}";
      json += Common("b", 0, event.name, event.begin) + more + ",\n" + Common("e", 0, event.name, event.end) + more;
    }
  }
  return json + "]}\n";
}

}  // namespace lite
}  // namespace tf_ext
