#include "custom_ops/lite_delegate/program.h"

#include <cstdlib>
#include <cstring>

namespace tf_ext {
namespace lite {
namespace {

struct ElementType {
  const char* name;
  int type;
};
// numpy's names and TFLite's numbers.
constexpr ElementType kTypes[] = {{"float32", 1}, {"int32", 2},  {"uint8", 3},    {"int64", 4},   {"bool", 6},
                                  {"int16", 7},   {"int8", 9},   {"float16", 10}, {"float64", 11}, {"uint64", 13},
                                  {"uint32", 16}, {"uint16", 17}, {"complex64", 8}};

bool Failed(const LiteRt& api, int status, const char* what, std::string* error) {
  if (status == 0) return false;
  *error = std::string("LiteRT could not ") + what + ": " + api.Describe(status);
  return true;
}

// LiteRT frees a payload itself.
char* Copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

bool AddOptions(const LiteRt& api, LiteRtHandle* options, const char* id, const std::string& toml, std::string* error) {
  LiteRtHandle* opaque = nullptr;
  return !Failed(api, api.CreateOpaqueOptions(id, Copied(toml), std::free, &opaque), "make options", error) &&
         !Failed(api, api.AddOpaqueOptions(options, opaque), "take options", error);
}

}  // namespace

std::unique_ptr<Processor> Processor::Open(std::shared_ptr<const LiteRt> api, const Options& options, std::string* error) {
  std::unique_ptr<Processor> processor(new Processor(std::move(api), options));
  const LiteRt& litert = processor->api();
  std::vector<LiteRtEnvOption> settings;
  const auto set = [&](int tag, const std::string& text) {
    LiteRtEnvOption option{};
    option.tag = tag;
    option.value.type = kLiteRtString;
    option.value.str_value = text.c_str();
    settings.push_back(option);
  };
  // Accelerators lie beside the runtime, those of NPUs in a folder of their maker's.
  const char* dispatch = std::getenv("TF_EXT_LITERT_DISPATCH");
  const std::string dispatch_dir =
      dispatch != nullptr && *dispatch ? dispatch : litert.folder() + "/vendors/intel_openvino/dispatch";
  set(kLiteRtRuntimeDir, litert.folder());
  if (options.accelerator == "npu") set(kLiteRtDispatchDir, dispatch_dir);
  if (!options.cache_dir.empty()) set(kLiteRtCompilerCacheDir, options.cache_dir);
  const int status =
      litert.CreateEnvironment(static_cast<int>(settings.size()), settings.data(), &processor->environment_);
  if (Failed(litert, status, "make an environment", error)) return nullptr;
  return processor;
}

Processor::~Processor() {
  if (environment_ != nullptr) api_->DestroyEnvironment(environment_);
}

int Processor::accelerators() const {
  return options_.accelerator == "gpu" ? kLiteRtGpu : options_.accelerator == "npu" ? kLiteRtNpu : kLiteRtCpu;
}

std::unique_ptr<Program> Program::Compile(const Processor& processor, const Bundle& bundle, int piece,
                                          std::shared_ptr<const char> model, std::string* error) {
  const LiteRt& api = processor.api();
  const PieceSpec& spec = bundle.pieces()[piece];
  std::unique_ptr<Program> program(new Program(processor));
  program->model_bytes_ = std::move(model);
  if (!program->Describe(bundle, spec.inputs, &program->inputs_, error) ||
      !program->Describe(bundle, spec.outputs, &program->outputs_, error) ||
      Failed(api,
             api.CreateModelFromBuffer(processor.environment(), program->model_bytes_.get(), spec.bytes, &program->model_),
             "read a piece", error)) {
    return nullptr;
  }
  LiteRtHandle* options = nullptr;
  if (Failed(api, api.CreateOptions(&options), "make options", error)) return nullptr;
  const std::unique_ptr<LiteRtHandle, void (*)(LiteRtHandle*)> owned(options, api.DestroyOptions);
  if (Failed(api, api.SetOptionsHardwareAccelerators(options, processor.accelerators()), "choose a processor", error) ||
      !AddOptions(api, options, "xnnpack", "num_threads = " + std::to_string(processor.options().threads) + "\n", error)) {
    return nullptr;
  }
  const int status = api.CreateCompiledModel(processor.environment(), program->model_, options, &program->compiled_);
  if (Failed(api, status, "compile a piece", error) || !program->CheckAccelerated(error)) return nullptr;
  return program;
}

// LiteRT falls back to the CPU without a word.
bool Program::CheckAccelerated(std::string* error) {
  if (processor_.accelerators() == kLiteRtCpu) return true;
  bool whole = false;
  const LiteRt& api = processor_.api();
  if (Failed(api, api.CompiledModelIsNonCpuFullyAccelerated(compiled_, &whole), "tell what it compiled", error)) return false;
  if (!whole) *error = "the " + processor_.options().accelerator + " does not run all of the piece: LiteRT left part of it to the CPU";
  return whole;
}

Program::~Program() {
  const LiteRt& api = processor_.api();
  for (std::vector<Slot>* slots : {&inputs_, &outputs_}) {
    for (Slot& slot : *slots) {
      if (slot.buffer != nullptr) api.DestroyTensorBuffer(slot.buffer);
    }
  }
  if (compiled_ != nullptr) api.DestroyCompiledModel(compiled_);
  if (model_ != nullptr) api.DestroyModel(model_);
}

bool Program::Describe(const Bundle& bundle, const std::vector<int>& tensors, std::vector<Slot>* slots, std::string* error) {
  for (const int index : tensors) {
    const TensorSpec& tensor = bundle.tensors()[index];
    Slot slot{index, tensor.bytes, {}};
    for (const ElementType& known : kTypes) {
      if (tensor.type == known.name) slot.type.element_type = known.type;
    }
    if (slot.type.element_type == 0) {
      *error = "tensor '" + tensor.name + "' is of type " + tensor.type + ", which has no fixed size";
      return false;
    }
    slot.type.rank = static_cast<std::uint32_t>(tensor.shape.size()) & 0x7F;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) slot.type.dimensions[i] = tensor.shape[i];
    slots->push_back(slot);
  }
  return true;
}

bool Program::Bind(std::vector<Slot>* slots, void* const* tensors, std::vector<LiteRtHandle*>* buffers, std::string* error) {
  const LiteRt& api = processor_.api();
  buffers->clear();
  for (Slot& slot : *slots) {
    void* memory = tensors[slot.tensor];
    // Jobs take turns with few blocks of memory, so that most find their buffers made.
    if (slot.buffer == nullptr || slot.memory != memory) {
      if (slot.buffer != nullptr) api.DestroyTensorBuffer(slot.buffer);
      slot.buffer = nullptr;
      const int status = api.CreateTensorBufferFromHostMemory(&slot.type, memory, slot.bytes, nullptr, &slot.buffer);
      if (Failed(api, status, "take memory as a tensor", error)) return false;
      slot.memory = memory;
    }
    buffers->push_back(slot.buffer);
  }
  return true;
}

bool Program::Run(void* const* tensors, std::string* error) {
  if (!Bind(&inputs_, tensors, &input_buffers_, error) || !Bind(&outputs_, tensors, &output_buffers_, error)) return false;
  const int status = processor_.api().RunCompiledModel(compiled_, 0, input_buffers_.size(), input_buffers_.data(),
                                                       output_buffers_.size(), output_buffers_.data());
  return !Failed(processor_.api(), status, "run a piece", error);
}

}  // namespace lite
}  // namespace tf_ext
