#include "custom_ops/recursion/tape.h"

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/variant_op_registry.h"

namespace tf_ext {
namespace recursion {

std::string TapeHandle::DebugString() const {
  if (tape == nullptr) return "recursion tape (none was kept)";
  const Program& program = tape->request().program->program();
  return absl::StrCat("recursion tape of SubGraph '", program.functions[program.root].name, "'");
}

// A variant has no way to report an error here; what is written cannot be read back, and Decode refuses it.
void TapeHandle::Encode(tensorflow::VariantTensorData* data) const {
  LOG(ERROR) << "A " << DebugString() << " cannot be serialized: it exists only in the process that ran the recursion. "
             << "Compute the gradient on the device and in the process of the forward run.";
  data->set_type_name(TypeName());
}

bool TapeHandle::Decode(const tensorflow::VariantTensorData& data) { return false; }

}  // namespace recursion
}  // namespace tf_ext
