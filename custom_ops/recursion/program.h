// The program of a recursion as the runtime sees it: functions cut into blocks, calls between them, and the graphs that
// compute a block. docs/design/recursion.md specifies the encoding; this is its parsed and checked form.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_PROGRAM_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_ext {
namespace recursion {

// Where a graph's feed comes from.
struct Source {
  enum class Kind { kSlot, kEnv, kRows, kUid, kOutputGradient, kSaved };
  Kind kind;
  int index = -1;  // slot, environment value or saved tensor
  std::vector<int> joined;  // batched graphs: rows of these slots side by side, see join_slots.h
};

// Where a graph's fetch goes.
struct Target {
  enum class Kind { kSlot, kSaved, kSlotGradient, kEnvGradient, kProductX, kProductY, kSliceValues, kSliceIndices };
  Kind kind;
  int index = -1;   // slot, saved tensor, environment value or product
  int occurrence = 0;  // tells pairs of one product (or one environment value's slices) apart
  std::vector<int> joined;  // batched gradient graphs: gradients of these slots side by side
};

struct GraphSpec {
  tensorflow::GraphDef def;
  std::vector<std::string> feeds;
  std::vector<Source> sources;
  std::vector<std::string> fetches;  // "node:index"
  std::vector<Target> targets;
  std::vector<bool> stacked;  // batched graphs: the fetch has a row per frame; false: one value for all of them
};

struct CallSpec {
  enum class Mode { kOne, kMap, kRange };
  enum class Reduce { kNone, kStack, kSum };
  static constexpr int kIota = -1;
  static constexpr int kNotMapped = -2;

  Mode mode = Mode::kOne;
  Reduce reduce = Reduce::kNone;
  std::vector<int> callees;
  int selector = -1;
  std::vector<int> args;
  std::vector<bool> mapped;
  int start = -1, limit = -1;   // kRange
  std::vector<int> tables;      // kRange, per argument: environment value, kIota or kNotMapped
  std::vector<int> results;
  int site = 0;
};

struct BlockSpec {
  static constexpr int kReturn = -1;
  static constexpr int kJoin = -2;

  int function = 0;
  int plain = -1, batched = -1, plain_grad = -1, batched_grad = -1;  // graphs
  int plain_lean = -1, batched_lean = -1;  // the forward graphs without what is saved for the gradient
  std::vector<std::pair<int, int>> moves;                            // (to, from)
  int side = -1;
  int next = kReturn;
  int switch_slot = -1;
  std::vector<int> targets;
  int rank = 0;
  std::vector<CallSpec> calls;
};

struct FunctionSpec {
  std::string name;
  int num_args = 0;
  std::vector<tensorflow::DataType> slot_types;
  std::vector<tensorflow::PartialTensorShape> slot_shapes;
  int entry = 0;
  std::vector<int> results;
  bool is_branch = false;
};

// A gradient that is the product of rows gathered over the whole run: X^T dY, or dY^T X when transposed.
struct ProductSpec {
  int env = 0;
  bool transposed = false;
};

struct Program {
  int root = 0;
  int64_t max_depth = 0;
  int64_t max_live_calls = 0;
  std::vector<tensorflow::DataType> env_types;
  std::vector<FunctionSpec> functions;
  std::vector<BlockSpec> blocks;
  std::vector<GraphSpec> graphs;
  std::vector<ProductSpec> products;
  tensorflow::FunctionDefLibrary library;

  // Parses and checks a serialized program; every index is in range afterwards.
  static absl::StatusOr<Program> Parse(const std::string& serialized);
};

// How many integers there are from `start` up to `limit`; the largest int64 where there are more than that.
inline int64_t RangeSize(int64_t start, int64_t limit) {
  if (limit <= start) return 0;
  const uint64_t size = static_cast<uint64_t>(limit) - static_cast<uint64_t>(start);
  const uint64_t largest = static_cast<uint64_t>(INT64_MAX);
  return static_cast<int64_t>(size < largest ? size : largest);
}

// The identity of a call: depends on the path of calls that led to it and on nothing else.
inline uint64_t ChildUid(uint64_t parent, int64_t site, int64_t index) {
  uint64_t z = parent + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(site + 2) +
               0xD1B54A32D192ED03ull * static_cast<uint64_t>(index + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_PROGRAM_H_
