// Sums of products of rows: the gradient of a matrix that rows were multiplied by.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ROW_PRODUCTS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ROW_PRODUCTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tensorflow/core/framework/device_base.h"

namespace tf_ext {
namespace recursion {

// `rows` rows of m and of n elements.
template <typename T>
struct RowPair {
  const T* x;
  const T* y;
  int64_t rows;
};

// c[m, n] += the sum over all pairs of x^T y. The order of the sums depends on the rows alone, whatever the number of threads.
//
// A matrix product where both factors come in pieces that need not be brought together, and nothing need be transposed: a
// row of x and a row of y are read as they lie.
template <typename T>
void AddRowProducts(absl::Span<const RowPair<T>> pairs, int64_t m, int64_t n, T* c,
                    const tensorflow::DeviceBase::CpuWorkerThreads* workers);

extern template void AddRowProducts<float>(absl::Span<const RowPair<float>>, int64_t, int64_t, float*,
                                           const tensorflow::DeviceBase::CpuWorkerThreads*);
extern template void AddRowProducts<double>(absl::Span<const RowPair<double>>, int64_t, int64_t, double*,
                                            const tensorflow::DeviceBase::CpuWorkerThreads*);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ROW_PRODUCTS_H_
