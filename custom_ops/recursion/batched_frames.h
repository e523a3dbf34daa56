// The calls of a batched run that have not returned.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_FRAMES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_FRAMES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "custom_ops/recursion/rows.h"

namespace tf_ext {
namespace recursion {
namespace batched {

// A slot with this for its block, or less, holds the results of a mapped call: see Lists.
constexpr int32_t kListBlock = -2;
inline bool IsList(Ref ref) { return ref.block <= kListBlock; }

// One call. Its slots follow it in memory: a run can have millions of frames.
struct Frame {
  Frame* parent;     // null: a root
  uint64_t uid;
  int32_t block;     // the block whose graph ran last, or will run
  int32_t pending;   // calls (and a side block) to wait for
  int32_t depth;
  int32_t call;      // which call of the parent's block
  int32_t index;     // j of a mapped call; row of a root
  int32_t serial;    // number among the collected calls

  Ref* slots() { return reinterpret_cast<Ref*>(this + 1); }
};

// Frames lie all over the memory, but which comes when is known: asks for the one a few places ahead.
inline void PrefetchFrame(const std::vector<Frame*>& frames, size_t i) {
  constexpr size_t kDistance = 8;
  if (i + kDistance >= frames.size()) return;
  const char* frame = reinterpret_cast<const char*>(frames[i + kDistance]);
  __builtin_prefetch(frame, 1);
  __builtin_prefetch(frame + 64, 1);
}

// The same for the caller of a frame that is about to return.
inline void PrefetchParent(const std::vector<Frame*>& frames, size_t i) {
  constexpr size_t kDistance = 4;
  if (i + kDistance >= frames.size()) return;
  const char* parent = reinterpret_cast<const char*>(frames[i + kDistance]->parent);
  __builtin_prefetch(parent, 1);
  __builtin_prefetch(parent + 64, 1);
}

// Frames of one function: memory is cut from slabs and used again.
class FramePool {
 public:
  explicit FramePool(int num_slots) : num_slots_(num_slots), bytes_(sizeof(Frame) + num_slots * sizeof(Ref)) {}

  // A frame with empty slots; the rest is for the caller to fill.
  Frame* New() {
    Frame* frame = free_;
    if (frame != nullptr) {
      free_ = frame->parent;
    } else {
      if (left_ == 0) Grow();
      frame = reinterpret_cast<Frame*>(next_);
      next_ += bytes_;
      --left_;
    }
    Ref* slots = frame->slots();
    for (int s = 0; s < num_slots_; ++s) slots[s] = Ref();
    return frame;
  }
  void Free(Frame* frame) {
    frame->parent = free_;
    free_ = frame;
  }
  int num_slots() const { return num_slots_; }

 private:
  void Grow() {
    left_ = size_;
    slabs_.emplace_back(new char[size_ * bytes_]);
    next_ = slabs_.back().get();
    if (size_ < 8192) size_ *= 2;
  }

  int num_slots_;
  size_t bytes_;
  Frame* free_ = nullptr;
  char* next_ = nullptr;
  int64_t left_ = 0;
  int64_t size_ = 32;
  std::vector<std::unique_ptr<char[]>> slabs_;
};

// Results of mapped calls, while they come in. The calls that a batch of frames makes at one place share the memory.
class Lists {
 public:
  // Lists of sizes[0], sizes[1], ... rows; the slot of the i-th frame is to hold Slot(list, i).
  int New(absl::Span<const int64_t> sizes) {
    int index = lists_.size();
    if (free_.empty()) {
      lists_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    List& list = lists_[index];
    list.starts.assign(1, 0);
    for (int64_t size : sizes) list.starts.push_back(list.starts.back() + size);
    list.rows.assign(list.starts.back(), Ref());
    list.users = sizes.size();
    return index;
  }
  static Ref Slot(int list, int32_t frame) { return Ref{kListBlock - list, frame}; }

  absl::Span<Ref> Rows(Ref slot) {
    List& list = lists_[kListBlock - slot.block];
    const int32_t start = list.starts[slot.row];
    return absl::MakeSpan(list.rows.data() + start, list.starts[slot.row + 1] - start);
  }
  void Release(Ref slot, BlockStore& store) {
    for (const Ref& ref : Rows(slot)) {
      if (ref.block >= 0) store.Release(ref.block);
    }
    const int index = kListBlock - slot.block;
    if (--lists_[index].users == 0) free_.push_back(index);
  }

 private:
  struct List {
    std::vector<Ref> rows;
    std::vector<int32_t> starts;
    int32_t users = 0;
  };
  std::vector<List> lists_;
  std::vector<int32_t> free_;
};

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_BATCHED_FRAMES_H_
