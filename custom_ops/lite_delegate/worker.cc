// The engine's threads: those that run pieces, and the one that watches them.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "custom_ops/lite_delegate/engine.h"

namespace tf_ext {
namespace lite {
namespace {

// A piece may take this many times what is expected, and hang_ms more.
constexpr Micros kPatience = 10;
// Compiling for a GPU takes seconds, the first time on a phone tens of them.
constexpr Micros kLoading = 120'000'000;
// Later than this the watchdog is not woken on a machine with time to spare.
constexpr Micros kLate = 100'000;

void Pin(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  // Where it is not allowed, the thread runs where the system puts it.
  sched_setaffinity(0, sizeof(set), &set);
}

thread_local const Engine* engine_of_thread = nullptr;

}  // namespace

struct Engine::Desk {
  std::map<std::string, std::unique_ptr<Processor>> processors;       // by accelerator
  std::map<std::pair<int, int>, std::unique_ptr<Program>> programs;  // by model and piece
  std::map<std::pair<int, int>, std::string> refused;                // those that cannot be had, and why
};

bool Engine::OnOwnThread() const { return engine_of_thread == this; }

void Engine::Work(int index) {
  engine_of_thread = this;
  Worker& worker = *workers_[index];
  pthread_setname_np(pthread_self(), ("lite " + worker.name).substr(0, 15).c_str());
  // Before anything is compiled: the threads of XNNPACK's pool take on the cores of the thread that makes them.
  Pin(worker.options.cores);
  {
    Desk desk;
    WorkUntilStopped(index, desk);
    desk.programs.clear();  // before their processors, and by this thread
  }
  std::lock_guard<std::mutex> lock(mutex_);
  worker.exited = true;
  exit_.notify_all();
}

void Engine::WorkUntilStopped(int index, Desk& desk) {
  std::unique_lock<std::mutex> lock(mutex_);
  Assignment assignment;
  while (!stopping_) {
    if (planner_.Next(index, Now(), &assignment)) {
      RunOne(index, desk, assignment, lock);
    } else {
      workers_[index]->work.wait(lock);
    }
  }
}

void Engine::RunOne(int index, Desk& desk, const Assignment& assignment, std::unique_lock<std::mutex>& lock) {
  Worker& worker = *workers_[index];
  const std::shared_ptr<Job> job = jobs_.at(assignment.job);
  const std::shared_ptr<Model> model = job->model;
  std::shared_ptr<Memory> memory = job->memory;
  const Micros expected = planner_.model(assignment.model).Expected(assignment.piece, index);
  Micros begin = Now();
  worker.job = assignment.job;
  worker.since = begin;
  worker.allowed = kPatience * expected + Micros{1000} * options_.hang_ms;
  const bool loaded = desk.programs.count({assignment.model, assignment.piece}) != 0;
  worker.phase = loaded ? Phase::kRunning : Phase::kLoading;
  if (!loaded) worker.allowed += kLoading;
  lock.unlock();

  Outcome outcome;
  try {
    RunPiece(index, desk, assignment, *model, *memory, &begin, &outcome.error);
  } catch (const std::exception& thrown) {  // no memory, most likely
    outcome.error = "worker " + worker.name + " could not run a piece of '" + model->bundle->name() + "': " + thrown.what();
  }
  outcome.begin = begin;
  outcome.end = Now();
  outcome.refused = desk.refused.count({assignment.model, assignment.piece}) != 0;

  lock.lock();
  memory.reset();
  if (worker.lost) {
    ComeBack(index, lock);
  } else {
    Complete(index, assignment, job, outcome, lock);
  }
}

void Engine::RunPiece(int index, Desk& desk, const Assignment& assignment, Model& model, Memory& memory, Micros* begin,
                      std::string* error) {
  const bool loaded = desk.programs.count({assignment.model, assignment.piece}) != 0;
  Program* program = Prepare(index, desk, assignment, model, error);
  if (program == nullptr) return;
  if (!loaded) {
    *begin = Now();
    TellItRuns(index, *begin);
  }
  if (program->processor().options().accelerator == "cpu") {
    program->Run(memory.tensors.data(), error);
    return;
  }
  // A driver that hangs may read on when the request has ended elsewhere and its caller has freed the inputs.
  std::vector<void*> tensors = memory.tensors;
  for (const int input : model.bundle->pieces()[assignment.piece].inputs) {
    void* own = memory.arena->at(input);
    if (tensors[input] != own) std::memcpy(own, tensors[input], model.bundle->tensors()[input].bytes);
    tensors[input] = own;
  }
  program->Run(tensors.data(), error);
}

// What went before, loading the piece, tells nothing about its cost.
void Engine::TellItRuns(int index, Micros begin) {
  std::lock_guard<std::mutex> lock(mutex_);
  Worker& worker = *workers_[index];
  if (worker.lost) return;
  planner_.Began(index, begin);
  worker.phase = Phase::kRunning;
  worker.since = begin;
  worker.allowed -= kLoading;
}

// It was given up, and what it did was done elsewhere.
void Engine::ComeBack(int index, std::unique_lock<std::mutex>& lock) {
  Worker& worker = *workers_[index];
  worker.lost = false;
  worker.phase = Phase::kIdle;
  std::vector<Ended> ended;
  Callbacks callbacks;
  planner_.SetAvailable(index, true, Now(), &ended);
  tracer_.Mark(index, "back", Now());
  PlanAndWake(&ended);
  Settle(ended, &callbacks);
  if (stopping_) exit_.notify_all();
  if (callbacks.empty()) return;
  lock.unlock();
  Call(callbacks);
  lock.lock();
}

std::unique_ptr<Program> Engine::Compile(int index, Desk& desk, const Assignment& assignment, Model& model,
                                         std::string* error) {
  const WorkerOptions& options = options_.workers[index];
  Processor::Options how;
  for (const ProcessorSpec& processor : model.bundle->processors()) {
    if (processor.name == options.processor) how.accelerator = processor.accelerator;
  }
  std::unique_ptr<Processor>& processor = desk.processors[how.accelerator];
  if (processor == nullptr) {
    how.threads = options.cores.empty() ? 1 : static_cast<int>(options.cores.size());
    how.cache_dir = options_.cache_dir;
    how.gpu_precision = options_.gpu_precision;
    processor = Processor::Open(litert_, how, error);
    if (processor == nullptr) return nullptr;
  }
  std::shared_ptr<const char> bytes = model.Load(assignment.piece, error);
  if (bytes == nullptr) return nullptr;
  return Program::Compile(*processor, *model.bundle, assignment.piece, std::move(bytes), error);
}

Program* Engine::Prepare(int index, Desk& desk, const Assignment& assignment, Model& model, std::string* error) {
  const std::pair<int, int> which(assignment.model, assignment.piece);
  const auto known = desk.programs.find(which);
  if (known != desk.programs.end()) return known->second.get();
  const auto refused = desk.refused.find(which);
  if (refused != desk.refused.end()) {
    *error = refused->second;
    return nullptr;
  }
  std::unique_ptr<Program> program = Compile(index, desk, assignment, model, error);
  std::lock_guard<std::mutex> lock(mutex_);
  if (program == nullptr) {
    *error = "worker " + workers_[index]->name + " cannot run a piece of '" + model.bundle->name() + "': " + *error;
    desk.refused[which] = *error;
    workers_[index]->statistics.refused[which] = *error;
    return nullptr;
  }
  PieceStatistics& about = workers_[index]->statistics.pieces[which];
  about.threads = program->processor().threads();
  about.accelerator = program->processor().options().accelerator;
  about.precision = program->processor().precision();
  return (desk.programs[which] = std::move(program)).get();
}

void Engine::Complete(int index, const Assignment& assignment, const std::shared_ptr<Job>& job, const Outcome& outcome,
                      std::unique_lock<std::mutex>& lock) {
  Worker& worker = *workers_[index];
  const bool ok = outcome.error.empty();
  const Micros begin = outcome.begin, end = outcome.end;
  const Bundle& bundle = *job->model->bundle;
  const PieceSpec& piece = bundle.pieces()[assignment.piece];
  if (ok && piece.end == bundle.units()) {
    // The watchdog leaves it alone meanwhile. Pieces write to the arena and not to the caller's memory, so that a driver that
    // hangs cannot write there after the request has ended elsewhere.
    worker.phase = Phase::kCopying;
    lock.unlock();
    for (std::size_t i = 0; i < job->outputs.size(); ++i) {
      const TfExtLiteBuffer& output = job->outputs[i];
      if (output.bytes > 0) std::memcpy(output.data, job->memory->tensors[bundle.outputs()[i]], output.bytes);
    }
    lock.lock();
  }
  worker.phase = Phase::kIdle;
  if (ok) {
    PieceStatistics& did = worker.statistics.pieces[{assignment.model, assignment.piece}];
    ++did.runs;
    did.time += end - begin;
    ++worker.statistics.runs;
    worker.statistics.busy += end - begin;
    if (tracer_.enabled()) {
      tracer_.Ran(index, bundle.name() + " " + std::to_string(piece.begin) + "-" + std::to_string(piece.end),
                  assignment.job, begin, end);
    }
  } else {
    ++worker.statistics.failed;
    job->failure = outcome.error;
    if (outcome.refused) job->model->refusal = outcome.error;
  }
  std::vector<Ended> ended;
  Callbacks callbacks;
  if (outcome.refused) {
    planner_.Refuse(index, &ended);
  } else {
    planner_.Finish(index, end, ok, &ended);
  }
  PlanAndWake(&ended);
  Settle(ended, &callbacks);
  if (callbacks.empty()) return;
  lock.unlock();
  Call(callbacks);
  lock.lock();
}

void Engine::Watch() {
  engine_of_thread = this;
  const auto period = std::chrono::milliseconds(std::min(250, std::max(1, options_.hang_ms / 4)));
  std::unique_lock<std::mutex> lock(mutex_);
  // Work that is assigned counts: a worker that was woken has not begun yet, and does not tell when it does.
  const auto busy = [this] {
    if (!stopping_) return planner_.running() + planner_.queued() + planner_.waiting() > 0;
    return std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return !w->exited && !w->lost; });
  };
  while (true) {
    if (!busy()) {
      if (stopping_) return;
      watch_asleep_ = true;
      watch_.wait(lock);
      watch_asleep_ = false;
      continue;
    }
    // While the engine stops, workers end one by one, and nobody tells the watchdog.
    const auto nap = stopping_ ? std::chrono::milliseconds(1) : period;
    const Micros before = Now();
    watch_.wait_for(lock, nap);
    // Where this thread was kept from running, the process was stopped or the machine is overloaded, and no worker hangs for that.
    const Micros late = Now() - before - Micros{1000} * nap.count();
    for (const auto& worker : workers_) worker->allowed += late > kLate ? late : 0;
    std::vector<Ended> ended;
    Callbacks callbacks;
    if (!GiveUpThoseThatHang(&ended)) continue;
    PlanAndWake(&ended);
    Settle(ended, &callbacks);
    if (callbacks.empty()) continue;
    lock.unlock();
    Call(callbacks);
    lock.lock();
  }
}

bool Engine::GiveUpThoseThatHang(std::vector<Ended>* ended) {
  bool any = false;
  const Micros now = Now();
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    Worker& worker = *workers_[i];
    const bool at_work = worker.phase == Phase::kLoading || worker.phase == Phase::kRunning;
    if (!at_work || worker.lost || now - worker.since <= worker.allowed) continue;
    GiveUp(worker, i, ended);
    any = true;
  }
  if (any && stopping_) exit_.notify_all();
  return any;
}

void Engine::GiveUp(Worker& worker, int index, std::vector<Ended>* ended) {
  worker.lost = true;
  ++worker.statistics.lost;
  const auto found = jobs_.find(worker.job);
  if (found != jobs_.end() && !found->second->done) {
    Job& job = *found->second;
    job.failure = "worker " + worker.name + " did not end a piece of '" + job.model->bundle->name() + "' within " +
                  std::to_string(worker.allowed / 1000) + " ms, and counts as lost";
    try {
      job.memory = Copy(*job.memory, *job.model);
    } catch (const std::bad_alloc&) {  // then it cannot be done again
      job.failure += ", and there is no memory to run it elsewhere";
      planner_.Cancel(worker.job, Now());
    }
  }
  tracer_.Mark(index, "lost", Now());
  planner_.SetAvailable(index, false, Now(), ended);
}

// What hangs may still write to its memory.
std::shared_ptr<Engine::Memory> Engine::Copy(const Memory& memory, Model& model) {
  auto fresh = std::make_shared<Memory>();
  fresh->arena = model.arenas.Take();
  fresh->arena->CopyFrom(*memory.arena);
  for (std::size_t i = 0; i < memory.tensors.size(); ++i) {
    void* place = memory.tensors[i];
    fresh->tensors.push_back(place == memory.arena->at(i) ? fresh->arena->at(i) : place);
  }
  return fresh;
}

}  // namespace lite
}  // namespace tf_ext
