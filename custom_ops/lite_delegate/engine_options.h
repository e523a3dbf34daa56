// What an engine is told when it is made.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_OPTIONS_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_OPTIONS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace tf_ext {
namespace lite {

struct WorkerOptions {
  std::string processor;   // by the name that bundles give it
  std::vector<int> cores;  // that its threads are pinned to; empty: all
};

struct EngineOptions {
  std::string runtime, policy = "adaptive", cache_dir, gpu_precision = "float32";
  std::vector<WorkerOptions> workers;
  int queue_limit = 1024;
  int hang_ms = 2000;
  bool trace = false;

  // As pairs of strings; `error` says what is wrong with them.
  static bool Parse(const char* const* keys, const char* const* values, std::size_t count, EngineOptions* options,
                    std::string* error);
  bool operator==(const EngineOptions& other) const { return Text() == other.Text(); }
  std::string Text() const;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_OPTIONS_H_
