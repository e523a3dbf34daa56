// The one engine of a process that all delegated interpreters share, so that they are coordinated.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHARED_ENGINE_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHARED_ENGINE_H_

#include <memory>
#include <string>

#include "custom_ops/lite_delegate/engine.h"

namespace tf_ext {
namespace lite {

// The shared engine with the model of a bundle. The engine ends when the last of these is gone.
class SharedModel {
 public:
  // Null where it cannot be had; the error of the thread says why. `options` are those of the engine: the first one makes it, later
  // ones must name the same or none (`any`).
  static std::unique_ptr<SharedModel> Open(const std::string& bundle, const EngineOptions& options, bool any);
  ~SharedModel();

  Engine& engine() const { return *engine_; }
  int model() const { return model_; }
  const Bundle& bundle() const { return *engine_->bundle(model_); }

 private:
  std::shared_ptr<Engine> engine_;
  int model_ = -1;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHARED_ENGINE_H_
