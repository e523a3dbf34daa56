#include "custom_ops/lite_delegate/processor.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "custom_ops/lite_delegate/sha256.h"

namespace tf_ext {
namespace lite {
namespace {

// LiteRT frees a payload itself.
char* Copied(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

bool Add(const LiteRt& api, LiteRtHandle* options, const std::string& id, const std::string& toml, std::string* error) {
  LiteRtHandle* opaque = nullptr;
  return !api.Failed(api.CreateOpaqueOptions(id.c_str(), Copied(toml), std::free, &opaque), "make options", error) &&
         !api.Failed(api.AddOpaqueOptions(options, opaque), "take options", error);
}

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value ? value : otherwise;
}

// Of a phone's app the runtime and its makers' libraries lie in one folder; a wheel has a folder for each maker.
std::string FolderOfMaker(const LiteRt& api, const char* what) {
  const std::string folder = api.folder() + "/vendors/intel_openvino/" + what;
  struct stat about;
  return stat(folder.c_str(), &about) == 0 ? folder : api.folder();
}

// Two builds of the runtime must not take each other's compiled programs.
std::string Mark(const LiteRt& api) {
  struct stat about;
  std::string of = api.path();
  if (stat(of.c_str(), &about) == 0) of = std::to_string(about.st_size) + " " + std::to_string(about.st_mtim.tv_sec);
  return Sha256(of.data(), of.size()).substr(0, 12);
}

// As a TOML string.
std::string Text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

Processor::Processor(std::shared_ptr<const LiteRt> api, const Options& options)
    : api_(std::move(api)),
      options_(options),
      cache_(options.accelerator == "cpu" || options.cache_dir.empty() ? "" : options.cache_dir + "/litert-" + Mark(*api_)) {}

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
  const auto set_number = [&](int tag, std::int64_t number) {
    LiteRtEnvOption option{};
    option.tag = tag;
    option.value.type = kLiteRtInt;
    option.value.int_value = number;
    settings.push_back(option);
  };
  const std::string dispatch = Environment("TF_EXT_LITERT_DISPATCH", FolderOfMaker(litert, "dispatch"));
  const std::string compiler = Environment("TF_EXT_LITERT_COMPILER", FolderOfMaker(litert, "compiler"));
  set(kLiteRtRuntimeDir, litert.folder());
  if (options.accelerator == "npu") {
    set(kLiteRtDispatchDir, dispatch);
    set(kLiteRtCompilerDir, compiler);
  }
  const std::string& kept = processor->cache_.folder();
  if (options.accelerator == "npu" && !kept.empty()) set(kLiteRtCompilerCacheDir, kept);
  // LiteRT loads each accelerator that it finds, with its drivers, unless told which ones.
  set_number(kLiteRtAutoRegister, kLiteRtCpu | processor->accelerators());
  set_number(kLiteRtLeastSeverity, Environment("TF_EXT_LITERT_LOG", "") == "1" ? kLiteRtInfo : kLiteRtWarning);
  const int status =
      litert.CreateEnvironment(static_cast<int>(settings.size()), settings.data(), &processor->environment_);
  if (litert.Failed(status, "make an environment", error)) return nullptr;
  return processor;
}

Processor::~Processor() {
  if (environment_ != nullptr) api_->DestroyEnvironment(environment_);
  cache_.Seal();
}

int Processor::accelerators() const {
  return options_.accelerator == "gpu" ? kLiteRtGpu : options_.accelerator == "npu" ? kLiteRtNpu : kLiteRtCpu;
}

const char* Processor::precision() const {
  if (options_.accelerator == "npu") return "chosen by the driver";
  if (options_.accelerator == "cpu") return "as in the model";
  // What lacks arithmetic of half precision computes in single.
  return options_.gpu_precision == "float16" ? "float16 where the GPU has it" : "float32";
}

LiteRtHandle* Processor::MakeOptions(const std::string& sha256, std::string* error) const {
  LiteRtHandle* options = nullptr;
  if (api_->Failed(api_->CreateOptions(&options), "make options", error)) return nullptr;
  bool good = !api_->Failed(api_->SetOptionsHardwareAccelerators(options, accelerators()), "choose a processor", error) &&
              Add(*api_, options, "xnnpack", "num_threads = " + std::to_string(options_.threads) + "\n", error);
  if (good && options_.accelerator == "gpu") {
    std::string toml = std::string("precision = ") + (options_.gpu_precision == "float16" ? "1" : "2") + "\n";
    if (!cache_.folder().empty()) {
      const std::string of = sha256 + options_.gpu_precision;
      toml += "serialization_dir = " + Text(cache_.folder()) + "\nmodel_cache_key = " +
              Text(Sha256(of.data(), of.size()).substr(0, 32)) + "\nserialize_program_cache = true\n";
    }
    good = Add(*api_, options, "gpu_options", toml, error);
  }
  const std::string npu = Environment("TF_EXT_LITERT_NPU_OPTIONS", "");
  if (good && options_.accelerator == "npu" && !npu.empty()) {
    const std::size_t colon = npu.find(':');
    good = colon != std::string::npos && Add(*api_, options, npu.substr(0, colon), npu.substr(colon + 1) + "\n", error);
    if (colon == std::string::npos) *error = "$TF_EXT_LITERT_NPU_OPTIONS is expected to be ID: TOML, but is '" + npu + "'";
  }
  if (good) return options;
  api_->DestroyOptions(options);
  return nullptr;
}

}  // namespace lite
}  // namespace tf_ext
