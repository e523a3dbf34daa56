// Contributions to the environment's gradients, made by several threads and summed in one order.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_GRADIENT_LOG_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_GRADIENT_LOG_H_

#include <atomic>
#include <deque>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/recursion/accumulators.h"

namespace tf_ext {
namespace recursion {

// Floating sums depend on their order, and which thread runs what depends on the weather. The log is a list of segments
// in the order in which one worker alone would have gone; each is written by one worker at a time. What goes to the
// first open segment is summed at once, the rest waits there for its turn.
class GradientLog {
 public:
  struct Segment;

  explicit GradientLog(EnvGradients* sums);
  ~GradientLog();

  Segment* first() { return &segments_.front(); }
  // A segment that comes right after `segment`, which must be open and the caller's.
  Segment* InsertAfter(Segment* segment);
  // The fetches of a gradient graph. Called by the worker that writes the segment.
  absl::Status Add(Segment* segment, const GraphSpec& spec, std::vector<tensorflow::Tensor> fetches);
  // The gradient of one row of an environment value.
  absl::Status AddRow(Segment* segment, int env, int64_t index, tensorflow::Tensor row);
  // The caller writes no more to it.
  absl::Status Close(Segment* segment);
  // When all workers are done: closes what is open.
  absl::Status CloseAll();

 private:
  struct Entry;
  absl::Status Sum(const Entry& entry);
  absl::Status Add(Segment* segment, Entry entry);
  absl::Status Flush(Segment* segment);

  EnvGradients* const sums_;
  std::mutex mutex_;  // guards the list, not what is in the segments
  std::deque<Segment> segments_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_GRADIENT_LOG_H_
