// Rows that are added to other rows, on several threads where there are many.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ROW_MOVES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ROW_MOVES_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"

namespace tf_ext {
namespace recursion {

// A list of moves, of rows of one size. One row can be the target of several; their order decides the sum.
class RowMoves {
 public:
  void Clear() { moves_.clear(); }
  // `add`: to += from. Otherwise from is copied, as the first that comes to a row that is not written yet.
  void Plan(char* to, const char* from, bool add) { moves_.push_back({to, from, add}); }
  // `dtype` is one that AddElements knows. `workers` may be null.
  void Run(tensorflow::DataType dtype, int64_t row_bytes,
           const tensorflow::DeviceBase::CpuWorkerThreads* workers) const;

 private:
  struct Move {
    char* to;
    const char* from;
    bool add;
  };
  void RunPart(tensorflow::DataType dtype, int64_t begin, int64_t end) const;

  std::vector<Move> moves_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ROW_MOVES_H_
