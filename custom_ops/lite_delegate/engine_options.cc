#include "custom_ops/lite_delegate/engine_options.h"

#include <sched.h>

#include <cerrno>
#include <cstdlib>

#include "custom_ops/lite_delegate/policy.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr char kKeys[] = "runtime, workers, policy, queue_limit, hang_ms, cache_dir, gpu_precision, trace";

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

bool ToInt(const std::string& text, int least, int most, int* value) {
  char* end = nullptr;
  errno = 0;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0 || number < least || number > most) return false;
  *value = static_cast<int>(number);
  return true;
}

std::vector<int> AllowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

bool ParseWorkers(const std::string& text, std::vector<WorkerOptions>* workers, std::string* error) {
  const std::vector<int> allowed = AllowedCores();
  for (const std::string& part : Split(text, ',')) {
    const std::size_t at = part.find('@');
    WorkerOptions worker{part.substr(0, at), {}};
    if (worker.processor.empty()) {
      *error = "workers is expected to be such as 'cpu@0,cpu@1,gpu', but is '" + text + "'";
      return false;
    }
    for (const std::string& core : at == std::string::npos ? std::vector<std::string>() : Split(part.substr(at + 1), '+')) {
      int number = -1;
      bool known = false;
      if (ToInt(core, 0, CPU_SETSIZE - 1, &number)) {
        for (const int each : allowed) known = known || each == number;
      }
      if (!known) {
        *error = "worker '" + part + "' names core '" + core + "', which this process may not use; it may use";
        for (const int each : allowed) *error += " " + std::to_string(each);
        return false;
      }
      worker.cores.push_back(number);
    }
    workers->push_back(worker);
  }
  return true;
}

void DefaultWorkers(std::vector<WorkerOptions>* workers) {
  for (const int core : AllowedCores()) workers->push_back({"cpu", {core}});
  if (workers->empty()) workers->push_back({"cpu", {}});
}

}  // namespace

bool EngineOptions::Parse(const char* const* keys, const char* const* values, std::size_t count, EngineOptions* options,
                          std::string* error) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string key = keys[i] == nullptr ? "" : keys[i], value = values[i] == nullptr ? "" : values[i];
    bool good = true;
    if (key == "runtime") {
      options->runtime = value;
    } else if (key == "policy") {
      options->policy = value;
    } else if (key == "cache_dir") {
      options->cache_dir = value;
    } else if (key == "gpu_precision") {
      if (value != "float32" && value != "float16") {
        *error = "option 'gpu_precision' is expected to be float32 or float16, but is '" + value + "'";
        return false;
      }
      options->gpu_precision = value;
    } else if (key == "workers") {
      if (!ParseWorkers(value, &options->workers, error)) return false;
    } else if (key == "queue_limit") {
      good = ToInt(value, 1, 1 << 24, &options->queue_limit);
    } else if (key == "hang_ms") {
      good = ToInt(value, 1, 1 << 30, &options->hang_ms);
    } else if (key == "trace") {
      good = value == "0" || value == "1";
      options->trace = value == "1";
    } else {
      *error = "there is no option '" + key + "'; there are " + kKeys;
      return false;
    }
    if (!good) {
      *error = "option '" + key + "' is expected to be " + (key == "trace" ? "0 or 1" : "a number of at least 1") +
               ", but is '" + value + "'";
      return false;
    }
  }
  if (options->workers.empty()) DefaultWorkers(&options->workers);
  if (static_cast<int>(options->workers.size()) > kMaxWorkers) {
    *error = "at most " + std::to_string(kMaxWorkers) + " workers are possible, but there are " +
             std::to_string(options->workers.size());
    return false;
  }
  return true;
}

std::string EngineOptions::Text() const {
  std::string text = runtime + '\n' + policy + '\n' + cache_dir + '\n' + gpu_precision + '\n' + std::to_string(queue_limit) + '\n' +
                     std::to_string(hang_ms) + (trace ? "\ntrace" : "");
  for (const WorkerOptions& worker : workers) {
    text += '\n' + worker.processor;
    for (const int core : worker.cores) text += ' ' + std::to_string(core);
  }
  return text;
}

}  // namespace lite
}  // namespace tf_ext
