// A tape as a value of a graph: from the root operator to the operator that computes its gradient.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_TAPE_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_TAPE_H_

#include <memory>
#include <string>

#include "custom_ops/recursion/executor.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace tf_ext {
namespace recursion {

// The content of a scalar variant. `tape` is null when the run kept none.
struct TapeHandle {
  std::shared_ptr<Tape> tape;

  std::string TypeName() const { return "tf_ext::recursion::TapeHandle"; }
  std::string DebugString() const;
  // A tape lives in one process: both say so, by failing.
  void Encode(tensorflow::VariantTensorData* data) const;
  bool Decode(const tensorflow::VariantTensorData& data);
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_TAPE_H_
