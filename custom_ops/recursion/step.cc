#include "custom_ops/recursion/step.h"

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/cancellation.h"

namespace tf_ext {
namespace recursion {

Step::Step(tensorflow::OpKernelContext* ctx, tensorflow::FunctionLibraryRuntime* library,
           const std::vector<tensorflow::Tensor>* env, int num_graphs)
    : env_(env), activations_(num_graphs) {
  params_.step_id = ctx->step_id();
  params_.start_time_usecs = ctx->start_time_usecs();
  params_.deadline = ctx->deadline();
  params_.device = ctx->device();
  params_.resource_manager = ctx->resource_manager();
  params_.step_container = ctx->step_container();
  params_.rendezvous = ctx->rendezvous();
  params_.collective_executor = ctx->collective_executor();
  params_.session_config = ctx->session_config();
  params_.session_state = ctx->session_state();
  params_.session_handle = ctx->session_handle();
  params_.session_metadata = ctx->session_metadata();
  params_.tensor_store = ctx->tensor_store();
  params_.cancellation_manager = ctx->cancellation_manager();
  params_.coordination_service_agent = ctx->coordination_service_agent();
  params_.function_library = library;
  Init();
}

Step::Step(tensorflow::Device* device, tensorflow::FunctionLibraryRuntime* library) {
  container_ = std::make_unique<tensorflow::ScopedStepContainer>(0, [](const std::string&) {});
  params_.device = device;
  params_.resource_manager = device->resource_manager();
  params_.step_container = container_.get();
  params_.function_library = library;
  Init();
}

void Step::Init() {
  // Operators that call functions run them to completion on this thread. Without `run_all_kernels_inline`, a runner that
  // runs at once would nest a stack frame per operator, and While one per iteration.
  runner_ = [](std::function<void()> closure) { closure(); };
  params_.runner = &runner_;
  params_.run_all_kernels_inline = true;
  attributes_.resize(16);
  params_.output_attr_array = attributes_.data();
}

void Step::ComputeAndWait(tensorflow::AsyncOpKernel* kernel, tensorflow::OpKernelContext* context) {
  absl::Notification done;
  kernel->ComputeAsync(context, [&done]() { done.Notify(); });
  done.WaitForNotification();
}

absl::Status Step::Explain(const tensorflow::OpKernel& kernel, const absl::Status& status) {
  absl::Status explained(status.code(), absl::StrCat("operator '", kernel.name(), "' (", kernel.type_string(),
                                                     "): ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { explained.SetPayload(url, payload); });
  return explained;
}

}  // namespace recursion
}  // namespace tf_ext
