#include "custom_ops/lite_delegate/shared_engine.h"

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <utility>

#include "custom_ops/lite_delegate/last_error.h"

namespace tf_ext {
namespace lite {
namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  int users = 0;
  std::map<std::string, int> models;  // by path and state of the file
};

Shared& TheShared() {
  static auto* shared = new Shared;
  return *shared;
}

// A bundle that was made anew is another model.
std::string Key(const std::string& path) {
  struct stat about;
  const std::string plan = path + "/plan.json";
  if (stat(plan.c_str(), &about) != 0 && stat(path.c_str(), &about) != 0) return path;
  return path + "\n" + std::to_string(about.st_ino) + " " + std::to_string(about.st_size) + " " +
         std::to_string(about.st_mtim.tv_sec) + " " + std::to_string(about.st_mtim.tv_nsec);
}

}  // namespace

std::unique_ptr<SharedModel> SharedModel::Open(const std::string& path, const EngineOptions& options, bool any) {
  Shared& shared = TheShared();
  std::lock_guard<std::mutex> lock(shared.mutex);
  TfExtLiteStatus status;
  if (shared.engine == nullptr) {
    shared.engine = Engine::Create(options, &status);
    if (shared.engine == nullptr) return nullptr;
  } else if (!any && !(shared.engine->options() == options)) {
    Fail(kTfExtLiteInvalidArgument,
         "All delegates of a process share one engine, and it was made with other options than these. Give them with the first "
         "delegate, the same ones or none with the others, or destroy the others first.");
    return nullptr;
  }
  std::unique_ptr<SharedModel> model(new SharedModel);
  model->engine_ = shared.engine;
  ++shared.users;  // from here on the destructor counts it off
  const auto known = shared.models.find(Key(path));
  if (known != shared.models.end()) {
    model->model_ = known->second;
    return model;
  }
  std::string error;
  std::unique_ptr<Bundle> bundle = Bundle::Open(path, &status, &error);
  std::int32_t index = -1;
  if (bundle == nullptr) {
    Fail(status, error + ".");
  } else if (shared.engine->AddModel(std::move(bundle), &index) == kTfExtLiteOk) {
    shared.models[Key(path)] = model->model_ = index;
  }
  return model;
}

SharedModel::~SharedModel() {
  Shared& shared = TheShared();
  std::shared_ptr<Engine> last;
  {
    std::lock_guard<std::mutex> lock(shared.mutex);
    if (--shared.users > 0) return;
    last = std::move(shared.engine);
    shared.models.clear();
  }
  last->Stop();
}

}  // namespace lite
}  // namespace tf_ext
