// The operator that runs a recursion.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "custom_ops/recursion/executor.h"
#include "custom_ops/recursion/tape.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/hash.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Compiled programs by content and device: the same recursion called at several places, or traced into several functions,
// is compiled once.
class ProgramCache {
 public:
  static ProgramCache& Global() {
    static auto* cache = new ProgramCache;
    return *cache;
  }

  absl::StatusOr<std::shared_ptr<const Program>> Parse(const std::string& serialized, uint64_t fingerprint) {
    absl::MutexLock lock(&mutex_);
    if (std::shared_ptr<const Program> known = parsed_[fingerprint].lock()) return known;
    TF_ASSIGN_OR_RETURN(Program program, Program::Parse(serialized));
    auto made = std::make_shared<const Program>(std::move(program));
    DropExpired(&parsed_);
    parsed_[fingerprint] = made;
    return std::shared_ptr<const Program>(std::move(made));
  }

  absl::StatusOr<std::shared_ptr<CompiledProgram>> Get(const std::shared_ptr<const Program>& program,
                                                       uint64_t fingerprint, OpKernelContext* ctx) {
    absl::MutexLock lock(&mutex_);
    const auto key = std::make_pair(fingerprint, static_cast<const void*>(ctx->device()));
    if (std::shared_ptr<CompiledProgram> known = compiled_[key].lock()) return known;
    TF_ASSIGN_OR_RETURN(std::shared_ptr<CompiledProgram> made, CompiledProgram::Create(program, ctx));
    DropExpired(&compiled_);
    compiled_[key] = made;
    return made;
  }

 private:
  template <typename Map>
  static void DropExpired(Map* map) {
    for (auto it = map->begin(); it != map->end();) it = it->second.expired() ? map->erase(it) : ++it;
  }

  absl::Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const Program>> parsed_;
  std::map<std::pair<uint64_t, const void*>, std::weak_ptr<CompiledProgram>> compiled_;
};

class RecursionOp : public tensorflow::OpKernel {
 public:
  explicit RecursionOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::string serialized, execution;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("program", &serialized));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("execution", &execution));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("map", &map_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("record", &record_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sequential", &sequential_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("collect", &collect_));
    batched_ = execution == "batched";
    fingerprint_ = tensorflow::Hash64(serialized);
    auto program = ProgramCache::Global().Parse(serialized, fingerprint_);
    OP_REQUIRES_OK(ctx, program.status());
    program_ = *std::move(program);
    const FunctionSpec& root = program_->functions[program_->root];
    OP_REQUIRES(ctx, ctx->num_inputs() == root.num_args + program_->env_types.size(),
                absl::InvalidArgumentError(absl::StrCat("SubGraph '", root.name, "' takes ", root.num_args,
                                                        " arguments and ", program_->env_types.size(),
                                                        " environment values, got ", ctx->num_inputs(), " inputs")));
  }

  void Compute(OpKernelContext* ctx) override {
    RunRequest request;
    OP_REQUIRES_OK(ctx, Compile(ctx, &request.program));
    const int num_args = program_->functions[program_->root].num_args;
    for (int i = 0; i < ctx->num_inputs(); ++i) (i < num_args ? request.args : request.env).push_back(ctx->input(i));
    request.map = map_;
    request.record = record_;
    request.collect = collect_;
    request.sequential = sequential_;
    RunResult result;
    OP_REQUIRES_OK(ctx, batched_ ? RunBatched(ctx, std::move(request), &result)
                                 : RunInvoke(ctx, std::move(request), &result));
    OP_REQUIRES(ctx, result.results.size() + result.calls.size() + 1 == ctx->num_outputs(),
                absl::InternalError("the recursion gave a wrong number of results"));
    int output = 0;
    for (const tensorflow::Tensor& value : result.results) OP_REQUIRES_OK(ctx, SetOutput(ctx, output++, value));
    for (const tensorflow::Tensor& value : result.calls) OP_REQUIRES_OK(ctx, SetOutput(ctx, output++, value));
    tensorflow::Tensor* tape = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(output, {}, &tape));
    tape->scalar<tensorflow::Variant>()() = TapeHandle{std::move(result.tape)};
  }

 private:
  static absl::Status SetOutput(OpKernelContext* ctx, int index, const tensorflow::Tensor& value) {
    if (value.dtype() != ctx->expected_output_dtype(index)) {
      return absl::InternalError(absl::StrCat("output ", index, " of the recursion is ",
                                              tensorflow::DataTypeString(value.dtype()), ", expected ",
                                              tensorflow::DataTypeString(ctx->expected_output_dtype(index))));
    }
    ctx->set_output(index, value);
    return absl::OkStatus();
  }

  absl::Status Compile(OpKernelContext* ctx, std::shared_ptr<CompiledProgram>* compiled) {
    absl::MutexLock lock(&mutex_);
    if (compiled_ == nullptr) {
      TF_ASSIGN_OR_RETURN(compiled_, ProgramCache::Global().Get(program_, fingerprint_, ctx));
    }
    *compiled = compiled_;
    return absl::OkStatus();
  }

  std::shared_ptr<const Program> program_;
  uint64_t fingerprint_ = 0;
  bool batched_ = false, map_ = false, record_ = false, sequential_ = false, collect_ = false;
  absl::Mutex mutex_;
  std::shared_ptr<CompiledProgram> compiled_;
};

REGISTER_KERNEL_BUILDER(Name("TfExtRecursion").Device(tensorflow::DEVICE_CPU), RecursionOp);
REGISTER_KERNEL_BUILDER(Name("TfExtStatefulRecursion").Device(tensorflow::DEVICE_CPU), RecursionOp);

class RecursionCallOp : public tensorflow::OpKernel {
 public:
  explicit RecursionCallOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}
  void Compute(OpKernelContext* ctx) override {
    ctx->SetStatus(absl::FailedPreconditionError(
        absl::StrCat("'", name(), "' stands for a call while the body of a SubGraph is traced and cannot be run. Values "
                     "computed inside a body can only be used there: return them as results.")));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfExtRecursionCall").Device(tensorflow::DEVICE_CPU), RecursionCallOp);
REGISTER_KERNEL_BUILDER(Name("TfExtStatefulRecursionCall").Device(tensorflow::DEVICE_CPU), RecursionCallOp);

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
