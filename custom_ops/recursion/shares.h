// The rows of a batch are independent: several cores can each compute a share of them.
//
// Kernels use several threads by themselves, but the batch of one level of a tree is small: a kernel is then over before
// the other threads have woken up. A share runs the whole graph of a block, gathers and all, on one thread.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_SHARES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_SHARES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// What a graph costs, as far as it tells without being run: how a batch is divided must depend on the batch alone, since
// sums over rows depend on it.
struct GraphCost {
  bool divisible = false;
  std::vector<int> matrices;  // environment values that every row is multiplied by
  int64_t row_bytes = 0;      // read and written per row
};
// Has a graph no effects whose order or number could matter?
bool IsDivisible(const GraphSpec& spec);
GraphCost EstimateCost(const GraphSpec& spec, int64_t row_bytes);

// Into how many shares to divide `num_rows`, at most `num_threads`.
int NumShares(const GraphCost& cost, const std::vector<tensorflow::Tensor>& env, int64_t num_rows, int num_threads);

// The first row of share `index` of `num`; that of share `num` is the number of rows.
inline int64_t ShareBegin(int64_t num_rows, int num, int index) { return num_rows * index / num; }

// Calls `work` with 0 to `num` - 1, on this thread and on those of the device that are free, and returns when all is done.
void RunShares(const tensorflow::DeviceBase::CpuWorkerThreads* workers, int num, absl::FunctionRef<void(int)> work);

// The device as kernels should see it that already run on one thread of several: it has only that one. Null if there is
// no need for it.
std::unique_ptr<tensorflow::Device> MakeSerialDevice(tensorflow::Device* device);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_SHARES_H_
