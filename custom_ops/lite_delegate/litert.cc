#include "custom_ops/lite_delegate/litert.h"

#include <dlfcn.h>

#include <cstdlib>

namespace tf_ext {
namespace lite {
namespace {

constexpr char kName[] = "libLiteRt.so";
constexpr char kWhere[] =
    "; it comes with LiteRT 2.3 (pip install 'ai-edge-litert>=2.3,<2.4', or the app's LiteRT archive): name it by the option "
    "'runtime' or by $TF_EXT_LITERT";

constexpr ElementType kTypes[] = {{"float32", 1, 4}, {"int32", 2, 4},    {"uint8", 3, 1},  {"int64", 4, 8},  {"bool", 6, 1},
                                  {"int16", 7, 2},   {"complex64", 8, 8}, {"int8", 9, 1},   {"float16", 10, 2}, {"float64", 11, 8},
                                  {"uint64", 13, 8}, {"uint32", 16, 4},  {"uint16", 17, 2}};

}  // namespace

const ElementType* FindElementType(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

std::shared_ptr<const LiteRt> LiteRt::Load(const std::string& path, std::string* error) {
  const char* named = std::getenv("TF_EXT_LITERT");
  const std::string file = !path.empty() ? path : named != nullptr && *named ? named : kName;
  // Never closed: threads of its pools may outlive every engine.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = std::string("LiteRT was expected in ") + file + ", but cannot be loaded (" + dlerror() + ")" + kWhere;
    return nullptr;
  }
  std::shared_ptr<LiteRt> api(new LiteRt());
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
    if (*function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  find("LiteRtCreateEnvironment", &api->CreateEnvironment);
  find("LiteRtDestroyEnvironment", &api->DestroyEnvironment);
  find("LiteRtCreateModelFromBuffer", &api->CreateModelFromBuffer);
  find("LiteRtDestroyModel", &api->DestroyModel);
  find("LiteRtCreateOptions", &api->CreateOptions);
  find("LiteRtDestroyOptions", &api->DestroyOptions);
  find("LiteRtSetOptionsHardwareAccelerators", &api->SetOptionsHardwareAccelerators);
  find("LiteRtCreateOpaqueOptions", &api->CreateOpaqueOptions);
  find("LiteRtAddOpaqueOptions", &api->AddOpaqueOptions);
  find("LiteRtCreateCompiledModel", &api->CreateCompiledModel);
  find("LiteRtDestroyCompiledModel", &api->DestroyCompiledModel);
  find("LiteRtCompiledModelIsNonCpuFullyAccelerated", &api->CompiledModelIsNonCpuFullyAccelerated);
  find("LiteRtRunCompiledModel", &api->RunCompiledModel);
  find("LiteRtCreateTensorBufferFromHostMemory", &api->CreateTensorBufferFromHostMemory);
  find("LiteRtDestroyTensorBuffer", &api->DestroyTensorBuffer);
  if (!missing.empty()) {
    *error = file + " was expected to be LiteRT 2.3, but has no " + missing + kWhere;
    return nullptr;
  }
  Dl_info about;
  const bool found = dladdr(reinterpret_cast<void*>(api->CreateEnvironment), &about) != 0 && about.dli_fname != nullptr;
  api->path_ = found ? about.dli_fname : file;
  const std::size_t slash = api->path_.rfind('/');
  api->folder_ = slash == std::string::npos ? "." : api->path_.substr(0, slash);
  return api;
}

bool LiteRt::Failed(int status, const char* what, std::string* error) const {
  if (status == 0) return false;
  *error = std::string("LiteRT could not ") + what + ": " + Describe(status);
  return true;
}

// The library does not export the names of its statuses.
std::string LiteRt::Describe(int status) {
  switch (status) {
    case 1: return "invalid argument";
    case 2: return "out of memory";
    case 3: return "failure of the runtime";
    case 5: return "not supported";
    case 6: return "not found";
    case 8: return "wrong version";
    case 500: return "a file could not be read";
    case 501: return "no valid model";
    case 502: return "a library could not be loaded";
    case 504: return "compilation failed";
    case 4000: return "another version of the runtime is needed";
    default: return "LiteRT's status " + std::to_string(status);
  }
}

}  // namespace lite
}  // namespace tf_ext
