// Matrices that many batches are multiplied by in their transposed form, laid out once for all of them.
//
// Gradients of rows are products with transposed weights. A general product packs the matrix anew each time, which takes
// as long as the product itself: the batch of one level of a tree has some ten or hundred rows. In a run the weights stay
// what they are. (Forward, where the matrix need not be transposed, oneDNN is the faster one all the same.)
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_PACKED_MATRICES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_PACKED_MATRICES_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// A matrix of floats [depth, width] in strips of as many columns as fit in a cache line, one row below the other.
struct PackedMatrix {
  int64_t depth = 0, width = 0;
  tensorflow::Tensor strips;  // [width / 16, rounded up; depth; 16], zeros in the place of missing columns
};

// The transposed matrices of one environment, packed when they are first asked for. Thread safe.
class PackedMatrices {
 public:
  // `env` must outlive this, and not change.
  explicit PackedMatrices(const std::vector<tensorflow::Tensor>* env) : env_(env), packed_(env->size()) {}
  ~PackedMatrices();

  // The value `env` [width, depth], which is a matrix of floats.
  const PackedMatrix& Get(int env);

 private:
  const std::vector<tensorflow::Tensor>* env_;
  std::vector<std::atomic<const PackedMatrix*>> packed_;
  absl::Mutex mutex_;
};

// y[rows, width] = x[rows, depth] * matrix, on the calling thread.
void Multiply(const float* x, int64_t rows, const PackedMatrix& matrix, float* y);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_PACKED_MATRICES_H_
