#include "custom_ops/recursion/product_kernels.h"

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/util.h"

namespace tf_ext {
namespace recursion {
namespace {

constexpr char kOneDnn[] = "_MklMatMul";
constexpr char kFewRowsOp[] = "TfExtFewRowsMatMul";

bool IsFloat(const tensorflow::NodeDef& node) {
  auto type = node.attr().find("T");
  return type != node.attr().end() && type->second.type() == tensorflow::DT_FLOAT;
}

}  // namespace

void ChooseProduct(tensorflow::NodeDef* node) {
  static const bool enabled =
      tensorflow::IsMKLEnabled() && tensorflow::OpRegistry::Global()->LookUp(kOneDnn) != nullptr;
  if (!enabled || node->op() != "MatMul" || !IsFloat(*node)) return;
  tensorflow::NodeDef candidate = *node;
  candidate.set_op(kOneDnn);
  (*candidate.mutable_attr())["_kernel"].set_s("MklNameChangeOp");
  const tensorflow::KernelDef* kernel = nullptr;
  if (tensorflow::FindKernelDef(tensorflow::DeviceType(tensorflow::DEVICE_CPU), candidate, &kernel, nullptr).ok()) {
    *node = std::move(candidate);
  }
}

absl::Status MakeFewRowsKernel(const tensorflow::NodeDef& node, tensorflow::FunctionLibraryRuntime* library,
                               std::unique_ptr<tensorflow::OpKernel>* kernel) {
  if ((node.op() != "MatMul" && node.op() != kOneDnn) || !IsFloat(node)) return absl::OkStatus();
  bool transpose_a = false, transpose_b = false;
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node, "transpose_a", &transpose_a));
  TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(node, "transpose_b", &transpose_b));
  if (transpose_a) return absl::OkStatus();
  tensorflow::NodeDef def;
  def.set_name(node.name());
  def.set_op(kFewRowsOp);
  *def.mutable_input() = node.input();
  (*def.mutable_attr())["transpose_b"].set_b(transpose_b);
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  TF_RETURN_IF_ERROR(
      tensorflow::NodeProperties::CreateFromNodeDef(std::move(def), tensorflow::OpRegistry::Global(), &properties));
  tensorflow::OpKernel* made = nullptr;
  TF_RETURN_IF_ERROR(library->CreateKernel(properties, &made));
  kernel->reset(made);
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
