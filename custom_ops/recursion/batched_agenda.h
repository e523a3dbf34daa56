// The frames that could go on, in groups that may share a batch.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_AGENDA_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_AGENDA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "custom_ops/recursion/batched_frames.h"
#include "custom_ops/recursion/batched_plan.h"

namespace tf_ext {
namespace recursion {
namespace batched {

// Shapes of the values that a block reads, as far as frames can differ in them.
using ShapeKey = std::vector<int64_t>;

class Agenda {
 public:
  explicit Agenda(const BatchedPlan& plan);

  void Push(int block, Frame* frame) { Push(blocks_[block].plain, frame); }
  void Push(int block, const ShapeKey& key, Frame* frame);

  // Takes the frames to run next, in the order they were pushed; false when there are none. What expands the set of frames
  // comes first, so that the batches of results are as large as they can be. With `scarce`, the number of frames that may
  // still be added, it comes last and in smaller batches.
  bool Pop(std::optional<int64_t> scarce, int* block, std::vector<Frame*>* frames);

 private:
  // More rows than this are no faster, and would only be more memory.
  static constexpr int64_t kMaxRows = 1 << 16;
  static constexpr int64_t kMinRows = 1 << 8;
  static constexpr int kNumRanks = 4;

  struct Group {
    int block = 0;
    int rank = 0;
    int32_t deepest = 0;
    ShapeKey key;
    std::vector<Frame*> frames;
  };
  struct BlockGroups {
    Group plain;
    Group* last = nullptr;
    absl::flat_hash_map<ShapeKey, std::unique_ptr<Group>> by_key;
  };

  void Push(Group& group, Frame* frame) {
    if (group.frames.empty()) {
      open_[group.rank].push_back(&group);
      group.deepest = frame->depth;
    } else if (frame->depth > group.deepest) {
      group.deepest = frame->depth;
    }
    group.frames.push_back(frame);
  }
  Group* Choose(bool expand_last);

  std::vector<BlockGroups> blocks_;
  std::vector<Group*> open_[kNumRanks];  // groups with frames, by the rank of their block
};

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_AGENDA_H_
