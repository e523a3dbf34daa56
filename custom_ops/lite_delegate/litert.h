// LiteRT's C interface, as libLiteRt.so 2.3 exports it. The library is loaded at run time: an app, a wheel and TensorFlow's own
// interpreter each bring another one, or none.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LITERT_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LITERT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tf_ext {
namespace lite {

extern "C" {

struct LiteRtHandle;  // all of LiteRT's objects are opaque

struct LiteRtAny {
  int type;  // kLiteRtInt, kLiteRtString
  union {
    std::int64_t int_value;
    const char* str_value;
  };
};

struct LiteRtEnvOption {
  int tag;
  LiteRtAny value;
};

struct LiteRtTensorType {
  int element_type;
  std::uint32_t rank : 7;
  std::uint32_t has_strides : 1;
  std::int32_t dimensions[8];
  std::uint32_t strides[8];
};

}  // extern "C"

static_assert(sizeof(LiteRtEnvOption) == 24, "as LiteRT has it");
static_assert(sizeof(LiteRtTensorType) == 72, "as LiteRT has it");

constexpr int kLiteRtInt = 2, kLiteRtString = 8;
constexpr int kLiteRtDispatchDir = 1, kLiteRtCompilerDir = 0, kLiteRtCompilerCacheDir = 18, kLiteRtRuntimeDir = 22,
              kLiteRtAutoRegister = 24, kLiteRtLeastSeverity = 25;
constexpr int kLiteRtCpu = 1, kLiteRtGpu = 2, kLiteRtNpu = 4;
constexpr int kLiteRtInfo = 1, kLiteRtWarning = 2;
constexpr std::size_t kLiteRtAlignment = 64;

// A type of a tensor's elements.
struct ElementType {
  const char* name;  // numpy's
  int litert;        // TFLite's number, and LiteRT's
  std::size_t bytes;
};
// Null where there is none of that name with a fixed size.
const ElementType* FindElementType(std::string_view name);

// The functions that the engine calls. A status is 0 where all went well.
class LiteRt {
 public:
  // Null, with the reason, where the library is absent or lacks a function. An empty path: what the loader finds.
  static std::shared_ptr<const LiteRt> Load(const std::string& path, std::string* error);

  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }
  static std::string Describe(int status);
  // Whether a call has failed; if so, says that LiteRT could not do `what`, and why.
  bool Failed(int status, const char* what, std::string* error) const;

  int (*CreateEnvironment)(int, const LiteRtEnvOption*, LiteRtHandle**);
  void (*DestroyEnvironment)(LiteRtHandle*);
  int (*CreateModelFromBuffer)(LiteRtHandle* environment, const void*, std::size_t, LiteRtHandle**);
  void (*DestroyModel)(LiteRtHandle*);
  int (*CreateOptions)(LiteRtHandle**);
  void (*DestroyOptions)(LiteRtHandle*);
  int (*SetOptionsHardwareAccelerators)(LiteRtHandle*, int);
  int (*CreateOpaqueOptions)(const char* id, void* payload, void (*destroy)(void*), LiteRtHandle**);
  int (*AddOpaqueOptions)(LiteRtHandle* options, LiteRtHandle* opaque);
  int (*CreateCompiledModel)(LiteRtHandle* environment, LiteRtHandle* model, LiteRtHandle* options, LiteRtHandle**);
  void (*DestroyCompiledModel)(LiteRtHandle*);
  int (*CompiledModelIsNonCpuFullyAccelerated)(LiteRtHandle*, bool*);
  int (*RunCompiledModel)(LiteRtHandle*, std::size_t signature, std::size_t, LiteRtHandle**, std::size_t, LiteRtHandle**);
  int (*CreateTensorBufferFromHostMemory)(const LiteRtTensorType*, void*, std::size_t, void (*free)(void*), LiteRtHandle**);
  void (*DestroyTensorBuffer)(LiteRtHandle*);

 private:
  LiteRt() = default;
  std::string path_, folder_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LITERT_H_
