// What the kernels of a recursion see of the step around them, and the registers of the graphs that run in it.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_STEP_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_STEP_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "custom_ops/recursion/packed_matrices.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// The working memory of one graph in one step: made once, so that running the graph again sets up nothing.
struct Activation {
  std::vector<tensorflow::Tensor> registers;
  std::vector<tensorflow::TensorValue> inputs;  // of all instructions, one after the other
};

// Not shared between threads.
class Step {
 public:
  // Inside a root kernel.
  Step(tensorflow::OpKernelContext* ctx, tensorflow::FunctionLibraryRuntime* library,
       const std::vector<tensorflow::Tensor>* env, int num_graphs);
  // Outside of any step: for kernels without effects at compile time.
  Step(tensorflow::Device* device, tensorflow::FunctionLibraryRuntime* library);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const std::vector<tensorflow::Tensor>* env() const { return env_; }
  // Kernels see `device`, which has one thread, instead of that of the root kernel.
  void UseSerialDevice(tensorflow::DeviceBase* device) {
    params_.device = device;
    serial_ = true;
  }
  bool serial() const { return serial_; }
  // Products with transposed environment values may be computed with these, which belong to the same environment.
  void UsePacked(PackedMatrices* packed) { packed_ = packed; }
  PackedMatrices* packed() const { return packed_; }
  tensorflow::DeviceBase* device() const { return params_.device; }
  std::unique_ptr<Activation>& activation(int graph) { return activations_[graph]; }

  // Runs one kernel on the calling thread; `release(output, tensor)` receives its outputs. `async` is the kernel when it is
  // an asynchronous one, else null; `required` tells per output whether anybody reads it, null: all. On error the message
  // names the operator.
  template <typename Release>
  absl::Status RunKernel(tensorflow::OpKernel* kernel, tensorflow::AsyncOpKernel* async,
                         absl::Span<const tensorflow::TensorValue> inputs, int num_outputs, Release release,
                         const bool* required = nullptr) {
    params_.op_kernel = kernel;
    params_.outputs_required_array = const_cast<bool*>(required);
    params_.inputs = inputs;
    if (inputs.size() > attributes_.size() || num_outputs > attributes_.size()) {
      attributes_.resize(std::max<size_t>(inputs.size(), num_outputs));
      params_.output_attr_array = attributes_.data();
    }
    params_.input_alloc_attrs = absl::MakeConstSpan(attributes_.data(), inputs.size());
    tensorflow::OpKernelContext context(&params_, num_outputs);
    if (async == nullptr) {
      kernel->Compute(&context);
    } else {
      ComputeAndWait(async, &context);
    }
    if (!context.status().ok()) return Explain(*kernel, context.status());
    for (int i = 0; i < num_outputs; ++i) {
      tensorflow::TensorValue output = context.release_output(i);
      if (output.tensor == nullptr) {
        if (required != nullptr && !required[i]) continue;
        return Explain(*kernel, absl::InternalError("an output was not set"));
      }
      release(i, std::move(*output.tensor));
      delete output.tensor;
    }
    return absl::OkStatus();
  }

 private:
  void Init();
  static void ComputeAndWait(tensorflow::AsyncOpKernel* kernel, tensorflow::OpKernelContext* context);
  static absl::Status Explain(const tensorflow::OpKernel& kernel, const absl::Status& status);

  tensorflow::OpKernelContext::Params params_;
  const std::vector<tensorflow::Tensor>* env_ = nullptr;
  PackedMatrices* packed_ = nullptr;
  bool serial_ = false;
  std::vector<std::unique_ptr<Activation>> activations_;
  std::vector<tensorflow::AllocatorAttributes> attributes_;
  std::function<void(std::function<void()>)> runner_;
  std::unique_ptr<tensorflow::ScopedStepContainer> container_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_STEP_H_
