// TfExtCallRandom: random numbers of a call's own stream, told by the call's path (`uid`), for one call or many at once.
//
// Row i of the batched form equals the plain form for uid[i], so both executors draw the same numbers, in whatever order
// calls run. Philox is keyed by (seed, salt) and counts from the uid.
#include <algorithm>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/lib/random/philox_random.h"
#include "tensorflow/core/lib/random/random_distributions.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::random::PhiloxRandom;

REGISTER_OP("TfExtCallRandom")
    .Input("shape: Tshape")
    .Input("seed: int64")
    .Input("uid: int64")
    .Input("limits: num_limits * dtype")
    .Output("output: dtype")
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .Attr("dtype: {half, bfloat16, float, double, int32, int64}")
    .Attr("distribution: {'uniform', 'normal', 'truncated_normal', 'uniform_int'}")
    .Attr("salt: int")
    .Attr("num_limits: int >= 0")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      tensorflow::shape_inference::ShapeHandle row, out;
      TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(0, &row));
      TF_RETURN_IF_ERROR(c->Concatenate(c->input(2), row, &out));
      c->set_output(0, out);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Draws random numbers for each call.

seed: [2], the same for the whole run.
uid: identities of the calls: a scalar, or [n].
limits: minval and maxval of 'uniform_int', nothing otherwise.
salt: tells the draws of one call apart.
output: uid.shape + shape.
)doc");

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

PhiloxRandom Stream(const int64_t* seed, int64_t salt, int64_t uid) {
  PhiloxRandom::Key key;
  PhiloxRandom::ResultType counter;
  const uint64_t k = Mix(static_cast<uint64_t>(seed[0]) + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(salt + 1));
  const uint64_t high = static_cast<uint64_t>(uid) ^ Mix(static_cast<uint64_t>(seed[1]));
  key[0] = static_cast<uint32_t>(k);
  key[1] = static_cast<uint32_t>(k >> 32);
  counter[0] = 0;  // draws within the call
  counter[1] = 0;
  counter[2] = static_cast<uint32_t>(high);
  counter[3] = static_cast<uint32_t>(high >> 32);
  return PhiloxRandom(counter, key);
}

template <typename Distribution, typename T>
void Fill(PhiloxRandom stream, Distribution distribution, T* out, int64_t count) {
  constexpr int kGroup = Distribution::kResultElementCount;
  for (int64_t i = 0; i < count; i += kGroup) {
    const auto group = distribution(&stream);
    std::copy_n(&group[0], std::min<int64_t>(kGroup, count - i), out + i);
  }
}

// Rejection takes an unknown number of draws each.
template <typename T>
void FillTruncated(PhiloxRandom stream, T* out, int64_t count) {
  using Single = tensorflow::random::SingleSampleAdapter<PhiloxRandom>;
  Single single(&stream);
  tensorflow::random::TruncatedNormalDistribution<Single, T> distribution;
  constexpr int kGroup = decltype(distribution)::kResultElementCount;
  for (int64_t i = 0; i < count; i += kGroup) {
    const auto group = distribution(&single);
    std::copy_n(&group[0], std::min<int64_t>(kGroup, count - i), out + i);
  }
}

template <typename T>
class CallRandomOp : public OpKernel {
 public:
  explicit CallRandomOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("distribution", &distribution_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("salt", &salt_));
    constexpr bool kInteger = std::is_integral<T>::value;
    OP_REQUIRES(ctx, kInteger == (distribution_ == "uniform_int") && ctx->num_inputs() == (kInteger ? 5 : 3),
                absl::InvalidArgumentError("TfExtCallRandom: dtype, distribution and limits do not fit"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& uid = ctx->input(2);
    OP_REQUIRES(ctx, ctx->input(1).NumElements() == 2,
                absl::InvalidArgumentError("TfExtCallRandom: expected a seed of two numbers"));
    TensorShape row;
    OP_REQUIRES_OK(ctx, MakeRow(ctx->input(0), &row));
    TensorShape shape = uid.shape();
    shape.AppendShape(row);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    const int64_t* seed = ctx->input(1).flat<int64_t>().data();
    const int64_t* uids = uid.flat<int64_t>().data();
    T* out = output->flat<T>().data();
    const int64_t count = row.num_elements();
    for (int64_t i = 0; i < uid.NumElements(); ++i, out += count) {
      FillRow(ctx, Stream(seed, salt_, uids[i]), out, count);
    }
  }

 private:
  static absl::Status MakeRow(const Tensor& shape, TensorShape* row) {
    if (shape.dims() != 1) return absl::InvalidArgumentError("random numbers: expected a shape of rank 1");
    if (shape.dtype() == tensorflow::DT_INT32) {
      return tensorflow::TensorShapeUtils::MakeShape(shape.flat<int32_t>().data(), shape.NumElements(), row);
    }
    return tensorflow::TensorShapeUtils::MakeShape(shape.flat<int64_t>().data(), shape.NumElements(), row);
  }

  void FillRow(OpKernelContext* ctx, const PhiloxRandom& stream, T* out, int64_t count) const {
    if constexpr (std::is_integral<T>::value) {
      const T low = ctx->input(3).scalar<T>()(), high = ctx->input(4).scalar<T>()();
      OP_REQUIRES(ctx, low < high, absl::InvalidArgumentError("random integers: expected minval < maxval"));
      Fill(stream, tensorflow::random::UniformDistribution<PhiloxRandom, T>(low, high), out, count);
    } else if (distribution_ == "uniform") {
      Fill(stream, tensorflow::random::UniformDistribution<PhiloxRandom, T>(), out, count);
    } else if (distribution_ == "normal") {
      Fill(stream, tensorflow::random::NormalDistribution<PhiloxRandom, T>(), out, count);
    } else {
      FillTruncated<T>(stream, out, count);
    }
  }

  std::string distribution_;
  int64_t salt_;
};

#define TF_EXT_REGISTER(T)                                                                         \
  REGISTER_KERNEL_BUILDER(                                                                         \
      Name("TfExtCallRandom").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("dtype"), CallRandomOp<T>)
TF_EXT_REGISTER(Eigen::half);
TF_EXT_REGISTER(Eigen::bfloat16);
TF_EXT_REGISTER(float);
TF_EXT_REGISTER(double);
TF_EXT_REGISTER(int32_t);
TF_EXT_REGISTER(int64_t);
#undef TF_EXT_REGISTER

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
