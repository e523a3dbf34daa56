// The operator that computes a recursion's gradient.
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/tape.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;

class RecursionGradOp : public tensorflow::OpKernel {
 public:
  explicit RecursionGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("arg_grads", &arg_grads_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("env_dense", &env_dense_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("env_slices", &env_slices_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("slice_shapes", &slice_shapes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tvalues", &slice_types_));
    OP_REQUIRES(ctx, slice_shapes_.size() == env_slices_.size() && slice_types_.size() == env_slices_.size(),
                absl::InvalidArgumentError("env_slices, slice_shapes and Tvalues must have equal lengths"));
  }

  void Compute(OpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Backward(ctx)); }

 private:
  absl::Status Backward(OpKernelContext* ctx) {
    const Tensor& input = ctx->input(0);
    const TapeHandle* handle = input.dims() == 0 ? input.scalar<tensorflow::Variant>()().get<TapeHandle>() : nullptr;
    if (handle == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("expected the tape of a recursion, got ", input.DebugString()));
    }
    if (handle->tape == nullptr) {
      return absl::FailedPreconditionError(
          "gradient asked of a run that kept no tape; expected a recursion operator with record = true");
    }
    const std::shared_ptr<Tape> tape = handle->tape;
    std::vector<Tensor> dresults, dcalls, dargs;
    TF_RETURN_IF_ERROR(ReadGradients(ctx, *tape, &dresults, &dcalls));
    EnvGradients env_gradients(tape->request().program->program(), &tape->env(), ctx);
    TF_RETURN_IF_ERROR(tape->Backward(ctx, dresults, dcalls, &dargs, &env_gradients));
    TF_RETURN_IF_ERROR(WriteArgs(ctx, *tape, dargs));
    return WriteEnvironment(ctx, &env_gradients);
  }

  // One entry per result of the root function, and per argument and result of its collected calls.
  static absl::Status ReadGradients(OpKernelContext* ctx, const Tape& tape, std::vector<Tensor>* dresults,
                                    std::vector<Tensor>* dcalls) {
    const Program& program = tape.request().program->program();
    const FunctionSpec& root = program.functions[program.root];
    TF_RETURN_IF_ERROR(ReadList(ctx, "dresults", root, root.results, dresults));
    OpInputList inputs;
    TF_RETURN_IF_ERROR(ctx->input_list("dcalls", &inputs));
    if (inputs.size() == 0) return absl::OkStatus();
    if (!tape.request().collect) return absl::InvalidArgumentError("dcalls given for calls that were not collected");
    std::vector<int> slots(root.num_args);
    std::iota(slots.begin(), slots.end(), 0);
    slots.insert(slots.end(), root.results.begin(), root.results.end());
    return ReadList(ctx, "dcalls", root, slots, dcalls);
  }

  // One entry per slot; a default tensor where it is not floating, since nothing is given for these.
  static absl::Status ReadList(OpKernelContext* ctx, const char* name, const FunctionSpec& root,
                               const std::vector<int>& slots, std::vector<Tensor>* gradients) {
    OpInputList inputs;
    TF_RETURN_IF_ERROR(ctx->input_list(name, &inputs));
    int next = 0;
    for (int slot : slots) {
      Tensor& gradient = gradients->emplace_back();
      if (!tensorflow::DataTypeIsFloating(root.slot_types[slot])) continue;
      if (next < inputs.size() && inputs[next].dtype() == root.slot_types[slot]) gradient = inputs[next];
      ++next;
    }
    if (next == inputs.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " must have one gradient per floating value of SubGraph '",
                                                   root.name, "', ", next, ", got ", inputs.size()));
  }

  absl::Status WriteArgs(OpKernelContext* ctx, const Tape& tape, const std::vector<Tensor>& dargs) {
    OpOutputList outputs;
    TF_RETURN_IF_ERROR(ctx->output_list("dargs", &outputs));
    const std::vector<Tensor>& args = tape.request().args;
    if (outputs.size() != arg_grads_.size()) return absl::InvalidArgumentError("Tdargs and arg_grads differ in length");
    for (size_t i = 0; i < arg_grads_.size(); ++i) {
      const int arg = arg_grads_[i];
      if (arg < 0 || arg >= args.size()) return absl::InvalidArgumentError(absl::StrCat("there is no argument ", arg));
      const bool reached = arg < dargs.size() && !IsNone(dargs[arg]);
      outputs.set(i, reached ? dargs[arg] : Zeros(args[arg].dtype(), args[arg].shape()));
    }
    return absl::OkStatus();
  }

  absl::Status WriteEnvironment(OpKernelContext* ctx, EnvGradients* env_gradients) {
    OpOutputList dense, values, indices;
    TF_RETURN_IF_ERROR(ctx->output_list("denv", &dense));
    TF_RETURN_IF_ERROR(ctx->output_list("values", &values));
    TF_RETURN_IF_ERROR(ctx->output_list("indices", &indices));
    if (dense.size() != env_dense_.size() || values.size() != env_slices_.size() ||
        indices.size() != env_slices_.size()) {
      return absl::InvalidArgumentError("Tdenv, Tvalues or Tindices differ in length from env_dense or env_slices");
    }
    for (size_t i = 0; i < env_dense_.size(); ++i) {
      Tensor gradient;
      TF_RETURN_IF_ERROR(env_gradients->Dense(env_dense_[i], &gradient));
      dense.set(i, gradient);
    }
    for (size_t i = 0; i < env_slices_.size(); ++i) {
      tensorflow::TensorShape row;
      for (int d = 0; d < slice_shapes_[i].dims(); ++d) {
        row.AddDim(std::max<int64_t>(0, slice_shapes_[i].dim_size(d)));
      }
      Tensor value, index;
      TF_RETURN_IF_ERROR(env_gradients->Slices(env_slices_[i], row, slice_types_[i], &value, &index));
      values.set(i, value);
      indices.set(i, index);
    }
    return absl::OkStatus();
  }

  std::vector<int> arg_grads_, env_dense_, env_slices_;
  std::vector<tensorflow::PartialTensorShape> slice_shapes_;
  std::vector<tensorflow::DataType> slice_types_;
};

REGISTER_KERNEL_BUILDER(Name("TfExtRecursionGrad").Device(tensorflow::DEVICE_CPU), RecursionGradOp);

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
