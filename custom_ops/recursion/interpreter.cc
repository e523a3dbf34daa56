#include "custom_ops/recursion/interpreter.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "custom_ops/recursion/batched_plan.h"
#include "custom_ops/recursion/graph_compiler.h"
#include "custom_ops/recursion/invoke_plan.h"
#include "custom_ops/recursion/product_kernels.h"
#include "custom_ops/recursion/step.h"
#include "tensorflow/core/common_runtime/process_function_library_runtime.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::Tensor;

constexpr int64_t kSerialProducts = 1 << 21;  // multiplications that are not worth a second thread

class StraightLine : public CompiledGraph {
 public:
  StraightLine(const GraphSpec& spec, int index, GraphCode code) : index_(index), code_(std::move(code)) {
    spec_ = &spec;
    for (const Source& source : spec.sources) from_env_.push_back(source.kind == Source::Kind::kEnv);
  }

  absl::Status Run(Step& step, absl::Span<Tensor> feeds, std::vector<Tensor>* fetches) const override {
    std::unique_ptr<Activation>& made = step.activation(index_);
    if (made == nullptr) made = Prepare(step);
    Activation& activation = *made;
    const bool pinned = step.env() != nullptr;
    for (size_t i = 0; i < feeds.size(); ++i) {
      if (pinned && from_env_[i]) continue;
      activation.registers[code_.feeds[i]] = std::move(feeds[i]);
    }
    const absl::Status status = Execute(step, activation);
    if (!status.ok()) {
      made.reset();  // what the failed run left behind must not outlive it
      return status;
    }
    fetches->resize(code_.fetches.size());
    for (size_t i = 0; i < code_.fetches.size(); ++i) {
      const Operand& fetch = code_.fetches[i];
      if (fetch.constant) {
        (*fetches)[i] = code_.constants[fetch.index].first;
      } else if (code_.last_fetch[i]) {
        (*fetches)[i] = std::move(activation.registers[fetch.index]);
      } else {
        (*fetches)[i] = activation.registers[fetch.index];
      }
    }
    for (size_t i = 0; i < feeds.size(); ++i) {
      if (!(pinned && from_env_[i])) activation.registers[code_.feeds[i]] = Tensor();
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Activation> Prepare(Step& step) const {
    auto activation = std::make_unique<Activation>();
    activation->registers.resize(code_.num_registers);
    activation->inputs.reserve(code_.num_inputs);
    for (const Instruction& instruction : code_.instructions) {
      for (const Operand& input : instruction.inputs) {
        // Kernels never write to a constant: it has two references.
        activation->inputs.emplace_back(input.constant ? const_cast<Tensor*>(&code_.constants[input.index].first)
                                                       : &activation->registers[input.index]);
      }
    }
    if (step.env() != nullptr) {
      for (size_t i = 0; i < from_env_.size(); ++i) {
        if (from_env_[i]) activation->registers[code_.feeds[i]] = (*step.env())[spec_->sources[i].index];
      }
    }
    return activation;
  }

  absl::Status Execute(Step& step, Activation& activation) const {
    Tensor* registers = activation.registers.data();
    for (const Instruction& instruction : code_.instructions) {
      absl::InlinedVector<Tensor, 4> guards;
      for (int guarded : instruction.guards) guards.push_back(registers[guarded]);
      Tensor* outputs = registers + instruction.first_output;
      tensorflow::OpKernel* kernel = instruction.kernel.get();
      if (instruction.few_rows != nullptr) {
        const Tensor& rows = *activation.inputs[instruction.first_input].tensor;
        if (HasFewRows(rows)) {
          kernel = instruction.few_rows.get();
        } else if (instruction.transposed >= 0 && MultiplyPacked(step, instruction.transposed, rows, outputs)) {
          for (int released : instruction.releases) registers[released] = Tensor();
          continue;
        }
      }
      TF_RETURN_IF_ERROR(step.RunKernel(
          kernel, instruction.async,
          absl::MakeConstSpan(activation.inputs.data() + instruction.first_input, instruction.inputs.size()),
          instruction.num_outputs, [outputs](int i, Tensor&& output) { outputs[i] = std::move(output); },
          instruction.required.empty() ? nullptr : instruction.required.data()));
      for (int released : instruction.releases) registers[released] = Tensor();
    }
    return absl::OkStatus();
  }

  // Whether `result`, of rows and a transposed environment value, is computed here: on one thread if at all.
  static bool MultiplyPacked(const Step& step, int env, const Tensor& rows, Tensor* result) {
    if (step.packed() == nullptr) return false;
    const Tensor& matrix = (*step.env())[env];
    if (rows.dims() != 2 || matrix.dims() != 2 || rows.dim_size(1) != matrix.dim_size(1)) return false;
    const int64_t num_rows = rows.dim_size(0);
    if (!step.serial() && num_rows * matrix.NumElements() > kSerialProducts) return false;
    Tensor y(step.device()->GetAllocator({}), tensorflow::DT_FLOAT, {num_rows, matrix.dim_size(0)});
    Multiply(static_cast<const float*>(rows.data()), num_rows, step.packed()->Get(env), static_cast<float*>(y.data()));
    *result = std::move(y);
    return true;
  }

  const int index_;
  const GraphCode code_;
  std::vector<bool> from_env_;
};

class CompiledProgramImpl : public CompiledProgram {
 public:
  explicit CompiledProgramImpl(std::shared_ptr<const Program> program) : compiled_(program->graphs.size()) {
    program_ = std::move(program);
    for (auto& graph : compiled_) graph.store(nullptr, std::memory_order_relaxed);
  }

  ~CompiledProgramImpl() override {
    for (auto& graph : compiled_) delete graph.load(std::memory_order_relaxed);
  }

  // A function runtime of its own: kernels, and tapes that compile gradient graphs, may outlive the caller's.
  absl::Status Init(tensorflow::OpKernelContext* ctx) {
    // Graph optimizers run operators by themselves, to fold what is constant.
    if (ctx->function_library() == nullptr) {
      return absl::FailedPreconditionError("a recursion runs as part of a step only: there is no function runtime");
    }
    const auto* caller = ctx->function_library()->GetFunctionLibraryDefinition();
    const auto& library = program_->library;
    TF_RETURN_IF_ERROR(
        ctx->function_library()->Clone(&functions_, &runtimes_, &target_.library, /*skip_flib_def=*/true));
    TF_RETURN_IF_ERROR(functions_->AddLibrary(library));
    if (library.function_size() > 0) {
      for (const std::string& name : caller->ListFunctionNames()) {
        if (!functions_->Contains(name)) TF_RETURN_IF_ERROR(functions_->CopyFunctionDefFrom(name, *caller));
      }
    }
    target_.device = target_.library->device();
    return absl::OkStatus();
  }

  absl::StatusOr<const CompiledGraph*> graph(int index) override {
    if (const CompiledGraph* graph = compiled_[index].load(std::memory_order_acquire)) return graph;
    absl::MutexLock lock(&mutex_);
    if (const CompiledGraph* graph = compiled_[index].load(std::memory_order_acquire)) return graph;
    GraphCode code;
    const GraphSpec& spec = program_->graphs[index];
    TF_RETURN_IF_ERROR(CompileGraph(spec, target_, &code));
    const auto* graph = new StraightLine(spec, index, std::move(code));
    compiled_[index].store(graph, std::memory_order_release);
    return graph;
  }

  std::unique_ptr<Step> NewStep(tensorflow::OpKernelContext* ctx, const std::vector<Tensor>* env) override {
    return std::make_unique<Step>(ctx, target_.library, env, compiled_.size());
  }

 private:
  std::unique_ptr<tensorflow::FunctionLibraryDefinition> functions_;
  std::unique_ptr<tensorflow::ProcessFunctionLibraryRuntime> runtimes_;
  CompileTarget target_{nullptr, nullptr};
  absl::Mutex mutex_;
  std::vector<std::atomic<const CompiledGraph*>> compiled_;
};

}  // namespace

std::shared_ptr<const InvokePlan> CompiledProgram::invoke_plan() {
  absl::call_once(invoke_plan_once_, [this]() { invoke_plan_ = MakeInvokePlan(*program_); });
  return invoke_plan_;
}

absl::StatusOr<std::shared_ptr<const batched::BatchedPlan>> CompiledProgram::batched_plan(
    tensorflow::OpKernelContext* ctx) {
  absl::call_once(batched_plan_once_, [this, ctx]() {
    batched_plan_ = batched::BatchedPlan::Create(this, ctx->function_library()->device());
  });
  return batched_plan_;
}

absl::StatusOr<std::shared_ptr<CompiledProgram>> CompiledProgram::Create(std::shared_ptr<const Program> program,
                                                                         tensorflow::OpKernelContext* ctx) {
  auto compiled = std::make_shared<CompiledProgramImpl>(std::move(program));
  TF_RETURN_IF_ERROR(compiled->Init(ctx));
  return std::shared_ptr<CompiledProgram>(std::move(compiled));
}

}  // namespace recursion
}  // namespace tf_ext
