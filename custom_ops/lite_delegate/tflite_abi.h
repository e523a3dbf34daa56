// The part of TFLite's binary interface that an external delegate needs, written down anew: no package for Python or Debian
// ships its headers. TFLite keeps these layouts stable, since delegates are loaded by interpreters that were built apart from
// them; the assertions below are what was found in TensorFlow 2.21, ai-edge-litert 2.3 and tflite-runtime 2.14.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TFLITE_ABI_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TFLITE_ABI_H_

#include <cstddef>
#include <cstdint>

extern "C" {

enum TfLiteStatus { kTfLiteOk = 0, kTfLiteError = 1 };

struct TfLiteIntArray {
  int size;
  int data[1];  // in truth `size` of them
};

struct TfLiteTensor {
  int type;
  void* data;
  TfLiteIntArray* dims;
  struct {
    float scale;
    std::int32_t zero_point;
  } params;
  int allocation_type;
  std::size_t bytes;
  const void* allocation;
  const char* name;
  struct TfLiteDelegate* delegate;
  int buffer_handle;
  bool data_is_stale;
  bool is_variable;
  struct {
    int type;
    void* params;
  } quantization;
  void* sparsity;
  const TfLiteIntArray* dims_signature;
};

struct TfLiteNode {
  TfLiteIntArray* inputs;
  TfLiteIntArray* outputs;
  TfLiteIntArray* intermediates;
  TfLiteIntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  struct TfLiteDelegate* delegate;
  bool might_have_side_effect;
};

struct TfLiteContext;

struct TfLiteRegistration {
  void* (*init)(TfLiteContext*, const char* buffer, std::size_t length);
  void (*free)(TfLiteContext*, void* user_data);
  TfLiteStatus (*prepare)(TfLiteContext*, TfLiteNode*);
  TfLiteStatus (*invoke)(TfLiteContext*, TfLiteNode*);
  const char* (*profiling_string)(const TfLiteContext*, const TfLiteNode*);
  std::int32_t builtin_code;
  const char* custom_name;
  int version;
  void* registration_external;
  void* async_kernel;
  std::uint64_t inplace_operator;
};

struct TfLiteContext {
  std::size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(TfLiteContext*, TfLiteIntArray** plan);
  TfLiteTensor* tensors;
  void* impl;
  TfLiteStatus (*ResizeTensor)(TfLiteContext*, TfLiteTensor*, TfLiteIntArray*);
  void (*ReportError)(TfLiteContext*, const char* format, ...);
  TfLiteStatus (*AddTensors)(TfLiteContext*, int, int*);
  TfLiteStatus (*GetNodeAndRegistration)(TfLiteContext*, int node, TfLiteNode**, TfLiteRegistration**);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext*, TfLiteRegistration, const TfLiteIntArray* nodes,
                                                        struct TfLiteDelegate*);
  // More follows that is not needed here.
};

struct TfLiteDelegate {
  void* data;
  TfLiteStatus (*Prepare)(TfLiteContext*, TfLiteDelegate*);
  TfLiteStatus (*CopyFromBufferHandle)(TfLiteContext*, TfLiteDelegate*, int, TfLiteTensor*);
  TfLiteStatus (*CopyToBufferHandle)(TfLiteContext*, TfLiteDelegate*, int, TfLiteTensor*);
  void (*FreeBufferHandle)(TfLiteContext*, TfLiteDelegate*, int*);
  std::int64_t flags;
  void* opaque_delegate_builder;
};

struct TfLiteDelegateParams {
  TfLiteDelegate* delegate;
  TfLiteIntArray* nodes_to_replace;
  TfLiteIntArray* input_tensors;
  TfLiteIntArray* output_tensors;
};

}  // extern "C"

// Dynamic tensors are allowed: custom operators, whose shapes TFLite learns late, are not resolved otherwise.
constexpr std::int64_t kTfLiteDelegateFlagsAllowDynamicTensors = 1;
constexpr std::int32_t kTfLiteBuiltinDelegate = 51;
constexpr int kTfLiteMmapRo = 1;  // of a tensor that is a constant of the model

#if defined(__LP64__)
static_assert(offsetof(TfLiteIntArray, size) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteIntArray, data) == 4, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, type) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, data) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, dims) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, params) == 24, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, allocation_type) == 32, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, bytes) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, allocation) == 48, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, name) == 56, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, delegate) == 64, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, buffer_handle) == 72, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, data_is_stale) == 76, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, is_variable) == 77, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, quantization) == 80, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, sparsity) == 96, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, dims_signature) == 104, "TFLite's layout");
static_assert(sizeof(TfLiteTensor) == 112, "TFLite's layout");
static_assert(offsetof(TfLiteNode, inputs) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteNode, outputs) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteNode, intermediates) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteNode, temporaries) == 24, "TFLite's layout");
static_assert(offsetof(TfLiteNode, user_data) == 32, "TFLite's layout");
static_assert(offsetof(TfLiteNode, builtin_data) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteNode, custom_initial_data) == 48, "TFLite's layout");
static_assert(offsetof(TfLiteNode, custom_initial_data_size) == 56, "TFLite's layout");
static_assert(offsetof(TfLiteNode, delegate) == 64, "TFLite's layout");
static_assert(offsetof(TfLiteNode, might_have_side_effect) == 72, "TFLite's layout");
static_assert(sizeof(TfLiteNode) == 80, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, init) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, free) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, prepare) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, invoke) == 24, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, profiling_string) == 32, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, builtin_code) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, custom_name) == 48, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, version) == 56, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, registration_external) == 64, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, async_kernel) == 72, "TFLite's layout");
static_assert(offsetof(TfLiteRegistration, inplace_operator) == 80, "TFLite's layout");
static_assert(sizeof(TfLiteRegistration) == 88, "TFLite's layout");
static_assert(offsetof(TfLiteContext, tensors_size) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteContext, GetExecutionPlan) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteContext, tensors) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteContext, impl) == 24, "TFLite's layout");
static_assert(offsetof(TfLiteContext, ResizeTensor) == 32, "TFLite's layout");
static_assert(offsetof(TfLiteContext, ReportError) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteContext, AddTensors) == 48, "TFLite's layout");
static_assert(offsetof(TfLiteContext, GetNodeAndRegistration) == 56, "TFLite's layout");
static_assert(offsetof(TfLiteContext, ReplaceNodeSubsetsWithDelegateKernels) == 64, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, data) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, Prepare) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, CopyFromBufferHandle) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, CopyToBufferHandle) == 24, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, FreeBufferHandle) == 32, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, flags) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteDelegate, opaque_delegate_builder) == 48, "TFLite's layout");
static_assert(sizeof(TfLiteDelegate) == 56, "TFLite's layout");
static_assert(offsetof(TfLiteDelegateParams, delegate) == 0, "TFLite's layout");
static_assert(offsetof(TfLiteDelegateParams, nodes_to_replace) == 8, "TFLite's layout");
static_assert(offsetof(TfLiteDelegateParams, input_tensors) == 16, "TFLite's layout");
static_assert(offsetof(TfLiteDelegateParams, output_tensors) == 24, "TFLite's layout");
static_assert(sizeof(TfLiteDelegateParams) == 32, "TFLite's layout");
#endif

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TFLITE_ABI_H_
