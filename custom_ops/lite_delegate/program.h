// A piece, compiled for one worker.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/bundle.h"
#include "custom_ops/lite_delegate/processor.h"

namespace tf_ext {
namespace lite {

class Program {
 public:
  // Null, with the reason. `model` stays as long as the program.
  static std::unique_ptr<Program> Compile(const Processor& processor, const Bundle& bundle, int piece,
                                          std::shared_ptr<const char> model, std::string* error);
  ~Program();

  const Processor& processor() const { return processor_; }

  // Runs on 64-byte aligned memory, one address per tensor of the bundle; those that the piece does not use are not looked at.
  bool Run(void* const* tensors, std::string* error);

 private:
  struct Slot {
    int tensor;  // of the bundle
    std::size_t bytes;
    LiteRtTensorType type;
    void* memory = nullptr;  // what `buffer` was made for
    LiteRtHandle* buffer = nullptr;
  };

  explicit Program(const Processor& processor) : processor_(processor) {}
  bool Describe(const Bundle& bundle, const std::vector<int>& tensors, std::vector<Slot>* slots, std::string* error);
  bool Bind(std::vector<Slot>* slots, void* const* tensors, std::vector<LiteRtHandle*>* buffers, std::string* error);
  bool CheckAccelerated(std::string* error);

  const Processor& processor_;
  std::shared_ptr<const char> model_bytes_;
  LiteRtHandle* model_ = nullptr;
  LiteRtHandle* compiled_ = nullptr;
  std::vector<Slot> inputs_, outputs_;
  std::vector<LiteRtHandle*> input_buffers_, output_buffers_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_H_
