// TfExtFewRowsMatMul: a product of very few rows and a matrix.
//
// Such a product is bound by reading the matrix once. General kernels pack it first, or hand it to threads, which for one to
// four rows costs more than the product. A recursion makes them all the time: one row a call, and a few rows near the roots
// of trees. Same inputs and attributes as MatMul; the interpreter chooses by the number of rows.
#include <algorithm>
#include <cstring>

#include "custom_ops/recursion/clones.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {
namespace {

constexpr int kDepth = 8;   // rows of the matrix that are read side by side
constexpr int kLanes = 16;  // partial sums of a dot product

// y[n] += x[kDepth] * w[kDepth, n]
inline __attribute__((always_inline)) void AddRows(const float* x, const float* w, int64_t n, float* y) {
  const float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6], x7 = x[7];
  const float *w1 = w + n, *w2 = w1 + n, *w3 = w2 + n, *w4 = w3 + n, *w5 = w4 + n, *w6 = w5 + n, *w7 = w6 + n;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    const float low = x0 * w[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j];
    const float high = x4 * w4[j] + x5 * w5[j] + x6 * w6[j] + x7 * w7[j];
    y[j] += low + high;
  }
}

// y[rows, n] = x[rows, k] * w[k, n]
TF_EXT_CLONES void Multiply(const float* x, const float* w, int64_t rows, int64_t k, int64_t n, float* y) {
  std::memset(y, 0, rows * n * sizeof(float));
  int64_t i = 0;
  for (; i + kDepth <= k; i += kDepth) {
    for (int64_t r = 0; r < rows; ++r) AddRows(x + r * k + i, w + i * n, n, y + r * n);
  }
  for (; i < k; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = x[r * k + i];
      const float* row = w + i * n;
      float* to = y + r * n;
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  }
}

inline __attribute__((always_inline)) float Dot(const float* a, const float* b, int64_t k) {
  float sums[2 * kLanes] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
#pragma GCC unroll 32
    for (int l = 0; l < 2 * kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (; i < k; ++i) sums[i % kLanes] += a[i] * b[i];
  for (int half = kLanes; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

// y[rows, n] = x[rows, k] * w[n, k]^T
TF_EXT_CLONES void MultiplyTransposed(const float* x, const float* w, int64_t rows, int64_t k, int64_t n, float* y) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t r = 0; r < rows; ++r) y[r * n + j] = Dot(x + r * k, w + j * k, k);
  }
}

REGISTER_OP("TfExtFewRowsMatMul")
    .Input("a: float")
    .Input("b: float")
    .Output("product: float")
    .Attr("transpose_b: bool = false")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->UnknownShapeOfRank(2));
      return absl::OkStatus();
    })
    .Doc("A product of few rows and a matrix; any number of rows is right, few are fast.");

class FewRowsMatMulOp : public tensorflow::OpKernel {
 public:
  explicit FewRowsMatMulOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& a = ctx->input(0);
    const tensorflow::Tensor& b = ctx->input(1);
    OP_REQUIRES(ctx, a.dims() == 2 && b.dims() == 2 && a.dim_size(1) == b.dim_size(transpose_ ? 1 : 0),
                absl::InvalidArgumentError(absl::StrCat("Matrix size-incompatible: In[0]: ", a.shape().DebugString(),
                                                        ", In[1]: ", b.shape().DebugString())));
    const int64_t rows = a.dim_size(0), k = a.dim_size(1), n = b.dim_size(transpose_ ? 0 : 1);
    tensorflow::Tensor* product = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tensorflow::TensorShape({rows, n}), &product));
    const float *x = a.flat<float>().data(), *w = b.flat<float>().data();
    float* y = product->flat<float>().data();
    if (transpose_) {
      MultiplyTransposed(x, w, rows, k, n, y);
    } else {
      Multiply(x, w, rows, k, n, y);
    }
  }

 private:
  bool transpose_;
};

REGISTER_KERNEL_BUILDER(Name("TfExtFewRowsMatMul").Device(tensorflow::DEVICE_CPU), FewRowsMatMulOp);

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
