#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-math-errno", "no-trapping-math")  // else selections and roots are not vectorised
#endif

#include "custom_ops/recursion/fused_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "custom_ops/recursion/clones.h"

namespace tf_ext {
namespace recursion {
namespace {

#define TF_EXT_INLINE inline __attribute__((always_inline))

// e^x for floats, within 2 units in the last place: x = n ln 2 + r, and a polynomial for e^r on |r| <= ln 2 / 2.
TF_EXT_INLINE float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = std::nearbyintf(x * 1.44269504088896341f);
  float r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

// Also where e^x, or the power of two in it, is out of the range of normal floats.
TF_EXT_INLINE float WideExp(float x) {
  const float half = Exp(0.5f * x);
  return x > 87.0f || x < -86.0f ? half * half : Exp(x);
}

TF_EXT_INLINE float Sigmoid(float x) {
  const float y = 1.0f / (1.0f + Exp(-x));
  return x != x ? x : y;
}

// (1 - e^-2|x|) / (1 + e^-2|x|), and near zero, where that cancels, the odd series of tanh.
TF_EXT_INLINE float Tanh(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float e = Exp(-2.0f * magnitude);
  const float far = (1.0f - e) / (1.0f + e);
  const float s = x * x;
  float p = -929569.0f / 638512875;
  p = p * s + 21844.0f / 6081075;
  p = p * s - 1382.0f / 155925;
  p = p * s + 62.0f / 2835;
  p = p * s - 17.0f / 315;
  p = p * s + 2.0f / 15;
  p = p * s - 1.0f / 3;
  const float near = magnitude + magnitude * s * p;
  const float y = magnitude < 0.45f ? near : far;
  const float result = x < 0 ? -y : y;
  return x != x ? x : result;
}

#define TF_EXT_LOOP(expression)             \
  _Pragma("GCC ivdep")                      \
  for (int64_t i = 0; i < width; ++i) {     \
    const float x = a[i];                   \
    to[i] = (expression);                   \
  }                                         \
  break
#define TF_EXT_LOOP2(expression)            \
  _Pragma("GCC ivdep")                      \
  for (int64_t i = 0; i < width; ++i) {     \
    const float x = a[i], y = b[i];         \
    to[i] = (expression);                   \
  }                                         \
  break

TF_EXT_INLINE void Apply(RowOp op, float* to, const float* a, const float* b, int64_t width) {
  switch (op) {
    case RowOp::kCopy: TF_EXT_LOOP(x);
    case RowOp::kAdd: TF_EXT_LOOP2(x + y);
    case RowOp::kSub: TF_EXT_LOOP2(x - y);
    case RowOp::kMul: TF_EXT_LOOP2(x * y);
    case RowOp::kDiv: TF_EXT_LOOP2(x / y);
    case RowOp::kMax: TF_EXT_LOOP2((x > y || x != x) ? x : y);  // not a number in either comes through
    case RowOp::kMin: TF_EXT_LOOP2((x < y || x != x) ? x : y);
    case RowOp::kNeg: TF_EXT_LOOP(-x);
    case RowOp::kSquare: TF_EXT_LOOP(x * x);
    case RowOp::kAbs: TF_EXT_LOOP(x < 0 ? -x : x);
    case RowOp::kRelu: TF_EXT_LOOP(x < 0 ? 0.0f : x);
    case RowOp::kSqrt: TF_EXT_LOOP(std::sqrt(x));
    case RowOp::kExp: TF_EXT_LOOP(x != x ? x : WideExp(x));
    case RowOp::kSigmoid: TF_EXT_LOOP(Sigmoid(x));
    case RowOp::kTanh: TF_EXT_LOOP(Tanh(x));
    case RowOp::kSigmoidGrad: TF_EXT_LOOP2(y * x * (1.0f - x));
    case RowOp::kTanhGrad: TF_EXT_LOOP2(y * (1.0f - x * x));
    case RowOp::kReluGrad: TF_EXT_LOOP2(y > 0 ? x : 0.0f);
    case RowOp::kNumOps: break;
  }
}

TF_EXT_CLONES void RunLevel(const RowInstruction* program, int64_t size, float** operands, const RowView* views,
                            int num_views, int64_t width, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int v = 0; v < num_views; ++v) {
      const RowView& view = views[v];
      if (view.base == nullptr) continue;
      operands[v] = view.base + (view.offsets == nullptr ? row * view.stride : view.offsets[row]);
    }
    for (int64_t p = 0; p < size; ++p) {
      const RowInstruction& instruction = program[p];
      Apply(instruction.op, operands[instruction.to], operands[instruction.a], operands[instruction.b], width);
    }
  }
}

}  // namespace

void RunRows(const std::vector<RowInstruction>& program, const std::vector<RowView>& views, int num_scratch,
             int64_t width, int64_t begin, int64_t end) {
  const int64_t padded = (width + 15) / 16 * 16;
  const auto unread = [](const RowView& view) { return view.base == nullptr; };
  const int64_t num_unread = std::count_if(views.begin(), views.end(), unread);
  std::vector<float> scratch((num_scratch + num_unread) * padded + 16);
  float* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  std::vector<float*> operands(views.size());
  for (int s = 0; s < num_scratch; ++s) operands.push_back(aligned + s * padded);
  aligned += num_scratch * padded;
  for (size_t v = 0; v < views.size(); ++v) {
    if (!unread(views[v])) continue;
    operands[v] = aligned;
    aligned += padded;
  }
  RunLevel(program.data(), program.size(), operands.data(), views.data(), views.size(), width, begin, end);
}

}  // namespace recursion
}  // namespace tf_ext
