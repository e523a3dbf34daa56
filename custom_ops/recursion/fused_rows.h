// Straight-line arithmetic on rows: what a chain of elementwise operators computes, in one pass over memory.
//
// A program's operands are pointers to rows of `width` floats: parts of input rows, parts of output rows, or scratch rows
// that stay in the first-level cache. tf_ext/recursion/_fusion.py writes these programs.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_FUSED_ROWS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_FUSED_ROWS_H_

#include <cstdint>
#include <vector>

namespace tf_ext {
namespace recursion {

// Numbered as in tf_ext/recursion/_fusion.py.
enum class RowOp : int {
  kCopy, kAdd, kSub, kMul, kDiv, kMax, kMin, kNeg, kSquare, kAbs, kRelu, kSqrt, kExp, kSigmoid, kTanh,
  kSigmoidGrad,  // a: y, b: dy
  kTanhGrad,     // a: y, b: dy
  kReluGrad,     // a: dy, b: features
  kNumOps
};

struct RowInstruction {
  RowOp op;
  int to, a, b;
};

// A part of a row: `base` moves on by `stride` floats from row to row (0: the same for all rows), or is taken anew at
// `offsets[row]` for each row. No `base`: a part of an output that nobody reads; it stays in the cache, like scratch.
struct RowView {
  float* base;
  int64_t stride;
  const int64_t* offsets = nullptr;
};

// Runs the program on rows [begin, end). `views` come first among the operands; `num_scratch` scratch rows follow.
void RunRows(const std::vector<RowInstruction>& program, const std::vector<RowView>& views, int num_scratch,
             int64_t width, int64_t begin, int64_t end);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_FUSED_ROWS_H_
