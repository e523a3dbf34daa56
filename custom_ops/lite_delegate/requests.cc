// The engine's requests: checked, placed in memory, waited for, cancelled.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "custom_ops/lite_delegate/engine.h"
#include "custom_ops/lite_delegate/last_error.h"

namespace tf_ext {
namespace lite {
namespace {

// Vector kernels read up to this many bytes past the end of a tensor. In an arena there is room; a caller's memory may end with
// its page.
constexpr std::uintptr_t kReadPastEnd = 64;

bool UsableInPlace(const TfExtLiteBuffer& buffer) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (begin % kLiteRtAlignment != 0 || buffer.bytes == 0) return false;
  const std::uintptr_t last = begin + buffer.bytes - 1;
  return last / page == (last + kReadPastEnd) / page;
}

TfExtLiteStatus CheckBuffers(const char* what, const TfExtLiteBuffer* buffers, std::size_t count, const Bundle& bundle,
                             const std::vector<int>& tensors) {
  if (count != tensors.size()) {
    return Fail(kTfExtLiteInvalidArgument, "Model '" + bundle.name() + "' has " + std::to_string(tensors.size()) + " " + what +
                                               "s, but " + std::to_string(count) + " came.");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const TensorSpec& tensor = bundle.tensors()[tensors[i]];
    if (buffers[i].bytes != tensor.bytes || (buffers[i].data == nullptr && tensor.bytes > 0)) {
      return Fail(kTfExtLiteInvalidArgument,
                  std::string(what) + " " + std::to_string(i) + " ('" + tensor.name + "') of model '" + bundle.name() +
                      "' is expected to have " + std::to_string(tensor.bytes) + " bytes, but " +
                      (buffers[i].data == nullptr ? std::string("a null address") : std::to_string(buffers[i].bytes)) +
                      " came. Shapes are fixed when a bundle is made.");
    }
  }
  return kTfExtLiteOk;
}

}  // namespace

TfExtLiteStatus Engine::Check(const Request& request, const Model& model) const {
  const Bundle& bundle = *model.bundle;
  const int pinned = request.options.pinned;
  if (pinned < -1 || pinned >= static_cast<int>(workers_.size())) {
    return Fail(kTfExtLiteNotFound, "There is no worker " + std::to_string(pinned) + "; there are " +
                                        std::to_string(workers_.size()) + ", from 0. -1 means any.");
  }
  const TfExtLiteStatus status = CheckBuffers("input", request.inputs, request.num_inputs, bundle, bundle.inputs());
  return status != kTfExtLiteOk
             ? status
             : CheckBuffers("output", request.outputs, request.num_outputs, bundle, bundle.outputs());
}

std::shared_ptr<Engine::Memory> Engine::Place(const Request& request, Model& model) const {
  auto memory = std::make_shared<Memory>();
  memory->arena = model.arenas.Take();
  const Bundle& bundle = *model.bundle;
  for (std::size_t i = 0; i < bundle.tensors().size(); ++i) memory->tensors.push_back(memory->arena->at(i));
  for (std::size_t i = 0; i < request.num_inputs; ++i) {
    const TfExtLiteBuffer& input = request.inputs[i];
    void*& place = memory->tensors[bundle.inputs()[i]];
    if (UsableInPlace(input)) {
      place = input.data;
    } else if (input.bytes > 0) {
      std::memcpy(place, input.data, input.bytes);
    }
  }
  return memory;
}

TfExtLiteStatus Engine::Submit(const Request& request, JobId* id) {
  std::shared_ptr<Model> model;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (request.model >= 0 && request.model < static_cast<int>(models_.size())) model = models_[request.model];
  }
  if (model == nullptr) return Fail(kTfExtLiteNotFound, "There is no model " + std::to_string(request.model) + ".");
  const TfExtLiteStatus status = Check(request, *model);
  if (status != kTfExtLiteOk) return status;
  auto job = std::make_shared<Job>();
  job->memory = Place(request, *model);
  job->model = std::move(model);
  job->outputs.assign(request.outputs, request.outputs + request.num_outputs);
  job->callback = request.callback;
  job->user = request.user;
  job->counts = request.counts;

  std::unique_lock<std::mutex> lock(mutex_);
  if (stopping_) return Fail(kTfExtLiteCancelled, "The engine is being deleted.");
  job->submitted = Now();
  *id = planner_.Submit(request.model, request.options, job->submitted);
  if (*id < 0) {
    job->model->arenas.Give(std::move(job->memory->arena));
    return Fail(kTfExtLiteQueueFull, "As many requests wait as may (" + std::to_string(options_.queue_limit) +
                                         "): wait for some to end, send fewer, or raise queue_limit.");
  }
  if (job->counts) job->model->statistics.Came();
  jobs_[*id] = std::move(job);
  std::vector<Ended> ended;
  Callbacks callbacks;
  PlanAndWake(&ended);
  Settle(ended, &callbacks);
  lock.unlock();
  Call(callbacks);
  return kTfExtLiteOk;
}

TfExtLiteStatus Engine::Wait(JobId id, std::int64_t timeout_us) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->callback != nullptr) {
    return Fail(kTfExtLiteNotFound, "There is no request " + std::to_string(id) +
                                        " to wait for: its end was told already, or is told to its callback.");
  }
  const std::shared_ptr<Job> job = found->second;
  if (!job->done && OnOwnThread()) {
    return Fail(kTfExtLiteInvalidArgument, "A callback cannot wait for a request: no thread might be left to run it.");
  }
  const auto done = [&job] { return job->done; };
  if (timeout_us < 0) {
    job->ended.wait(lock, done);
  } else if (!job->ended.wait_for(lock, std::chrono::microseconds(std::min<std::int64_t>(timeout_us, 1LL << 50)), done)) {
    return Fail(kTfExtLiteTimeout, "The request had not ended after " + std::to_string(timeout_us) + " us; it goes on.");
  }
  jobs_.erase(id);
  return job->status == kTfExtLiteOk ? kTfExtLiteOk : Fail(job->status, job->message);
}

TfExtLiteStatus Engine::Cancel(JobId id) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    return Fail(kTfExtLiteNotFound, "There is no request " + std::to_string(id) + ": it has ended, and its end was told.");
  }
  if (found->second->done) return kTfExtLiteOk;
  Callbacks callbacks;
  if (planner_.Cancel(id, Now())) Settle({{id, Ending::kCancelled}}, &callbacks);
  lock.unlock();
  Call(callbacks);
  return kTfExtLiteOk;
}

}  // namespace lite
}  // namespace tf_ext
