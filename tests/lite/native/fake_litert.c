/* A runtime that misbehaves on demand, in the place of libLiteRt.so: what no real one does when a test wants it.
 *
 * A model's text is "add N": each output is the first input plus N. The variables below are set by the test. */

#define _POSIX_C_SOURCE 200809L

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT atomic_int fake_hangs;      /* so many runs hang */
EXPORT atomic_int fake_hang_ms;    /* for so long */
EXPORT atomic_int fake_fails;      /* so many runs fail */
EXPORT atomic_int fake_no_compile; /* so many pieces do not compile */
EXPORT atomic_int fake_run_us;     /* what a run takes */
EXPORT atomic_int fake_runs;       /* how many were begun */
EXPORT atomic_int fake_objects;    /* how many are not destroyed */

typedef struct Object {
  float* data;
  size_t bytes;
  float added;
} Object;

static Object* make(void) {
  ++fake_objects;
  return calloc(1, sizeof(Object));
}

static void destroy(Object* object) {
  if (object == NULL) return;
  --fake_objects;
  free(object);
}

static void rest(int micros) {
  struct timespec time = {micros / 1000000, (micros % 1000000) * 1000L};
  if (micros > 0) nanosleep(&time, NULL);
}

/* Whether one of a number of events is left, which is used up by this. */
static bool use(atomic_int* count) {
  int left = *count;
  while (left > 0) {
    if (atomic_compare_exchange_weak(count, &left, left - 1)) return true;
  }
  return false;
}

EXPORT int LiteRtCreateEnvironment(int count, const void* options, Object** environment) {
  (void)count, (void)options;
  *environment = make();
  return 0;
}
EXPORT void LiteRtDestroyEnvironment(Object* environment) { destroy(environment); }

EXPORT int LiteRtCreateModelFromBuffer(Object* environment, const void* data, size_t size, Object** model) {
  char text[32] = "";
  (void)environment;
  if (size < 5 || size > 31) return 501;
  memcpy(text, data, size);
  if (strncmp(text, "add ", 4) != 0) return 501;
  *model = make();
  (*model)->added = (float)atof(text + 4);
  return 0;
}
EXPORT void LiteRtDestroyModel(Object* model) { destroy(model); }

EXPORT int LiteRtCreateOptions(Object** options) {
  *options = make();
  return 0;
}
EXPORT void LiteRtDestroyOptions(Object* options) { destroy(options); }
EXPORT int LiteRtSetOptionsHardwareAccelerators(Object* options, int accelerators) {
  (void)options, (void)accelerators;
  return 0;
}
EXPORT int LiteRtCreateOpaqueOptions(const char* id, void* payload, void (*destroyer)(void*), Object** options) {
  (void)id;
  destroyer(payload);
  *options = NULL;
  return 0;
}
EXPORT int LiteRtAddOpaqueOptions(Object* options, Object* opaque) {
  (void)options, (void)opaque;
  return 0;
}

EXPORT int LiteRtCreateCompiledModel(Object* environment, Object* model, Object* options, Object** compiled) {
  (void)environment, (void)options;
  if (use(&fake_no_compile)) return 504;
  *compiled = make();
  (*compiled)->added = model->added;
  return 0;
}
EXPORT void LiteRtDestroyCompiledModel(Object* compiled) { destroy(compiled); }
EXPORT int LiteRtCompiledModelIsNonCpuFullyAccelerated(Object* compiled, bool* whole) {
  (void)compiled;
  *whole = true;
  return 0;
}

EXPORT int LiteRtCreateTensorBufferFromHostMemory(const void* type, void* data, size_t bytes, void (*release)(void*),
                                                  Object** buffer) {
  (void)type, (void)release;
  if ((uintptr_t)data % 64 != 0) return 1;
  *buffer = make();
  (*buffer)->data = data;
  (*buffer)->bytes = bytes;
  return 0;
}
EXPORT void LiteRtDestroyTensorBuffer(Object* buffer) { destroy(buffer); }

EXPORT int LiteRtRunCompiledModel(Object* compiled, size_t signature, size_t num_inputs, Object** inputs, size_t num_outputs,
                                  Object** outputs) {
  (void)signature;
  ++fake_runs;
  if (use(&fake_fails)) return 3;
  const bool hang = use(&fake_hangs);
  if (hang) rest(fake_hang_ms * 1000);
  rest(fake_run_us);
  for (size_t i = 0; i < num_outputs; ++i) {
    for (size_t j = 0; j < outputs[i]->bytes / sizeof(float); ++j) {
      /* One that hung writes something else, and late: nobody may see it. */
      outputs[i]->data[j] = hang ? -1.0f : (num_inputs > 0 ? inputs[0]->data[j] : 0.0f) + compiled->added;
    }
  }
  return 0;
}
