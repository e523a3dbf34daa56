// Depth-first work on a tree of calls, shared between threads on demand.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_WORKER_POOL_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_WORKER_POOL_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_ext {
namespace recursion {

// Each worker has a private stack, last in first out: no synchronisation while everybody is busy. A worker that runs out says
// so in `hungry_`; whoever sees that gives away its oldest task, which heads the largest subtree. The calling thread is
// worker 0 and could do everything alone: helpers that get no thread are not waited for.
class WorkerPool {
 public:
  struct Task {
    void* item = nullptr;
    int64_t step = 0;
    void* order = nullptr;  // for the client, see Client::OnGive
  };

  class Worker {
   public:
    int index() const { return index_; }
    void Push(Task task) { stack_.push_back(task); }
    bool stopped() const { return pool_->stopped(); }
    // All is done; workers return as soon as they can.
    void Finish() { pool_->Finish(); }

   private:
    friend class WorkerPool;
    WorkerPool* pool_ = nullptr;
    int index_ = 0;
    std::vector<Task> stack_;
    size_t oldest_ = 0;  // stack_[oldest_:] are open
    int64_t num_run_ = 0;
  };

  class Client {
   public:
    virtual ~Client() = default;
    // Runs a task until it waits for others or is done; pushes what it made.
    virtual absl::Status RunTask(Worker& worker, Task task) = 0;
    // `task` is given away by `worker` / has been taken by `worker` / `worker` has run out of tasks.
    virtual void OnGive(Worker& worker, Task* task) {}
    virtual void OnTake(Worker& worker, Task* task) {}
    virtual void OnIdle(Worker& worker) {}
  };

  // Runs `first`, and what it pushes, until Finish, an error or cancellation. `max_workers` counts the calling thread.
  static absl::Status Run(tensorflow::OpKernelContext* ctx, int max_workers, Client* client,
                          const std::vector<Task>& first);
  // How many threads are worth using in this process.
  static int DefaultWorkers(tensorflow::OpKernelContext* ctx);

  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

 private:
  void Work(Worker* worker);
  void Give(Worker* worker);
  bool Take(Worker* worker);
  void Finish();
  void Fail(const absl::Status& status);
  void StartHelper(const std::shared_ptr<WorkerPool>& self);
  void Help();

  std::function<void(std::function<void()>)>* runner_ = nullptr;
  std::weak_ptr<WorkerPool> self_;
  Client* client_ = nullptr;
  int max_workers_ = 1;
  std::atomic<bool> stop_{false};
  std::atomic<int> hungry_{0};   // workers waiting, less the tasks in `given_`
  std::atomic<int> started_{1};  // workers asked for so far

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> given_;
  int active_ = 0;  // helpers inside Work
  int num_helpers_ = 0;
  absl::Status status_;
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_WORKER_POOL_H_
