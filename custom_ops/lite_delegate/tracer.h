// A record of what ran where, in Chrome's trace format: open it in Perfetto or chrome://tracing.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TRACER_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TRACER_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/costs.h"
#include "custom_ops/lite_delegate/policy.h"

namespace tf_ext {
namespace lite {

class Tracer {
 public:
  explicit Tracer(std::vector<std::string> workers) : workers_(std::move(workers)) {}

  void SetEnabled(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

  // A piece that ran on a worker.
  void Ran(int worker, const std::string& what, JobId job, Micros begin, Micros end);
  // A request from its arrival to its end.
  void Request(const std::string& model, JobId job, Micros begin, Micros end, const char* ending);
  // Something that happened to a worker.
  void Mark(int worker, const char* what, Micros at);

  std::string Json() const;

 private:
  struct Event {
    char phase;
    int lane;
    std::string name;
    JobId job;
    Micros begin, end;
  };
  void Add(Event event);

  const std::vector<std::string> workers_;
  std::atomic<bool> enabled_{false};
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::int64_t left_out_ = 0;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TRACER_H_
