#include "custom_ops/lite_delegate/engine.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "custom_ops/lite_delegate/last_error.h"

namespace tf_ext {
namespace lite {
namespace {

std::vector<std::size_t> Sizes(const Bundle& bundle) {
  std::vector<std::size_t> sizes;
  for (const TensorSpec& tensor : bundle.tensors()) sizes.push_back(tensor.bytes);
  return sizes;
}

// What each piece is expected to take on each worker, in whole microseconds.
ModelCosts Costs(const Bundle& bundle, const std::vector<WorkerOptions>& workers) {
  std::vector<Piece> pieces;
  std::vector<Micros> expected;
  for (const PieceSpec& piece : bundle.pieces()) {
    pieces.push_back({piece.begin, piece.end});
    for (const WorkerOptions& worker : workers) {
      const auto latency = piece.latency_us.find(worker.processor);
      expected.push_back(latency == piece.latency_us.end() ? kNever
                                                           : std::max<Micros>(1, std::llround(latency->second)));
    }
  }
  return ModelCosts(bundle.units(), std::move(pieces), static_cast<int>(workers.size()), std::move(expected));
}

// A thread that hangs comes back to this code, which an app or an interpreter may have unloaded by then.
void KeepCodeLoaded() {
  Dl_info about;
  if (dladdr(reinterpret_cast<void*>(&KeepCodeLoaded), &about) == 0 || about.dli_fname == nullptr) return;
  dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

Micros Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Engine::Model::Model(std::unique_ptr<Bundle> opened, std::vector<std::size_t> sizes)
    : bundle(std::move(opened)), arenas(std::move(sizes)) {}

std::shared_ptr<const char> Engine::Model::Load(int piece, std::string* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const char>& bytes = loaded_[piece];
  if (bytes == nullptr) bytes = bundle->Load(piece, error);
  return bytes;
}

static std::vector<std::string> WorkerNames(const EngineOptions& options) {
  std::vector<std::string> names;
  for (const WorkerOptions& worker : options.workers) {
    std::string name = worker.processor;
    for (std::size_t i = 0; i < worker.cores.size(); ++i) name += (i == 0 ? "@" : "+") + std::to_string(worker.cores[i]);
    names.push_back(name);
  }
  return names;
}

Engine::Engine(const EngineOptions& options)
    : options_(options),
      planner_(static_cast<int>(options.workers.size()), MakePolicy(options.policy), options.queue_limit),
      tracer_(WorkerNames(options)) {
  tracer_.SetEnabled(options.trace);
}

std::shared_ptr<Engine> Engine::Create(const EngineOptions& options, TfExtLiteStatus* status) {
  if (MakePolicy(options.policy) == nullptr) {
    *status = Fail(kTfExtLiteNotFound, "There is no policy '" + options.policy + "'; there are " + TfExtLitePolicies() + ".");
    return nullptr;
  }
  std::string error;
  std::shared_ptr<const LiteRt> litert = LiteRt::Load(options.runtime, &error);
  if (litert == nullptr) {
    *status = Fail(kTfExtLiteUnavailable, error + ".");
    return nullptr;
  }
  if (!options.cache_dir.empty()) {
    // LiteRT says nothing where it cannot keep a program, and compiles it each time.
    mkdir(options.cache_dir.c_str(), 0777);
    if (access(options.cache_dir.c_str(), R_OK | W_OK | X_OK) != 0) {
      *status = Fail(kTfExtLiteInvalidArgument,
                     "cache_dir is expected to be a folder to write to, but " + options.cache_dir + " is none: " +
                         std::strerror(errno) + ".");
      return nullptr;
    }
  }
  std::shared_ptr<Engine> engine(new Engine(options));
  engine->litert_ = std::move(litert);
  const std::vector<std::string> names = WorkerNames(options);
  for (std::size_t i = 0; i < options.workers.size(); ++i) {
    engine->workers_.push_back(std::make_unique<Worker>());
    engine->workers_[i]->options = options.workers[i];
    engine->workers_[i]->name = names[i];
  }
  try {
    engine->Start();
  } catch (const std::system_error& thrown) {
    engine->Stop();
    *status = Fail(kTfExtLiteUnavailable, std::string("The engine's threads cannot be started: ") + thrown.what() + ".");
    return nullptr;
  }
  *status = kTfExtLiteOk;
  return engine;
}

void Engine::Start() {
  const std::shared_ptr<Engine> self = shared_from_this();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = *workers_[i];
    worker.exited = true;  // until it runs
    worker.thread = std::thread([self, i] { self->Work(static_cast<int>(i)); });
    std::lock_guard<std::mutex> lock(mutex_);
    worker.exited = false;
  }
  watchdog_ = std::thread([self] { self->Watch(); });
}

TfExtLiteStatus Engine::Stop() {
  if (OnOwnThread()) {
    return Fail(kTfExtLiteInvalidArgument, "An engine cannot be deleted by a callback: that is a thread of the engine.");
  }
  std::unique_lock<std::mutex> lock(mutex_);
  stopping_ = true;
  std::vector<Ended> ended;
  Callbacks callbacks;
  Forget(&ended);
  Settle(ended, &callbacks);
  for (const auto& worker : workers_) worker->work.notify_all();
  watch_.notify_all();
  lock.unlock();
  Call(callbacks);
  if (watchdog_.joinable()) watchdog_.join();
  lock.lock();
  // The watchdog has told those that hang; the others end with their piece.
  exit_.wait(lock, [this] {
    return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->exited || worker->lost; });
  });
  std::vector<std::thread> ending;
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    if (worker->exited) {
      ending.push_back(std::move(worker->thread));
    } else {
      KeepCodeLoaded();
      worker->thread.detach();
    }
  }
  lock.unlock();
  for (std::thread& thread : ending) thread.join();
  return kTfExtLiteOk;
}

TfExtLiteStatus Engine::AddModel(std::unique_ptr<Bundle> bundle, std::int32_t* model) {
  ModelCosts costs = Costs(*bundle, options_.workers);
  if (costs.Remaining(0) >= kNever) {
    std::string processors, workers;
    for (const ProcessorSpec& processor : bundle->processors()) processors += " " + processor.name;
    for (const std::string& name : WorkerNames(options_)) workers += " " + name;
    return Fail(kTfExtLiteUnavailable, "Bundle '" + bundle->name() + "' was made for the processors" + processors +
                                           ", and the engine's workers" + workers +
                                           " cannot run all of it: name workers for these processors, or make the bundle anew.");
  }
  std::vector<std::size_t> sizes = Sizes(*bundle);
  auto made = std::make_shared<Model>(std::move(bundle), std::move(sizes));
  std::lock_guard<std::mutex> lock(mutex_);
  models_.push_back(std::move(made));
  *model = planner_.AddModel(std::move(costs));
  return kTfExtLiteOk;
}

const Bundle* Engine::bundle(int model) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return model < 0 || model >= static_cast<int>(models_.size()) ? nullptr : models_[model]->bundle.get();
}

TfExtLiteStatus Engine::WarmUp(int model) {
  const Bundle* known = bundle(model);
  if (known == nullptr) return Fail(kTfExtLiteNotFound, "There is no model " + std::to_string(model) + ".");
  Arena values(Sizes(*known));
  std::vector<TfExtLiteBuffer> inputs, outputs;
  for (const int input : known->inputs()) inputs.push_back({values.at(input), known->tensors()[input].bytes});
  for (const int output : known->outputs()) outputs.push_back({values.at(output), known->tensors()[output].bytes});
  std::vector<JobId> jobs;
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (planner_.model(model).RemainingOn(0, worker) >= kNever) continue;
    }
    Request request{model, inputs.data(), inputs.size(), outputs.data(), outputs.size(), {}};
    request.options.pinned = worker;
    request.counts = false;
    JobId job;
    const TfExtLiteStatus status = Submit(request, &job);
    if (status != kTfExtLiteOk) return status;
    jobs.push_back(job);
  }
  TfExtLiteStatus worst = kTfExtLiteOk;
  std::string message;
  for (const JobId job : jobs) {
    const TfExtLiteStatus status = Wait(job, -1);
    if (status != kTfExtLiteOk) worst = status, message = TfExtLiteLastError();
  }
  return worst == kTfExtLiteOk ? worst : Fail(worst, message);
}

void Engine::SetPolicy(std::unique_ptr<Policy> policy) {
  std::unique_lock<std::mutex> lock(mutex_);
  planner_.SetPolicy(std::move(policy));
  std::vector<Ended> ended;
  Callbacks callbacks;
  PlanAndWake(&ended);
  Settle(ended, &callbacks);
  lock.unlock();
  Call(callbacks);
}

void Engine::PlanAndWake(std::vector<Ended>* ended) {
  if (stopping_) {
    Forget(ended);
    return;
  }
  if (!planner_.Plan(Now(), ended)) return;
  for (const auto& worker : workers_) {
    if (worker->phase == Phase::kIdle && !worker->lost) worker->work.notify_one();
  }
  if (watch_asleep_) watch_.notify_one();
}

// Ends what waits.
void Engine::Forget(std::vector<Ended>* ended) {
  for (const auto& [id, job] : jobs_) {
    if (!job->done && planner_.Cancel(id, Now())) ended->push_back({id, Ending::kCancelled});
  }
}

void Engine::Settle(const std::vector<Ended>& ended, Callbacks* callbacks) {
  for (const Ended& end : ended) {
    const auto found = jobs_.find(end.job);
    if (found == jobs_.end() || found->second->done) continue;
    const std::shared_ptr<Job> job = found->second;
    const std::string name = "Request " + std::to_string(end.job) + " to model '" + job->model->bundle->name() + "' ";
    switch (end.ending) {
      case Ending::kDone: break;
      case Ending::kDropped:
        job->status = kTfExtLiteDeadlineExceeded;
        job->message = name + "was dropped: it could not be done within its service-level objective any more.";
        break;
      case Ending::kFailed:
        job->status = kTfExtLiteUnavailable;
        if (job->failure.empty()) job->failure = job->model->refusal;
        job->message = name + "has failed: no worker is left that can run it" +
                       (job->failure.empty() ? "." : ". The last failure: " + job->failure + ".");
        break;
      case Ending::kCancelled:
        job->status = kTfExtLiteCancelled;
        job->message = name + "was cancelled" + (job->failure.empty() ? "." : ": " + job->failure + ".");
        break;
    }
    const Micros now = Now();
    static constexpr const char* kTold[] = {"", "dropped", "failed", "cancelled"};
    if (job->counts) {
      job->model->statistics.Went(end.ending, now - job->submitted);
      tracer_.Request(job->model->bundle->name(), end.job, job->submitted, now, kTold[static_cast<int>(end.ending)]);
    }
    // A thread that hangs holds the memory too, and may write to it: such memory is not used again.
    if (job->memory.use_count() == 1) job->model->arenas.Give(std::move(job->memory->arena));
    job->memory.reset();
    job->done = true;
    if (job->callback != nullptr) {
      callbacks->emplace_back(end.job, job);
      jobs_.erase(found);
    } else {
      job->ended.notify_all();
    }
  }
}

void Engine::Call(const Callbacks& callbacks) {
  for (const auto& [id, job] : callbacks) {
    if (job->status != kTfExtLiteOk) Fail(job->status, job->message);
    job->callback(job->user, id, job->status);
  }
}

}  // namespace lite
}  // namespace tf_ext
