#include "custom_ops/lite_delegate/program.h"

namespace tf_ext {
namespace lite {
std::unique_ptr<Program> Program::Compile(const Processor& processor, const Bundle& bundle, int piece,
                                          std::shared_ptr<const char> model, std::string* error) {
  const LiteRt& api = processor.api();
  const PieceSpec& spec = bundle.pieces()[piece];
  std::unique_ptr<Program> program(new Program(processor));
  program->model_bytes_ = std::move(model);
  if (!program->Describe(bundle, spec.inputs, &program->inputs_, error) ||
      !program->Describe(bundle, spec.outputs, &program->outputs_, error) ||
      api.Failed(api.CreateModelFromBuffer(processor.environment(), program->model_bytes_.get(), spec.bytes, &program->model_),
             "read a piece", error)) {
    return nullptr;
  }
  LiteRtHandle* options = processor.MakeOptions(spec.sha256, error);
  if (options == nullptr) return nullptr;
  const std::unique_ptr<LiteRtHandle, void (*)(LiteRtHandle*)> owned(options, api.DestroyOptions);
  const int status = api.CreateCompiledModel(processor.environment(), program->model_, options, &program->compiled_);
  if (api.Failed(status, "compile a piece", error) || !program->CheckAccelerated(error)) return nullptr;
  processor.cache().Seal();
  return program;
}

// LiteRT falls back to the CPU without a word.
bool Program::CheckAccelerated(std::string* error) {
  if (processor_.accelerators() == kLiteRtCpu) return true;
  bool whole = false;
  const LiteRt& api = processor_.api();
  if (api.Failed(api.CompiledModelIsNonCpuFullyAccelerated(compiled_, &whole), "tell what it compiled", error)) return false;
  if (whole) return true;
  *error = "the " + processor_.options().accelerator + " does not run all of the piece: LiteRT left part of it to the CPU";
  return false;
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
    const ElementType* type = FindElementType(tensor.type);
    if (type == nullptr) {
      *error = "tensor '" + tensor.name + "' is of type " + tensor.type + ", which has no fixed size";
      return false;
    }
    slot.type.element_type = type->litert;
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
      if (api.Failed(status, "take memory as a tensor", error)) return false;
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
  return !processor_.api().Failed(status, "run a piece", error);
}

}  // namespace lite
}  // namespace tf_ext
