// What the invoke executor knows about a program before it runs: who reads a slot last, and what a gradient needs kept.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_PLAN_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_PLAN_H_

#include <memory>
#include <vector>

#include "custom_ops/recursion/program.h"

namespace tf_ext {
namespace recursion {

struct BlockPlan {
  // The reader is the last one of the slot's value and may take it over.
  std::vector<bool> feed_last;               // per feed of the plain graph
  std::vector<bool> move_last;               // per move
  std::vector<std::vector<bool>> args_last;  // per call and argument

  // Kept per execution when recording.
  std::vector<int> kept_slots;   // slots whose values before the execution the gradient graph reads
  std::vector<int> shape_slots;  // slots whose gradients may have to be zeros of a shape known only at run time
  std::vector<int> written;      // slots that the plain graph writes
  int num_saved = 0;
  // Where the gradient graph's feeds come from: index into kept_slots, shape_slots (-1: the static shape is enough).
  std::vector<int> gradient_feeds;

  int num_values() const { return kept_slots.size() + num_saved; }
};

struct InvokePlan {
  std::vector<BlockPlan> blocks;
  bool complete = true;  // every block that computes something has a graph for single calls
  std::vector<std::vector<bool>> result_last;  // per function and result: the slot's last mention among the results
};

std::shared_ptr<const InvokePlan> MakeInvokePlan(const Program& program);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_INVOKE_PLAN_H_
