// What the batched executor wants to know of a program's blocks before it runs: worked out once, read per batch.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_PLAN_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_PLAN_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "custom_ops/recursion/interpreter.h"
#include "custom_ops/recursion/program.h"
#include "custom_ops/recursion/shares.h"

namespace tf_ext {
namespace recursion {
namespace batched {

// What a frame holds in a slot: a row, or the rows of a mapped call's results, put together only where they are read.
enum class SlotKind : uint8_t { kRow, kSum, kStack };

// A slot that a block reads.
struct SlotRead {
  int slot = 0;
  SlotKind kind = SlotKind::kRow;
  bool keyed = false;  // frames can differ in the shape of this value: only equal ones may share a batch
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  tensorflow::PartialTensorShape row_shape;  // sum: of the value; stack: of one of its elements
};

// A tensor with a row per frame: of one slot, or of several side by side.
struct Gathered {
  std::vector<int> parts;  // BlockPlan::reads
  bool kept = false;       // the gradient graph reads it
};

// Where the i-th feed of a graph comes from. `index` counts in what the kind says.
struct Feed {
  enum class Kind {
    kSlot,            // BlockPlan::gathered
    kEnv,             // the environment
    kRows,
    kUid,
    kKept,            // gradient graphs: BatchRecord::kept
    kOutputGradient,  // gradient graphs: BlockPlan::outputs
  };
  Kind kind;
  int index = 0;
};

struct Output {
  int fetch = 0, lean_fetch = 0;  // of the graph that saves for the gradient, and of the one that does not
  int slot = 0;
  bool stacked = true;
  bool differentiated = false;  // the gradient graph asks for the gradient of it
  tensorflow::PartialTensorShape row_shape;
};

// A fetch of a gradient graph that is, or holds side by side, the gradient of a slot.
struct SlotGradient {
  int fetch = 0;
  int read = 0;             // BlockPlan::reads
  int64_t offset = 0;       // elements before those of the slot in a row of the fetch
  bool part = false;        // the fetch's rows are wider than the slot's
};

struct BlockPlan {
  int index = 0;
  int rank = 0;  // see BlockSpec; a block from which no call can follow is no longer expanding
  const BlockSpec* spec = nullptr;
  const FunctionSpec* function = nullptr;
  // First those of the forward graph, then those that only the gradient concerns.
  std::vector<SlotRead> reads;
  std::vector<Gathered> gathered;
  int num_forward_reads = 0, num_forward_gathered = 0;
  std::vector<Feed> feeds;
  std::vector<Output> outputs;
  bool keyed = false;
  bool needs_uid = false;

  // Of the gradient; `gradient` is -1 where there is none.
  int gradient = -1;
  std::vector<int> kept_slots;  // `kept` of a record: these of `gathered`, then these fetches, then the uids if needed
  std::vector<int> kept_fetches;
  bool keeps_uid = false;
  std::vector<Feed> gradient_feeds;
  std::vector<SlotGradient> slot_gradients;

  GraphCost cost;
  bool divisible_gradient = false;  // the gradients of shares may be computed at the same time
};

struct BatchedPlan {
  CompiledProgram* compiled = nullptr;  // which owns this
  std::vector<BlockPlan> blocks;
  std::vector<std::vector<SlotKind>> slot_kinds;  // by function and slot
  bool needs_uid = false;                          // some block reads it

  std::unique_ptr<tensorflow::Device> serial_device;  // for shares of batches; null: there are no threads to share with

  const Program& program() const { return compiled->program(); }
  static absl::StatusOr<std::shared_ptr<const BatchedPlan>> Create(CompiledProgram* compiled,
                                                                   tensorflow::Device* device);
};

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_PLAN_H_
