// Concatenations that need not be computed.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_JOIN_SLOTS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_JOIN_SLOTS_H_

#include "custom_ops/recursion/program.h"

namespace tf_ext {
namespace recursion {

// Cells put the values of children side by side and multiply the whole. In a batch the values have just been gathered, so
// the concatenation would copy everything once more: here the batched graphs that begin with one are rewritten to be fed
// its result (Source::joined), which costs a gather nothing. Likewise gradient graphs that end by splitting a gradient over
// slots give it away whole (Target::joined). Expects a checked program.
void JoinSlots(Program* program);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_JOIN_SLOTS_H_
