/* The C interface of the engine that runs several TFLite models on all processors of a device.
 *
 * An app creates one engine, adds a bundle for each model (made ahead of time by `tf-ext lite bundle`), and sends requests
 * from any thread. The same library is a TFLite external delegate: see delegate.cc.
 *
 * No function throws or ends the process. What went wrong is told by the status, and in words by TfExtLiteLastError().
 */

#ifndef TF_EXT_LITE_H_
#define TF_EXT_LITE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TF_EXT_LITE_EXPORT __declspec(dllexport)
#else
#define TF_EXT_LITE_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with each change of this interface that is not an addition. */
#define TF_EXT_LITE_ABI 1

typedef struct TfExtLiteEngine TfExtLiteEngine;
typedef int64_t TfExtLiteJob;

typedef enum TfExtLiteStatus {
  kTfExtLiteOk = 0,
  kTfExtLiteInvalidArgument = 1,
  kTfExtLiteNotFound = 2,         /* no such file, model, job, processor or policy */
  kTfExtLiteDataLoss = 3,         /* a bundle that is damaged, or of another version or model */
  kTfExtLiteUnavailable = 4,      /* the runtime or every processor that could do it is absent or lost */
  kTfExtLiteQueueFull = 5,        /* too many requests wait; try again later */
  kTfExtLiteDeadlineExceeded = 6, /* dropped: it could not be done in time any more */
  kTfExtLiteCancelled = 7,
  kTfExtLiteTimeout = 8,          /* a wait ended before the job did */
  kTfExtLiteInternal = 9
} TfExtLiteStatus;

/* What happened last on this thread, in words: what was expected, what came, what to do. Valid until the next call. */
TF_EXT_LITE_EXPORT const char* TfExtLiteLastError(void);

/* "0.1.0"; and TF_EXT_LITE_ABI of the library that was loaded. */
TF_EXT_LITE_EXPORT const char* TfExtLiteVersion(void);
TF_EXT_LITE_EXPORT int32_t TfExtLiteAbi(void);

/* --- engine ------------------------------------------------------------------------------------------------------------ */

/* Options are pairs of strings; unknown keys are refused by name.
 *   runtime       path of libLiteRt.so; else $TF_EXT_LITERT, else what the loader finds
 *   workers       "cpu@0,cpu@1,gpu": a processor of the bundles, and the cores that its thread is pinned to ("cpu@0+1": both,
 *                 with two threads). Default: one "cpu" worker for each core that the process may use
 *   policy        one of the names that TfExtLitePolicies() tells; default "adaptive"
 *   queue_limit   requests that may wait (default 1024); more are refused with kTfExtLiteQueueFull
 *   hang_ms       how long a piece may take beyond 10 times its expectation before its worker counts as lost (default 2000)
 *   cache_dir     where compiled programs of GPU and NPU are kept
 *   gpu_precision "float32" (default), or "float16": faster on most phones, and less exact
 *   trace         "1": record a trace from the start
 * NPUs need libraries of their maker's: $TF_EXT_LITERT_DISPATCH and $TF_EXT_LITERT_COMPILER name their folders, else they are
 * looked for beside the runtime; $TF_EXT_LITERT_NPU_OPTIONS are options for them, as "ID: TOML" (LiteRT's opaque options).
 * With $TF_EXT_LITERT_LOG=1 LiteRT tells what it does, not just what goes wrong.
 */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteEngineCreate(const char* const* keys, const char* const* values, size_t count,
                                                         TfExtLiteEngine** engine);
/* Cancels what waits, lets what runs end, joins all threads. Calls that wait in other threads return. Not from a callback: that
 * is a thread of the engine; nothing is deleted then. */
TF_EXT_LITE_EXPORT void TfExtLiteEngineDelete(TfExtLiteEngine* engine);

/* --- models ------------------------------------------------------------------------------------------------------------ */

/* Adds a bundle: a folder or a file; bytes that stay valid and unchanged as long as the engine lives; or a part of an open file
 * (an asset of an Android app), whose descriptor may be closed afterwards. Sub-models are loaded on first use. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteAddModel(TfExtLiteEngine* engine, const char* path, int32_t* model);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteAddModelFromMemory(TfExtLiteEngine* engine, const void* data, size_t size,
                                                               int32_t* model);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteAddModelFromDescriptor(TfExtLiteEngine* engine, int fd, int64_t offset,
                                                                   int64_t length, int32_t* model);

typedef struct TfExtLiteTensor {
  const char* name;
  const char* type; /* numpy's name: "float32", "uint8" */
  const int32_t* shape;
  int32_t rank;
  size_t bytes;
} TfExtLiteTensor;

/* The strings and the shape live as long as the engine. A negative result: no such model. */
TF_EXT_LITE_EXPORT int32_t TfExtLiteInputCount(const TfExtLiteEngine* engine, int32_t model);
TF_EXT_LITE_EXPORT int32_t TfExtLiteOutputCount(const TfExtLiteEngine* engine, int32_t model);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteInput(const TfExtLiteEngine* engine, int32_t model, int32_t index,
                                                  TfExtLiteTensor* tensor);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteOutput(const TfExtLiteEngine* engine, int32_t model, int32_t index,
                                                   TfExtLiteTensor* tensor);

/* Loads, on each worker, the pieces that requests take first, and runs them once. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteWarmUp(TfExtLiteEngine* engine, int32_t model);

/* --- requests ---------------------------------------------------------------------------------------------------------- */

typedef struct TfExtLiteBuffer {
  void* data; /* 64-byte aligned memory is used in place, other memory is copied */
  size_t bytes;
} TfExtLiteBuffer;

typedef struct TfExtLiteRequestOptions {
  size_t size;       /* sizeof(TfExtLiteRequestOptions) */
  int64_t slo_us;    /* service-level objective: done within this time from now; 0: none */
  int32_t priority;  /* the larger, the sooner; 0 is usual */
  int32_t worker;    /* only on this worker; -1: any */
} TfExtLiteRequestOptions;

/* Called once, on a thread of the engine or on one that calls it, when the job has ended. It must not block for long, and cannot
 * wait for other jobs: no thread might be left to run them. */
typedef void (*TfExtLiteCallback)(void* user, TfExtLiteJob job, TfExtLiteStatus status);

/* Runs a model and waits for it. `options` may be null. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteRequest(TfExtLiteEngine* engine, int32_t model, const TfExtLiteBuffer* inputs,
                                                    size_t num_inputs, const TfExtLiteBuffer* outputs, size_t num_outputs,
                                                    const TfExtLiteRequestOptions* options);

/* Starts a run. The buffers belong to the engine until the job has ended. With a null `callback` the job stays known until
 * TfExtLiteWait has told its end; with one it is forgotten after the call. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteRequestAsync(TfExtLiteEngine* engine, int32_t model, const TfExtLiteBuffer* inputs,
                                                         size_t num_inputs, const TfExtLiteBuffer* outputs,
                                                         size_t num_outputs, const TfExtLiteRequestOptions* options,
                                                         TfExtLiteCallback callback, void* user, TfExtLiteJob* job);

/* Waits until the job has ended and returns how; kTfExtLiteTimeout if it has not after `timeout_us` (negative: no limit). */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteWait(TfExtLiteEngine* engine, TfExtLiteJob job, int64_t timeout_us);

/* A job that waits ends with kTfExtLiteCancelled; of one that runs, the piece then running is run to its end. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteCancel(TfExtLiteEngine* engine, TfExtLiteJob job);

/* --- policies ---------------------------------------------------------------------------------------------------------- */

/* The names, separated by commas. */
TF_EXT_LITE_EXPORT const char* TfExtLitePolicies(void);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteSetPolicy(TfExtLiteEngine* engine, const char* name);

/* A policy of the user's own: the same views as in policy.h. It appends to `decisions`, at most `num_jobs` of them, and
 * returns how many. Times in microseconds, INT64_MAX / 1024 means never. */
typedef struct TfExtLiteJobView {
  int64_t id;
  int32_t model, unit, priority, pinned;
  int64_t submitted, deadline;
  uint64_t excluded; /* bit w: worker w has failed at this unit and must not try it again */
} TfExtLiteJobView;
typedef struct TfExtLiteWorkerView {
  int32_t available, queued;
  int64_t free_at;
  double slowdown;
} TfExtLiteWorkerView;
typedef struct TfExtLitePieceView {
  int32_t begin, end; /* units */
  const int64_t* expected; /* per worker */
} TfExtLitePieceView;
typedef struct TfExtLiteModelView {
  int32_t units, num_pieces;
  const TfExtLitePieceView* pieces;
} TfExtLiteModelView;
typedef struct TfExtLiteSnapshot {
  int64_t now;
  int32_t num_jobs, num_workers, num_models;
  const TfExtLiteJobView* jobs;
  const TfExtLiteWorkerView* workers;
  const TfExtLiteModelView* models;
} TfExtLiteSnapshot;
typedef struct TfExtLiteDecision {
  int32_t job, worker, piece; /* worker -1: the job is dropped */
} TfExtLiteDecision;
typedef int32_t (*TfExtLitePolicyCallback)(void* user, const TfExtLiteSnapshot* snapshot, TfExtLiteDecision* decisions);
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteSetPolicyCallback(TfExtLiteEngine* engine, TfExtLitePolicyCallback callback,
                                                              void* user);

/* --- what happened ----------------------------------------------------------------------------------------------------- */

/* JSON, to be freed with TfExtLiteFree: workers (runs, busy time, effective threads, precision and accelerator of every piece,
 * slowdown, lost), models (requests, done, dropped, failed, latency percentiles), queue. Null: out of memory. */
TF_EXT_LITE_EXPORT char* TfExtLiteStatistics(TfExtLiteEngine* engine);
/* Starts or stops recording; and the record in Chrome's trace format. */
TF_EXT_LITE_EXPORT void TfExtLiteSetTracing(TfExtLiteEngine* engine, int32_t enabled);
TF_EXT_LITE_EXPORT char* TfExtLiteTrace(TfExtLiteEngine* engine);
TF_EXT_LITE_EXPORT void TfExtLiteFree(char* text);

/* --- simulation -------------------------------------------------------------------------------------------------------- */

/* The same policies and queue under a virtual clock. All times in microseconds. */
typedef enum TfExtLiteEventKind {
  kTfExtLiteWorkerLost = 0,
  kTfExtLiteWorkerBack = 1,
  kTfExtLitePieceFails = 2, /* what the worker then runs, if anything, fails when it ends */
  kTfExtLiteCancelJob = 3,
  kTfExtLiteThrottle = 4 /* pieces begun from now on take `factor` times as long as expected */
} TfExtLiteEventKind;
typedef struct TfExtLiteEvent {
  int64_t time;
  int32_t kind;   /* TfExtLiteEventKind */
  int32_t target; /* worker or job */
  double factor;
} TfExtLiteEvent;

typedef struct TfExtLiteSimulation {
  size_t size; /* sizeof(TfExtLiteSimulation) */
  int32_t num_workers; /* at most 64 */
  int32_t num_models;
  const int32_t* units;           /* [num_models] */
  const int32_t* num_pieces;      /* [num_models] */
  const int32_t* pieces;          /* [sum of num_pieces, 2]: begin, end */
  const int64_t* expected;        /* [sum of num_pieces, num_workers]; INT64_MAX / 1024: cannot */
  const double* slowdowns;        /* [num_workers]: actual time over expected; null: 1 */
  double noise;                   /* each actual time is scaled by a number drawn from 1 - noise to 1 + noise */
  uint64_t seed;                  /* of the noise */
  int32_t queue_limit;            /* 0: none */
  int32_t num_jobs;
  const int32_t* job_model;       /* [num_jobs], in the order of arrival */
  const int64_t* job_arrival;     /* [num_jobs] */
  const int64_t* job_slo;         /* [num_jobs]; 0: none; null: none at all */
  const int32_t* job_priority;    /* [num_jobs]; null: 0 */
  const int32_t* job_pinned;      /* [num_jobs]: a worker, or -1; null: -1 */
  int32_t num_events;
  const TfExtLiteEvent* events;   /* [num_events], in the order of time */
} TfExtLiteSimulation;

typedef struct TfExtLiteRun {
  int32_t job, piece, worker;
  int32_t ok; /* 0: failed, or its worker was lost */
  int64_t begin, end;
} TfExtLiteRun;

/* What to fill; null pointers are left out. */
typedef struct TfExtLiteSimulated {
  size_t size; /* sizeof(TfExtLiteSimulated) */
  int64_t* job_end;     /* [num_jobs] */
  int32_t* job_status;  /* [num_jobs]: TfExtLiteStatus */
  int64_t* worker_busy; /* [num_workers] */
  TfExtLiteRun* runs;   /* [max_runs], in the order in which they ended */
  int64_t max_runs;
  int64_t num_runs;     /* set: how many there were, which may be more than max_runs */
  int64_t decisions;    /* set: calls of the policy */
  double decide_ns;     /* set: the real processor time that they took, on average */
} TfExtLiteSimulated;

/* Runs until nothing more happens. `callback` null: the policy of that name. */
TF_EXT_LITE_EXPORT TfExtLiteStatus TfExtLiteSimulate(const TfExtLiteSimulation* simulation, const char* policy,
                                                     TfExtLitePolicyCallback callback, void* user,
                                                     TfExtLiteSimulated* result);

#ifdef __cplusplus
}
#endif

#endif /* TF_EXT_LITE_H_ */
