// A processor that LiteRT runs programs on.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROCESSOR_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROCESSOR_H_

#include <memory>
#include <string>
#include <utility>

#include "custom_ops/lite_delegate/litert.h"
#include "custom_ops/lite_delegate/program_cache.h"

namespace tf_ext {
namespace lite {

// A processor as one worker uses it. It belongs to the worker's thread: GPU programs must be made, run and freed by the thread
// that made the environment, and threads of a CPU pool take on the cores of the thread that made it.
class Processor {
 public:
  struct Options {
    std::string accelerator;  // "cpu", "gpu", "npu"
    int threads = 1;
    std::string cache_dir;
    std::string gpu_precision = "float32";
  };

  // Null, with the reason.
  static std::unique_ptr<Processor> Open(std::shared_ptr<const LiteRt> api, const Options& options, std::string* error);
  ~Processor();

  const LiteRt& api() const { return *api_; }
  const Options& options() const { return options_; }
  LiteRtHandle* environment() const { return environment_; }
  int accelerators() const;
  // As they take effect, for statistics.
  int threads() const { return options_.accelerator == "cpu" ? options_.threads : 1; }
  const char* precision() const;
  // Compiled programs that were kept.
  const ProgramCache& cache() const { return cache_; }
  // Those of a program of a piece with this checksum. Null, with the reason.
  LiteRtHandle* MakeOptions(const std::string& sha256, std::string* error) const;

 private:
  Processor(std::shared_ptr<const LiteRt> api, const Options& options);

  std::shared_ptr<const LiteRt> api_;
  Options options_;
  ProgramCache cache_;
  LiteRtHandle* environment_ = nullptr;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROCESSOR_H_
