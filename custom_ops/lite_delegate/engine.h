// The engine: a planner under a mutex, a thread for each worker, and the requests that are under way.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "custom_ops/lite_delegate/arena.h"
#include "custom_ops/lite_delegate/bundle.h"
#include "custom_ops/lite_delegate/engine_options.h"
#include "custom_ops/lite_delegate/litert.h"
#include "custom_ops/lite_delegate/planner.h"
#include "custom_ops/lite_delegate/program.h"
#include "custom_ops/lite_delegate/statistics.h"
#include "custom_ops/lite_delegate/tracer.h"

namespace tf_ext {
namespace lite {

Micros Now();

// What a request brings.
struct Request {
  int model;
  const TfExtLiteBuffer* inputs;
  std::size_t num_inputs;
  const TfExtLiteBuffer* outputs;
  std::size_t num_outputs;
  JobOptions options;
  TfExtLiteCallback callback = nullptr;
  void* user = nullptr;
  bool counts = true;  // among the statistics
};

// It is held by its threads, too: a thread that hangs in a driver outlives TfExtLiteEngineDelete, and what it touches with it.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Null where it cannot be made; `status` and the error of the thread say why.
  static std::shared_ptr<Engine> Create(const EngineOptions& options, TfExtLiteStatus* status);
  // Cancels what waits, lets what runs end, joins the threads that end in time. Refused on a thread of the engine.
  TfExtLiteStatus Stop();

  const EngineOptions& options() const { return options_; }

  TfExtLiteStatus AddModel(std::unique_ptr<Bundle> bundle, std::int32_t* model);
  // Null where there is no such model. It lives as long as the engine.
  const Bundle* bundle(int model) const;
  TfExtLiteStatus WarmUp(int model);

  TfExtLiteStatus Submit(const Request& request, JobId* job);
  TfExtLiteStatus Wait(JobId job, std::int64_t timeout_us);
  TfExtLiteStatus Cancel(JobId job);

  void SetPolicy(std::unique_ptr<Policy> policy);
  std::string Statistics() const;
  Tracer& tracer() { return tracer_; }

 private:
  // A model, and what its requests share.
  struct Model {
    Model(std::unique_ptr<Bundle> opened, std::vector<std::size_t> sizes);
    // The bytes of a piece, its checksum compared once. Null, with the reason.
    std::shared_ptr<const char> Load(int piece, std::string* error);

    const std::unique_ptr<Bundle> bundle;
    Arenas arenas;
    ModelStatistics statistics;
    std::string refusal;  // why a worker cannot run a piece of it, if one cannot

   private:
    std::mutex mutex_;
    std::map<int, std::shared_ptr<const char>> loaded_;
  };

  // Where the tensors of a request lie: in its arena, and inputs with the caller.
  struct Memory {
    std::unique_ptr<Arena> arena;
    std::vector<void*> tensors;
  };

  struct Job {
    std::shared_ptr<Model> model;
    std::shared_ptr<Memory> memory;
    std::vector<TfExtLiteBuffer> outputs;
    TfExtLiteCallback callback;
    void* user;
    bool counts;
    Micros submitted;
    std::string failure;  // why a piece failed, if one did
    bool done = false;
    TfExtLiteStatus status = kTfExtLiteOk;
    std::string message;
    std::condition_variable ended;
  };

  enum class Phase { kIdle, kLoading, kRunning, kCopying };

  struct Worker {
    WorkerOptions options;
    std::string name;
    std::condition_variable work;
    std::thread thread;
    bool exited = false;
    // What it does now, for the watchdog.
    Phase phase = Phase::kIdle;
    bool lost = false;
    JobId job = -1;
    Micros since = 0, allowed = 0;
    WorkerStatistics statistics;
  };

  // What a worker's thread keeps to itself.
  struct Desk;
  using Callbacks = std::vector<std::pair<JobId, std::shared_ptr<Job>>>;

  explicit Engine(const EngineOptions& options);
  void Start();
  // Whether the calling thread is one of this engine's, which must not wait for what such threads do.
  bool OnOwnThread() const;
  TfExtLiteStatus Check(const Request& request, const Model& model) const;
  std::shared_ptr<Memory> Place(const Request& request, Model& model) const;

  void Work(int index);
  void WorkUntilStopped(int index, Desk& desk);
  void RunOne(int index, Desk& desk, const Assignment& assignment, std::unique_lock<std::mutex>& lock);
  void RunPiece(int index, Desk& desk, const Assignment& assignment, Model& model, Memory& memory, Micros* begin,
                std::string* error);
  void TellItRuns(int index, Micros begin);
  void ComeBack(int index, std::unique_lock<std::mutex>& lock);
  Program* Prepare(int index, Desk& desk, const Assignment& assignment, Model& model, std::string* error);
  std::unique_ptr<Program> Compile(int index, Desk& desk, const Assignment& assignment, Model& model, std::string* error);
  // How it ended: an empty error is success. `refused`: it will not run here later, either.
  struct Outcome {
    std::string error;
    bool refused = false;
    Micros begin = 0, end = 0;
  };
  void Complete(int index, const Assignment& assignment, const std::shared_ptr<Job>& job, const Outcome& outcome,
                std::unique_lock<std::mutex>& lock);
  void Watch();
  // Whether there was any.
  bool GiveUpThoseThatHang(std::vector<Ended>* ended);
  void GiveUp(Worker& worker, int index, std::vector<Ended>* ended);
  static std::shared_ptr<Memory> Copy(const Memory& memory, Model& model);

  // All of these with the mutex held.
  void PlanAndWake(std::vector<Ended>* ended);
  void Settle(const std::vector<Ended>& ended, Callbacks* callbacks);
  void Forget(std::vector<Ended>* ended);
  static void Call(const Callbacks& callbacks);

  const EngineOptions options_;
  std::shared_ptr<const LiteRt> litert_;
  mutable std::mutex mutex_;
  Planner planner_;
  std::vector<std::shared_ptr<Model>> models_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unordered_map<JobId, std::shared_ptr<Job>> jobs_;
  Tracer tracer_;
  bool stopping_ = false;
  std::condition_variable watch_, exit_;
  bool watch_asleep_ = false;
  std::thread watchdog_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ENGINE_H_
