// Calls in progress, and what a finished call leaves behind for the gradient.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_FRAME_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_FRAME_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "custom_ops/recursion/invoke_plan.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace tf_ext {
namespace recursion {

struct Frame;
struct BackFrame;

// One execution of a block, newest first from Frame::last.
struct Record {
  Record* previous = nullptr;
  Record* side = nullptr;  // the execution of the block's side block
  int block = 0;
  int64_t num_children = 0;
  std::unique_ptr<Frame*[]> children;                   // of all calls of the block, in order
  std::unique_ptr<tensorflow::Tensor[]> values;         // BlockPlan::kept_slots, then the saved tensors
  std::unique_ptr<tensorflow::TensorShape[]> shapes;    // BlockPlan::shape_slots
};

// The rows that a map or range call has brought so far.
struct MappedResults {
  std::vector<std::vector<tensorflow::Tensor>> rows;  // per result and index
};

struct Frame {
  int function = 0;
  int block = 0;   // the block that is running or whose calls are awaited
  int call = 0;    // which of the parent's calls this is
  int64_t index = 0;  // row of a map or range call, or of the root call
  int64_t table_row = 0;  // of a range call: the integer it stands for
  int64_t depth = 0;
  uint64_t uid = 0;
  Frame* parent = nullptr;  // null: called by the root operator
  std::atomic<int64_t> pending{0};
  tensorflow::Tensor* slots = nullptr;
  std::vector<MappedResults> mapped;  // per call of the block, when one of them maps
  // When the run is recorded or collected.
  Record* last = nullptr;
  std::unique_ptr<tensorflow::Tensor[]> collected;  // arguments, then results
  int64_t collected_index = -1;                     // position among the collected calls
  BackFrame* back = nullptr;
};

// Objects that live until their pool dies, so that destroying a tree of them is a loop and no recursion, and so that an
// abandoned run frees what it had open.
template <typename T>
class ObjectPool {
 public:
  T* New() {
    if (used_ == kChunk || chunks_.empty()) {
      chunks_.emplace_back(new T[kChunk]);
      used_ = 0;
    }
    return &chunks_.back()[used_++];
  }

 private:
  static constexpr int kChunk = 64;
  std::vector<std::unique_ptr<T[]>> chunks_;
  int used_ = 0;
};

// The frames of one worker: taken from its free lists and returned there by whoever runs their last block.
class FramePool {
 public:
  explicit FramePool(const Program& program) : program_(program), slots_(program.functions.size()) {}

  Frame* NewFrame(int function) {
    Frame* frame;
    if (frames_.empty()) {
      frame = all_frames_.New();
    } else {
      frame = frames_.back();
      frames_.pop_back();
    }
    frame->function = function;
    frame->slots = NewSlots(function);
    return frame;
  }

  Record* NewRecord() { return all_records_.New(); }

  // The slots must be empty by now.
  void FreeSlots(Frame* frame) {
    slots_[frame->function].push_back(frame->slots);
    frame->slots = nullptr;
  }
  void FreeFrame(Frame* frame) { frames_.push_back(frame); }

  // Gives up the slots; frames and records stay.
  void DropSlots() {
    slots_.clear();
    all_slots_.clear();
    frames_.clear();
  }

 private:
  tensorflow::Tensor* NewSlots(int function) {
    std::vector<tensorflow::Tensor*>& free = slots_[function];
    if (free.empty()) {
      const size_t size = std::max<size_t>(1, program_.functions[function].slot_types.size());
      constexpr int kChunk = 16;
      all_slots_.emplace_back(new tensorflow::Tensor[size * kChunk]);
      for (int i = kChunk - 1; i >= 0; --i) free.push_back(all_slots_.back().get() + i * size);
    }
    tensorflow::Tensor* slots = free.back();
    free.pop_back();
    return slots;
  }

  const Program& program_;
  ObjectPool<Frame> all_frames_;
  ObjectPool<Record> all_records_;
  std::vector<Frame*> frames_;                     // free ones
  std::vector<std::vector<tensorflow::Tensor*>> slots_;  // free ones, per function
  std::vector<std::unique_ptr<tensorflow::Tensor[]>> all_slots_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_FRAME_H_
