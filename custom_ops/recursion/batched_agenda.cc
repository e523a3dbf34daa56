#include "custom_ops/recursion/batched_agenda.h"

#include <algorithm>

namespace tf_ext {
namespace recursion {
namespace batched {

Agenda::Agenda(const BatchedPlan& plan) : blocks_(plan.blocks.size()) {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    blocks_[b].plain.block = b;
    blocks_[b].plain.rank = std::min(std::max(plan.blocks[b].rank, 0), kNumRanks - 1);
  }
}

void Agenda::Push(int block, const ShapeKey& key, Frame* frame) {
  BlockGroups& groups = blocks_[block];
  if (groups.last == nullptr || groups.last->key != key) {
    std::unique_ptr<Group>& group = groups.by_key[key];
    if (group == nullptr) {
      group = std::make_unique<Group>();
      group->block = block;
      group->rank = groups.plain.rank;
      group->key = key;
    }
    groups.last = group.get();
  }
  Push(*groups.last, frame);
}

Agenda::Group* Agenda::Choose(bool expand_last) {
  static constexpr int kExpandFirst[] = {0, 1, 2, 3};
  static constexpr int kExpandLast[] = {1, 2, 3, 0};
  for (int rank : expand_last ? kExpandLast : kExpandFirst) {
    std::vector<Group*>& open = open_[rank];
    if (open.empty()) continue;
    if (rank < 3 && !expand_last) return open.front();
    return *std::max_element(open.begin(), open.end(),
                             [](const Group* a, const Group* b) { return a->deepest < b->deepest; });
  }
  return nullptr;
}

bool Agenda::Pop(std::optional<int64_t> scarce, int* block, std::vector<Frame*>* frames) {
  Group* group = Choose(scarce.has_value());
  if (group == nullptr) return false;
  // A sixteenth of what is left: calls of a deep recursion get narrower, and end, before the frames do.
  int64_t max_rows = kMaxRows;
  if (scarce.has_value() && group->rank == 0) max_rows = std::min(kMaxRows, std::max(kMinRows, *scarce / 16));
  *block = group->block;
  frames->clear();
  if (static_cast<int64_t>(group->frames.size()) <= max_rows) {
    std::swap(*frames, group->frames);
    std::vector<Group*>& open = open_[group->rank];
    open.erase(std::find(open.begin(), open.end(), group));
    return true;
  }
  // The newest: so that a run with more calls than fit into one batch goes into depth, and can let calls return.
  frames->assign(group->frames.end() - max_rows, group->frames.end());
  group->frames.resize(group->frames.size() - max_rows);
  group->deepest = 0;
  for (const Frame* frame : group->frames) group->deepest = std::max(group->deepest, frame->depth);
  return true;
}

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext
