// Many threads, requests, cancellations and failures at once, for the sanitizers: stress RUNTIME BUNDLE ROUNDS.

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace {

constexpr int kThreads = 8;
constexpr int kRequests = 60;
constexpr int kWaiters = 200;

std::atomic<int> wrong{0}, done{0}, called{0}, expected_calls{0}, refused{0};

void Require(bool held, const char* what) {
  if (held) return;
  ++wrong;
  std::fprintf(stderr, "not so: %s (%s)\n", what, TfExtLiteLastError());
}

void Called(void*, TfExtLiteJob, TfExtLiteStatus) { ++called; }

struct alignas(64) Values {
  float data[16];
};

void Send(TfExtLiteEngine* engine, int32_t model, int thread) {
  std::vector<Values> in(kRequests), out(kRequests);
  std::vector<TfExtLiteJob> jobs(kRequests, -1);
  for (int i = 0; i < kRequests; ++i) {
    for (float& value : in[i].data) value = static_cast<float>(thread * kRequests + i);
    const TfExtLiteBuffer input{in[i].data, sizeof(Values)}, output{out[i].data, sizeof(Values)};
    const TfExtLiteRequestOptions options{sizeof(TfExtLiteRequestOptions), i % 5 == 0 ? 1 : 0, i % 3, i % 7 == 0 ? thread % 2 : -1};
    if (i % 4 == 0) {
      const TfExtLiteStatus status = TfExtLiteRequest(engine, model, &input, 1, &output, 1, &options);
      if (status == kTfExtLiteOk) Require(out[i].data[3] == in[i].data[3] + 3, "the sum of a request");
    } else {
      const bool calls = i % 4 == 1;
      const TfExtLiteStatus status =
          TfExtLiteRequestAsync(engine, model, &input, 1, &output, 1, &options, calls ? Called : nullptr, nullptr, &jobs[i]);
      if (calls && status == kTfExtLiteOk) ++expected_calls;
      if (calls || status != kTfExtLiteOk) jobs[i] = -1;
    }
    if (i % 9 == 8 && jobs[i - 1] >= 0) TfExtLiteCancel(engine, jobs[i - 1]);
  }
  for (int i = 0; i < kRequests; ++i) {
    if (jobs[i] < 0) continue;
    const TfExtLiteStatus status = TfExtLiteWait(engine, jobs[i], 30'000'000);
    Require(status != kTfExtLiteTimeout && status != kTfExtLiteNotFound, "a job ends, and is told once");
    if (status == kTfExtLiteOk) Require(out[i].data[7] == in[i].data[7] + 3, "the sum of a job"), ++done;
  }
  // Buffers of jobs with callbacks must live until these are called.
  while (called < expected_calls) std::this_thread::yield();
}

void Round(const char* runtime, const char* bundle, int round) {
  const char* keys[] = {"runtime", "workers", "policy", "trace", "queue_limit"};
  static const char* const kPolicies[] = {"adaptive", "fixed", "round_robin", "heft_reserved", "least_slack"};
  const char* values[] = {runtime, "cpu,cpu,cpu", kPolicies[round % 5], "1", round % 2 ? "1024" : "40"};
  TfExtLiteEngine* engine = nullptr;
  int32_t model = -1;
  Require(TfExtLiteEngineCreate(keys, values, 5, &engine) == kTfExtLiteOk, "an engine is made");
  if (engine == nullptr) return;
  Require(TfExtLiteAddModel(engine, bundle, &model) == kTfExtLiteOk, "a model is added");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Send, engine, model, i);
  for (int i = 0; i < 5; ++i) {
    TfExtLiteFree(TfExtLiteStatistics(engine));
    TfExtLiteFree(TfExtLiteTrace(engine));
    TfExtLiteSetPolicy(engine, kPolicies[i]);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (std::thread& thread : threads) thread.join();
  // Deleted with work under way: what waits is cancelled.
  static Values in[50], out[50];
  for (int i = 0; i < 50; ++i) {
    const TfExtLiteBuffer input{in[i].data, sizeof(Values)}, output{out[i].data, sizeof(Values)};
    if (TfExtLiteRequestAsync(engine, model, &input, 1, &output, 1, nullptr, Called, nullptr, nullptr) == kTfExtLiteOk) {
      ++expected_calls;
    }
  }
  TfExtLiteEngineDelete(engine);
  Require(called == expected_calls, "every callback was called once");
}

// Threads that wait while another deletes the engine come back, each with its request ended.
void DeleteWhileOthersWait(const char* runtime, const char* bundle) {
  const char* keys[] = {"runtime", "workers"};
  const char* values[] = {runtime, "cpu,cpu"};
  TfExtLiteEngine* engine = nullptr;
  int32_t model = -1;
  Require(TfExtLiteEngineCreate(keys, values, 2, &engine) == kTfExtLiteOk, "an engine is made");
  Require(TfExtLiteAddModel(engine, bundle, &model) == kTfExtLiteOk, "a model is added");
  std::vector<Values> in(kWaiters), out(kWaiters);
  std::vector<TfExtLiteJob> jobs(kWaiters);
  std::vector<std::thread> threads;
  std::atomic<int> waiting{0}, ended{0};
  for (int i = 0; i < kWaiters; ++i) {
    const TfExtLiteBuffer input{in[i].data, sizeof(Values)}, output{out[i].data, sizeof(Values)};
    Require(TfExtLiteRequestAsync(engine, model, &input, 1, &output, 1, nullptr, nullptr, nullptr, &jobs[i]) == kTfExtLiteOk,
            "a request is taken");
    threads.emplace_back([&, i] {
      ++waiting;
      const TfExtLiteStatus status = TfExtLiteWait(engine, jobs[i], -1);
      Require(status == kTfExtLiteOk || status == kTfExtLiteCancelled, "a request that is waited for ends");
      ++ended;
    });
  }
  while (waiting < kWaiters) std::this_thread::yield();
  // Nothing tells whether a thread is within the call already; a call may not begin after the deletion.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  TfExtLiteEngineDelete(engine);
  for (std::thread& thread : threads) thread.join();
  Require(ended == kWaiters, "every thread came back");
}

struct FromCallback {
  TfExtLiteEngine* engine;
  TfExtLiteJob other;
  std::atomic<int> refused{0}, left{1};
};

void TriesToWait(void* user, TfExtLiteJob, TfExtLiteStatus) {
  auto* from = static_cast<FromCallback*>(user);
  if (TfExtLiteWait(from->engine, from->other, -1) == kTfExtLiteInvalidArgument) ++from->refused;
  TfExtLiteEngineDelete(from->engine);
  --from->left;
}

// On the only thread there is, neither would ever end.
void CallbacksNeitherWaitNorDelete(const char* runtime, const char* bundle) {
  const char* keys[] = {"runtime", "workers"};
  const char* values[] = {runtime, "cpu"};
  FromCallback from{nullptr, -1};
  int32_t model = -1;
  Require(TfExtLiteEngineCreate(keys, values, 2, &from.engine) == kTfExtLiteOk, "an engine is made");
  Require(TfExtLiteAddModel(from.engine, bundle, &model) == kTfExtLiteOk, "a model is added");
  Values in[3], out[3];
  TfExtLiteBuffer inputs[3], outputs[3];
  for (int i = 0; i < 3; ++i) inputs[i] = {in[i].data, sizeof(Values)}, outputs[i] = {out[i].data, sizeof(Values)};
  TfExtLiteJob first;
  // While the first runs, the others come to wait behind it.
  TfExtLiteRequestAsync(from.engine, model, &inputs[0], 1, &outputs[0], 1, nullptr, nullptr, nullptr, &first);
  TfExtLiteRequestAsync(from.engine, model, &inputs[1], 1, &outputs[1], 1, nullptr, TriesToWait, &from, nullptr);
  TfExtLiteRequestAsync(from.engine, model, &inputs[2], 1, &outputs[2], 1, nullptr, nullptr, nullptr, &from.other);
  while (from.left > 0) std::this_thread::yield();
  Require(TfExtLiteWait(from.engine, from.other, -1) == kTfExtLiteOk, "the engine goes on");
  refused += from.refused;
  TfExtLiteEngineDelete(from.engine);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  void* fake = dlopen(argv[1], RTLD_NOW);
  if (fake == nullptr) return 3;
  auto* fails = static_cast<std::atomic<int>*>(dlsym(fake, "fake_fails"));
  auto* run_us = static_cast<std::atomic<int>*>(dlsym(fake, "fake_run_us"));
  auto* objects = static_cast<std::atomic<int>*>(dlsym(fake, "fake_objects"));
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    *run_us = round % 3 * 50;
    *fails = 20;
    Round(argv[1], argv[2], round);
    *fails = 0;
    *run_us = 1000;
    DeleteWhileOthersWait(argv[1], argv[2]);
    *run_us = 3000;
    CallbacksNeitherWaitNorDelete(argv[1], argv[2]);
    Require(*objects == 0, "nothing of the runtime is left");
  }
  Require(refused > 0, "a callback that waits is refused");
  std::printf("%d done, %d called, %d wrong\n", done.load(), called.load(), wrong.load());
  return wrong == 0 && done > 0 ? 0 : 1;
}
