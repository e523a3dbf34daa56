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

namespace {

using tensorflow::TypeIndex;  // the macros below name it unqualified

// A tape has no gradient, but automatic differentiation of a function that returns one among its intermediates still makes
// zeros for it and adds these up.
absl::Status NoTape(tensorflow::OpKernelContext* ctx, const TapeHandle& tape, TapeHandle* out) {
  *out = TapeHandle();
  return absl::OkStatus();
}

absl::Status SumOfNoTapes(tensorflow::OpKernelContext* ctx, const TapeHandle& a, const TapeHandle& b,
                          TapeHandle* out) {
  *out = TapeHandle();
  return absl::OkStatus();
}

REGISTER_UNARY_VARIANT_UNARY_OP_FUNCTION(tensorflow::ZEROS_LIKE_VARIANT_UNARY_OP, tensorflow::DEVICE_CPU, TapeHandle,
                                         NoTape);
REGISTER_UNARY_VARIANT_BINARY_OP_FUNCTION(tensorflow::ADD_VARIANT_BINARY_OP, tensorflow::DEVICE_CPU, TapeHandle,
                                          SumOfNoTapes);

}  // namespace

}  // namespace recursion
}  // namespace tf_ext
