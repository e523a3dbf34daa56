// The functions of tf_ext_lite.h that are about engines.

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "custom_ops/lite_delegate/callback_policy.h"
#include "custom_ops/lite_delegate/engine.h"
#include "custom_ops/lite_delegate/last_error.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

using tf_ext::lite::Bundle;
using tf_ext::lite::Bytes;
using tf_ext::lite::Engine;
using tf_ext::lite::Fail;

struct TfExtLiteEngine {
  std::shared_ptr<Engine> engine;
};

namespace {

// Nothing is thrown across the interface.
template <typename Body>
TfExtLiteStatus Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Fail(kTfExtLiteInternal, std::string("tf_ext.lite: ") + error.what());
  }
}

// A copy: a call that waits keeps the engine while another thread deletes it.
std::shared_ptr<Engine> Of(const TfExtLiteEngine* engine) { return engine->engine; }

TfExtLiteStatus NoEngine() { return Fail(kTfExtLiteInvalidArgument, "An engine was expected, but a null pointer came."); }

TfExtLiteStatus Add(TfExtLiteEngine* engine, std::unique_ptr<Bundle> bundle, TfExtLiteStatus status, const std::string& error,
                    int32_t* model) {
  if (bundle == nullptr) return Fail(status, error + ".");
  return Of(engine)->AddModel(std::move(bundle), model);
}

TfExtLiteStatus Describe(const TfExtLiteEngine* engine, int32_t model, int32_t index, bool input, TfExtLiteTensor* tensor) {
  const Bundle* bundle = engine == nullptr ? nullptr : Of(engine)->bundle(model);
  if (bundle == nullptr || tensor == nullptr) {
    return Fail(kTfExtLiteNotFound, "There is no model " + std::to_string(model) + ".");
  }
  const std::vector<int>& tensors = input ? bundle->inputs() : bundle->outputs();
  if (index < 0 || index >= static_cast<int32_t>(tensors.size())) {
    return Fail(kTfExtLiteNotFound, "Model '" + bundle->name() + "' has " + std::to_string(tensors.size()) +
                                        (input ? " inputs" : " outputs") + ", from 0; there is no " + std::to_string(index) + ".");
  }
  const tf_ext::lite::TensorSpec& spec = bundle->tensors()[tensors[index]];
  *tensor = {spec.name.c_str(), spec.type.c_str(), spec.shape.data(), static_cast<int32_t>(spec.shape.size()), spec.bytes};
  return kTfExtLiteOk;
}

TfExtLiteStatus Start(Engine& engine, int32_t model, const TfExtLiteBuffer* inputs, size_t num_inputs,
                      const TfExtLiteBuffer* outputs, size_t num_outputs, const TfExtLiteRequestOptions* options,
                      TfExtLiteCallback callback, void* user, TfExtLiteJob* job) {
  tf_ext::lite::Request request{model, inputs, num_inputs, outputs, num_outputs, {}, callback, user};
  if ((num_inputs > 0 && inputs == nullptr) || (num_outputs > 0 && outputs == nullptr)) {
    return Fail(kTfExtLiteInvalidArgument, "Buffers were expected, but a null pointer came.");
  }
  if (options != nullptr) {
    if (options->size != sizeof(TfExtLiteRequestOptions)) {
      return Fail(kTfExtLiteInvalidArgument, "The size of the options is expected to be " +
                                                 std::to_string(sizeof(TfExtLiteRequestOptions)) + ", but is " +
                                                 std::to_string(options->size) + ": the caller was built for another version.");
    }
    if (options->slo_us < 0) return Fail(kTfExtLiteInvalidArgument, "slo_us is expected to be at least 0.");
    request.options.priority = options->priority;
    request.options.pinned = options->worker;
    if (options->slo_us > 0 && options->slo_us < tf_ext::lite::kNever / 2) {
      request.options.deadline = tf_ext::lite::Now() + options->slo_us;
    }
  }
  return engine.Submit(request, job);
}

char* Copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

// As tf_ext.__version__ is; a test compares them.
const char* TfExtLiteVersion(void) { return "0.1.0"; }

int32_t TfExtLiteAbi(void) { return TF_EXT_LITE_ABI; }

TfExtLiteStatus TfExtLiteEngineCreate(const char* const* keys, const char* const* values, size_t count,
                                      TfExtLiteEngine** engine) {
  return Guarded([&] {
    if (engine == nullptr || (count > 0 && (keys == nullptr || values == nullptr))) return NoEngine();
    *engine = nullptr;
    tf_ext::lite::EngineOptions options;
    std::string error;
    if (!tf_ext::lite::EngineOptions::Parse(keys, values, count, &options, &error)) {
      return Fail(kTfExtLiteInvalidArgument, "TfExtLiteEngineCreate: " + error + ".");
    }
    TfExtLiteStatus status;
    std::shared_ptr<Engine> made = Engine::Create(options, &status);
    if (made != nullptr) *engine = new TfExtLiteEngine{std::move(made)};
    return status;
  });
}

void TfExtLiteEngineDelete(TfExtLiteEngine* engine) {
  if (engine == nullptr) return;
  const TfExtLiteStatus status = Guarded([&] { return Of(engine)->Stop(); });
  // One that could not be stopped is kept: its threads go on.
  if (status == kTfExtLiteOk) delete engine;
}

TfExtLiteStatus TfExtLiteAddModel(TfExtLiteEngine* engine, const char* path, int32_t* model) {
  return Guarded([&] {
    if (engine == nullptr || path == nullptr || model == nullptr) return NoEngine();
    TfExtLiteStatus status;
    std::string error;
    std::unique_ptr<Bundle> bundle = Bundle::Open(path, &status, &error);
    return Add(engine, std::move(bundle), status, error, model);
  });
}

TfExtLiteStatus TfExtLiteAddModelFromMemory(TfExtLiteEngine* engine, const void* data, size_t size, int32_t* model) {
  return Guarded([&] {
    if (engine == nullptr || data == nullptr || model == nullptr) return NoEngine();
    TfExtLiteStatus status;
    std::string error;
    std::unique_ptr<Bundle> bundle = Bundle::Open(std::make_shared<Bytes>(data, size), &status, &error);
    return Add(engine, std::move(bundle), status, error, model);
  });
}

TfExtLiteStatus TfExtLiteAddModelFromDescriptor(TfExtLiteEngine* engine, int fd, int64_t offset, int64_t length,
                                                int32_t* model) {
  return Guarded([&] {
    if (engine == nullptr || model == nullptr) return NoEngine();
    TfExtLiteStatus status = kTfExtLiteDataLoss;
    std::string error;
    std::shared_ptr<const Bytes> bytes = Bytes::Map(fd, offset, length, &error);
    std::unique_ptr<Bundle> bundle;
    if (bytes != nullptr) bundle = Bundle::Open(std::move(bytes), &status, &error);
    return Add(engine, std::move(bundle), status, error, model);
  });
}

int32_t TfExtLiteInputCount(const TfExtLiteEngine* engine, int32_t model) {
  const Bundle* bundle = engine == nullptr ? nullptr : Of(engine)->bundle(model);
  return bundle == nullptr ? -1 : static_cast<int32_t>(bundle->inputs().size());
}

int32_t TfExtLiteOutputCount(const TfExtLiteEngine* engine, int32_t model) {
  const Bundle* bundle = engine == nullptr ? nullptr : Of(engine)->bundle(model);
  return bundle == nullptr ? -1 : static_cast<int32_t>(bundle->outputs().size());
}

TfExtLiteStatus TfExtLiteInput(const TfExtLiteEngine* engine, int32_t model, int32_t index, TfExtLiteTensor* tensor) {
  return Guarded([&] { return Describe(engine, model, index, true, tensor); });
}

TfExtLiteStatus TfExtLiteOutput(const TfExtLiteEngine* engine, int32_t model, int32_t index, TfExtLiteTensor* tensor) {
  return Guarded([&] { return Describe(engine, model, index, false, tensor); });
}

TfExtLiteStatus TfExtLiteWarmUp(TfExtLiteEngine* engine, int32_t model) {
  return Guarded([&] { return engine == nullptr ? NoEngine() : Of(engine)->WarmUp(model); });
}

TfExtLiteStatus TfExtLiteRequest(TfExtLiteEngine* engine, int32_t model, const TfExtLiteBuffer* inputs, size_t num_inputs,
                                 const TfExtLiteBuffer* outputs, size_t num_outputs, const TfExtLiteRequestOptions* options) {
  return Guarded([&] {
    if (engine == nullptr) return NoEngine();
    const std::shared_ptr<Engine> held = Of(engine);
    TfExtLiteJob job;
    const TfExtLiteStatus status =
        Start(*held, model, inputs, num_inputs, outputs, num_outputs, options, nullptr, nullptr, &job);
    return status == kTfExtLiteOk ? held->Wait(job, -1) : status;
  });
}

TfExtLiteStatus TfExtLiteRequestAsync(TfExtLiteEngine* engine, int32_t model, const TfExtLiteBuffer* inputs, size_t num_inputs,
                                      const TfExtLiteBuffer* outputs, size_t num_outputs,
                                      const TfExtLiteRequestOptions* options, TfExtLiteCallback callback, void* user,
                                      TfExtLiteJob* job) {
  return Guarded([&] {
    TfExtLiteJob unused;
    if (engine == nullptr || (job == nullptr && callback == nullptr)) return NoEngine();
    return Start(*Of(engine), model, inputs, num_inputs, outputs, num_outputs, options, callback, user,
                 job == nullptr ? &unused : job);
  });
}

TfExtLiteStatus TfExtLiteWait(TfExtLiteEngine* engine, TfExtLiteJob job, int64_t timeout_us) {
  return Guarded([&] { return engine == nullptr ? NoEngine() : Of(engine)->Wait(job, timeout_us); });
}

TfExtLiteStatus TfExtLiteCancel(TfExtLiteEngine* engine, TfExtLiteJob job) {
  return Guarded([&] { return engine == nullptr ? NoEngine() : Of(engine)->Cancel(job); });
}

TfExtLiteStatus TfExtLiteSetPolicy(TfExtLiteEngine* engine, const char* name) {
  return Guarded([&] {
    if (engine == nullptr) return NoEngine();
    std::unique_ptr<tf_ext::lite::Policy> policy = tf_ext::lite::MakePolicy(name == nullptr ? "" : name);
    if (policy == nullptr) {
      return Fail(kTfExtLiteNotFound, std::string("There is no policy '") + (name == nullptr ? "" : name) + "'; there are " +
                                          TfExtLitePolicies() + ".");
    }
    Of(engine)->SetPolicy(std::move(policy));
    return kTfExtLiteOk;
  });
}

TfExtLiteStatus TfExtLiteSetPolicyCallback(TfExtLiteEngine* engine, TfExtLitePolicyCallback callback, void* user) {
  return Guarded([&] {
    if (engine == nullptr || callback == nullptr) return NoEngine();
    Of(engine)->SetPolicy(std::make_unique<tf_ext::lite::CallbackPolicy>(callback, user));
    return kTfExtLiteOk;
  });
}

char* TfExtLiteStatistics(TfExtLiteEngine* engine) {
  try {
    return engine == nullptr ? nullptr : Copied(Of(engine)->Statistics());
  } catch (const std::exception&) {
    return nullptr;
  }
}

void TfExtLiteSetTracing(TfExtLiteEngine* engine, int32_t enabled) {
  if (engine != nullptr) Of(engine)->tracer().SetEnabled(enabled != 0);
}

char* TfExtLiteTrace(TfExtLiteEngine* engine) {
  try {
    return engine == nullptr ? nullptr : Copied(Of(engine)->tracer().Json());
  } catch (const std::exception&) {
    return nullptr;
  }
}

void TfExtLiteFree(char* text) { std::free(text); }
