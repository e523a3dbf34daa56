// The engine as a TFLite external delegate: an interpreter hands it the whole graph, and each invocation is a request.
//
// Options: "bundle", the bundle of the interpreter's model; and those of TfExtLiteEngineCreate.

#include <algorithm>
#include <cstdarg>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/last_error.h"
#include "custom_ops/lite_delegate/litert.h"
#include "custom_ops/lite_delegate/shared_engine.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"
#include "custom_ops/lite_delegate/tflite_abi.h"

namespace tf_ext {
namespace lite {
namespace {

struct Delegate {
  TfLiteDelegate face{};  // first: its address is the delegate's
  std::unique_ptr<SharedModel> model;
  bool taken = false;  // whether a graph has been handed over
};

Delegate& Of(TfLiteDelegate* face) { return *static_cast<Delegate*>(face->data); }

TfLiteStatus Refuse(TfLiteContext* context, const std::string& text) {
  context->ReportError(context, "tf_ext.lite: %s", text.c_str());
  return kTfLiteError;
}

// As zlib's, bit by bit: models have a few hundred operators and constants, of which little is looked at.
class Crc32 {
 public:
  void Add(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      crc_ ^= static_cast<const unsigned char*>(data)[i];
      for (int bit = 0; bit < 8; ++bit) crc_ = crc_ >> 1 ^ (crc_ & 1 ? 0xEDB88320u : 0u);
    }
  }
  void AddNumber(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      const auto byte = static_cast<unsigned char>(number >> 8 * i);
      Add(&byte, 1);
    }
  }
  std::uint32_t value() const { return ~crc_; }

 private:
  std::uint32_t crc_ = 0xFFFFFFFFu;
};

// As Bundle::constants_crc32() has it: a page or two of each constant, not all of a model's weights.
std::uint32_t ConstantsOf(const TfLiteContext& context, int tensors) {
  constexpr std::size_t kEnds = 64;
  Crc32 crc;
  for (int i = 0; i < tensors; ++i) {
    const TfLiteTensor& tensor = context.tensors[i];
    if (tensor.allocation_type != kTfLiteMmapRo || tensor.data == nullptr || tensor.bytes == 0) continue;
    crc.AddNumber(static_cast<std::uint64_t>(i), 4);
    crc.AddNumber(tensor.bytes, 8);
    const std::size_t ends = std::min(tensor.bytes, kEnds);
    crc.Add(tensor.data, ends);
    crc.Add(static_cast<const char*>(tensor.data) + tensor.bytes - ends, ends);
  }
  return crc.value();
}

// Whether the graph is that of the bundle's model; else says what is different.
bool Matches(TfLiteContext* context, const TfLiteIntArray& plan, const Bundle& bundle, std::string* difference) {
  if (plan.size != bundle.operators()) {
    *difference = "has " + std::to_string(bundle.operators()) + " operators, and the interpreter's " + std::to_string(plan.size);
    return false;
  }
  Crc32 crc;
  for (int i = 0; i < plan.size; ++i) {
    TfLiteNode* node;
    TfLiteRegistration* registration;
    if (context->GetNodeAndRegistration(context, plan.data[i], &node, &registration) != kTfLiteOk) return false;
    crc.AddNumber(static_cast<std::uint32_t>(registration->builtin_code), 4);
  }
  if (crc.value() != bundle.codes_crc32()) {
    *difference = "has other operators";
    return false;
  }
  if (context->tensors_size < static_cast<std::size_t>(bundle.graph_tensors())) {
    *difference = "has more tensors";
    return false;
  }
  if (bundle.constants_crc32() >= 0 && ConstantsOf(*context, bundle.graph_tensors()) != bundle.constants_crc32()) {
    *difference = "has other weights";
    return false;
  }
  return true;
}

// Whether a tensor of the interpreter has the type and the size that the bundle was made for; an input has the very shape, while
// outputs may be given theirs late.
bool Fits(const TfLiteTensor& tensor, const TensorSpec& spec, bool input) {
  const ElementType* type = FindElementType(spec.type);
  if (tensor.bytes != spec.bytes || (type != nullptr && tensor.type != type->litert)) return false;
  if (!input || tensor.dims == nullptr) return true;
  return static_cast<std::size_t>(tensor.dims->size) == spec.shape.size() &&
         std::equal(spec.shape.begin(), spec.shape.end(), tensor.dims->data);
}

std::string ShapeOf(const int* sizes, std::size_t rank) {
  std::string text;
  for (std::size_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return "[" + text + "]";
}

// Whether the interpreter's inputs and outputs have the sizes that the bundle was made for.
bool SizesMatch(TfLiteContext* context, const Bundle& bundle, std::string* difference) {
  for (const std::vector<int>* tensors : {&bundle.inputs(), &bundle.outputs()}) {
    for (const int index : *tensors) {
      const TensorSpec& spec = bundle.tensors()[index];
      const bool there = static_cast<std::size_t>(spec.id) < context->tensors_size;
      const TfLiteTensor* tensor = there ? &context->tensors[spec.id] : nullptr;
      if (there && Fits(*tensor, spec, tensors == &bundle.inputs())) continue;
      const bool shaped = there && tensor->dims != nullptr;
      *difference = "tensor '" + spec.name + "' is expected to have the shape " + ShapeOf(spec.shape.data(), spec.shape.size()) +
                    " and " + std::to_string(spec.bytes) + " bytes, but has " +
                    (shaped ? ShapeOf(tensor->dims->data, static_cast<std::size_t>(tensor->dims->size)) + " and " : "") +
                    (there ? std::to_string(tensor->bytes) : "no") + " bytes. Inputs cannot be resized: " +
                    "shapes are fixed when a bundle is made. Make a bundle of the resized model.";
      return false;
    }
  }
  return true;
}

TfLiteStatus PrepareKernel(TfLiteContext* context, TfLiteNode* node) {
  std::string difference;
  const Bundle& bundle = static_cast<Delegate*>(node->user_data)->model->bundle();
  return SizesMatch(context, bundle, &difference) ? kTfLiteOk : Refuse(context, difference);
}

TfLiteStatus Invoke(TfLiteContext* context, TfLiteNode* node) {
  const SharedModel& shared = *static_cast<Delegate*>(node->user_data)->model;
  const Bundle& bundle = shared.bundle();
  std::vector<TfExtLiteBuffer> inputs, outputs;
  const auto buffer = [&](int index) {
    const TfLiteTensor& tensor = context->tensors[bundle.tensors()[index].id];
    return TfExtLiteBuffer{tensor.data, tensor.bytes};
  };
  for (const int index : bundle.inputs()) inputs.push_back(buffer(index));
  for (const int index : bundle.outputs()) outputs.push_back(buffer(index));
  Request request{shared.model(), inputs.data(), inputs.size(), outputs.data(), outputs.size(), {}};
  JobId job;
  TfExtLiteStatus status = shared.engine().Submit(request, &job);
  if (status == kTfExtLiteOk) status = shared.engine().Wait(job, -1);
  return status == kTfExtLiteOk ? kTfLiteOk : Refuse(context, TfExtLiteLastError());
}

void* InitKernel(TfLiteContext*, const char* buffer, std::size_t) {
  return &Of(reinterpret_cast<const TfLiteDelegateParams*>(buffer)->delegate);
}

template <TfLiteStatus (*body)(TfLiteContext*, TfLiteNode*)>
TfLiteStatus Guarded(TfLiteContext* context, TfLiteNode* node) {
  try {
    return body(context, node);
  } catch (const std::exception& error) {
    return Refuse(context, error.what());
  }
}

TfLiteStatus Prepare(TfLiteContext* context, TfLiteDelegate* face) try {
  Delegate& delegate = Of(face);
  TfLiteIntArray* plan = nullptr;
  if (context->GetExecutionPlan(context, &plan) != kTfLiteOk || plan == nullptr) return kTfLiteError;
  std::string difference;
  if (!Matches(context, *plan, delegate.model->bundle(), &difference)) {
    // Graphs within the model, such as the bodies of loops, are asked about too, and stay the interpreter's.
    if (delegate.taken) return kTfLiteOk;
    return Refuse(context, "the model of bundle '" + delegate.model->bundle().name() + "' " + difference +
                               ": it is the bundle of another model, or another delegate has taken part of the graph.");
  }
  TfLiteRegistration kernel{};
  kernel.init = InitKernel;
  kernel.prepare = Guarded<PrepareKernel>;
  kernel.invoke = Guarded<Invoke>;
  kernel.builtin_code = kTfLiteBuiltinDelegate;
  kernel.custom_name = "TfExtLite";
  kernel.version = 1;
  delegate.taken = true;
  return context->ReplaceNodeSubsetsWithDelegateKernels(context, kernel, plan, face);
} catch (const std::exception& error) {
  return Refuse(context, error.what());
}

TfLiteDelegate* Create(const char* const* keys, const char* const* values, std::size_t count, std::string* error) {
  std::string bundle;
  std::vector<const char*> names, texts;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::string(keys[i]) == "bundle") {
      bundle = values[i];
    } else {
      names.push_back(keys[i]);
      texts.push_back(values[i]);
    }
  }
  EngineOptions options;
  if (!EngineOptions::Parse(names.data(), texts.data(), names.size(), &options, error)) return nullptr;
  if (bundle.empty()) {
    *error = "option 'bundle' is expected: the bundle of the interpreter's model (tf-ext lite bundle MODEL.tflite BUNDLE)";
    return nullptr;
  }
  auto delegate = std::make_unique<Delegate>();
  delegate->model = SharedModel::Open(bundle, options, names.empty());
  if (delegate->model == nullptr || delegate->model->model() < 0) {
    *error = TfExtLiteLastError();
    return nullptr;
  }
  delegate->face.data = delegate.get();
  delegate->face.Prepare = Prepare;
  delegate->face.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
  return &delegate.release()->face;
}

}  // namespace
}  // namespace lite
}  // namespace tf_ext

extern "C" TF_EXT_LITE_EXPORT TfLiteDelegate* tflite_plugin_create_delegate(const char* const* keys, const char* const* values,
                                                                            size_t count, void (*report_error)(const char*)) {
  std::string error;
  TfLiteDelegate* delegate = nullptr;
  try {
    delegate = tf_ext::lite::Create(keys, values, count, &error);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (delegate == nullptr && report_error != nullptr) report_error(("tf_ext.lite: " + error).c_str());
  return delegate;
}

extern "C" TF_EXT_LITE_EXPORT void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {
  if (delegate == nullptr) return;
  try {
    delete &tf_ext::lite::Of(delegate);
  } catch (const std::exception&) {  // a thread could not be joined: there is nobody to tell
  }
}
