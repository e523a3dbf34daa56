#include "custom_ops/recursion/worker_pool.h"

#include <algorithm>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/cpu_info.h"

namespace tf_ext {
namespace recursion {
namespace {

// A short recursion is over before a helper has woken up.
constexpr int64_t kTasksBeforeHelp = 32;

// The pool that is starting a helper on this thread: a runner that runs at once must not make this thread a helper, which
// would wait for tasks that only the interrupted worker could give.
thread_local const WorkerPool* starting = nullptr;

}  // namespace

int WorkerPool::DefaultWorkers(tensorflow::OpKernelContext* ctx) {
  int workers = tensorflow::port::NumSchedulableCPUs();
  if (const auto* threads = ctx->device()->tensorflow_cpu_worker_threads()) {
    workers = std::min(workers, threads->num_threads);
  }
  return std::max(1, workers);
}

absl::Status WorkerPool::Run(tensorflow::OpKernelContext* ctx, int max_workers, Client* client,
                             const std::vector<Task>& first) {
  auto pool = std::make_shared<WorkerPool>();
  auto runner = ctx->runner() == nullptr ? nullptr : *ctx->runner();
  pool->runner_ = runner == nullptr ? nullptr : &runner;
  pool->self_ = pool;
  pool->client_ = client;
  pool->max_workers_ = pool->runner_ == nullptr ? 1 : max_workers;

  tensorflow::CancellationManager* cancellation = ctx->cancellation_manager();
  tensorflow::CancellationToken token = 0;
  if (cancellation != nullptr) {
    token = cancellation->get_cancellation_token();
    const auto cancel = [pool]() { pool->Fail(absl::CancelledError("the recursion was cancelled")); };
    if (!cancellation->RegisterCallback(token, cancel)) return absl::CancelledError("the recursion was cancelled");
  }
  Worker worker;
  worker.pool_ = pool.get();
  worker.stack_ = first;
  pool->Work(&worker);
  {
    std::unique_lock<std::mutex> lock(pool->mutex_);
    pool->changed_.wait(lock, [&] { return pool->active_ == 0; });
  }
  if (cancellation != nullptr) cancellation->DeregisterCallback(token);
  std::unique_lock<std::mutex> lock(pool->mutex_);
  return pool->status_;
}

void WorkerPool::Work(Worker* worker) {
  std::vector<Task>& stack = worker->stack_;
  while (!stopped()) {
    if (stack.size() == worker->oldest_) {
      if (!Take(worker)) return;
      continue;
    }
    const Task task = stack.back();
    stack.pop_back();
    const absl::Status status = client_->RunTask(*worker, task);
    if (!status.ok()) {
      Fail(status);
      return;
    }
    if (stack.size() == worker->oldest_) continue;
    if (hungry_.load(std::memory_order_relaxed) > 0) {
      Give(worker);
    } else if (++worker->num_run_ >= kTasksBeforeHelp && started_.load(std::memory_order_relaxed) < max_workers_) {
      if (auto self = self_.lock()) StartHelper(self);
      worker->num_run_ = 0;
    }
  }
}

void WorkerPool::Give(Worker* worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (hungry_.load(std::memory_order_relaxed) > 0 && worker->oldest_ < worker->stack_.size()) {
    Task task = worker->stack_[worker->oldest_++];
    client_->OnGive(*worker, &task);
    given_.push_back(task);
    hungry_.fetch_sub(1, std::memory_order_relaxed);
    changed_.notify_one();
  }
  if (worker->oldest_ == worker->stack_.size()) {
    worker->stack_.clear();
    worker->oldest_ = 0;
  }
}

bool WorkerPool::Take(Worker* worker) {
  client_->OnIdle(*worker);
  worker->stack_.clear();
  worker->oldest_ = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  // Every given task has been subtracted from `hungry_` once, so that whoever takes one has to have been counted.
  hungry_.fetch_add(1, std::memory_order_relaxed);
  changed_.wait(lock, [&] { return stopped() || !given_.empty(); });
  if (stopped()) return false;
  Task task = given_.front();
  given_.pop_front();
  lock.unlock();
  client_->OnTake(*worker, &task);
  worker->Push(task);
  return true;
}

void WorkerPool::Finish() {
  std::unique_lock<std::mutex> lock(mutex_);
  stop_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

void WorkerPool::Fail(const absl::Status& status) {
  std::unique_lock<std::mutex> lock(mutex_);
  // The first error wins, and a result wins over a late cancellation. A function called by an operator cancels the step
  // before its error gets here.
  if (stopped() && !(absl::IsCancelled(status_) && !absl::IsCancelled(status))) return;
  status_ = status;
  stop_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

void WorkerPool::StartHelper(const std::shared_ptr<WorkerPool>& self) {
  if (started_.fetch_add(1, std::memory_order_relaxed) >= max_workers_) return;
  const WorkerPool* outer = starting;
  starting = this;
  (*runner_)([self]() {
    if (starting != self.get()) self->Help();
  });
  starting = outer;
}

void WorkerPool::Help() {
  Worker worker;
  worker.pool_ = this;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (stopped()) return;
    ++active_;
    worker.index_ = ++num_helpers_;
  }
  Work(&worker);
  std::unique_lock<std::mutex> lock(mutex_);
  --active_;
  changed_.notify_all();
}

}  // namespace recursion
}  // namespace tf_ext
