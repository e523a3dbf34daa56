// What workers and models did.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_STATISTICS_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_STATISTICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "custom_ops/lite_delegate/costs.h"
#include "custom_ops/lite_delegate/planner.h"

namespace tf_ext {
namespace lite {

// How a piece runs on a worker.
struct PieceStatistics {
  std::int64_t runs = 0;
  Micros time = 0;
  int threads = 1;
  std::string accelerator, precision;
};

struct WorkerStatistics {
  std::int64_t runs = 0, lost = 0, failed = 0;
  Micros busy = 0;
  std::map<std::pair<int, int>, PieceStatistics> pieces;  // by model and piece
  std::map<std::pair<int, int>, std::string> refused;     // pieces that could not be loaded, and why
};

class ModelStatistics {
 public:
  void Came() { ++requests_; }
  void Went(Ending ending, Micros latency);
  std::string Json() const;  // the members of an object

 private:
  std::int64_t requests_ = 0, endings_[4] = {};
  std::vector<Micros> latencies_;  // the latest of those that were done
  std::size_t next_ = 0;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_STATISTICS_H_
