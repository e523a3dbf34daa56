/* Runs a bundle through the C interface, as an app in C would: run_bundle RUNTIME BUNDLE RUNS OUTPUT INPUT...
 *
 * INPUT are files with the bytes of the inputs; the outputs' bytes are written to OUTPUT, one after the other. Every run must
 * give the same bytes. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "custom_ops/lite_delegate/tf_ext_lite.h"

#define MAX_TENSORS 16

static void check(TfExtLiteStatus status, const char* what) {
  if (status == kTfExtLiteOk) return;
  fprintf(stderr, "%s: status %d: %s\n", what, (int)status, TfExtLiteLastError());
  exit(1);
}

static void* allocate(size_t bytes) {
  void* memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (memory == NULL) exit(2);
  memset(memory, 0, bytes);
  return memory;
}

static void read_file(const char* path, TfExtLiteBuffer buffer) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(buffer.data, 1, buffer.bytes, file) != buffer.bytes) {
    fprintf(stderr, "%s: expected %zu bytes\n", path, buffer.bytes);
    exit(1);
  }
  fclose(file);
}

int main(int argc, char** argv) {
  const char* keys[] = {"runtime", "workers"};
  const char* values[] = {argv[1], "cpu,cpu"};
  TfExtLiteBuffer inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  void* first[MAX_TENSORS];
  TfExtLiteEngine* engine = NULL;
  TfExtLiteTensor tensor;
  int32_t model = -1, i, num_inputs, num_outputs, run;
  if (argc < 6) {
    fprintf(stderr, "expected: run_bundle RUNTIME BUNDLE RUNS OUTPUT INPUT...\n");
    return 2;
  }
  if (TfExtLiteAbi() != TF_EXT_LITE_ABI) return 3;
  check(TfExtLiteEngineCreate(keys, values, 2, &engine), "create");
  check(TfExtLiteAddModel(engine, argv[2], &model), "add");
  num_inputs = TfExtLiteInputCount(engine, model);
  num_outputs = TfExtLiteOutputCount(engine, model);
  if (num_inputs != argc - 5 || num_inputs > MAX_TENSORS || num_outputs > MAX_TENSORS) {
    fprintf(stderr, "the model takes %d inputs\n", (int)num_inputs);
    return 1;
  }
  for (i = 0; i < num_inputs; ++i) {
    check(TfExtLiteInput(engine, model, i, &tensor), "input");
    inputs[i].data = allocate(tensor.bytes);
    inputs[i].bytes = tensor.bytes;
    read_file(argv[5 + i], inputs[i]);
  }
  for (i = 0; i < num_outputs; ++i) {
    check(TfExtLiteOutput(engine, model, i, &tensor), "output");
    outputs[i].data = allocate(tensor.bytes);
    outputs[i].bytes = tensor.bytes;
    first[i] = allocate(tensor.bytes);
  }
  for (run = 0; run < atoi(argv[3]); ++run) {
    check(TfExtLiteRequest(engine, model, inputs, (size_t)num_inputs, outputs, (size_t)num_outputs, NULL), "request");
    for (i = 0; i < num_outputs; ++i) {
      if (run == 0) {
        memcpy(first[i], outputs[i].data, outputs[i].bytes);
      } else if (memcmp(first[i], outputs[i].data, outputs[i].bytes) != 0) {
        fprintf(stderr, "run %d gave another output %d\n", (int)run, (int)i);
        return 1;
      }
    }
  }
  {
    FILE* file = fopen(argv[4], "wb");
    if (file == NULL) return 1;
    for (i = 0; i < num_outputs; ++i) fwrite(outputs[i].data, 1, outputs[i].bytes, file);
    fclose(file);
  }
  TfExtLiteEngineDelete(engine);
  return 0;
}
