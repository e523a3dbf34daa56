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

#if defined(__LP64__)
static_assert(sizeof(TfLiteTensor) == 112 && offsetof(TfLiteTensor, bytes) == 40, "TFLite's layout");
static_assert(offsetof(TfLiteTensor, dims_signature) == 104, "TFLite's layout");
static_assert(sizeof(TfLiteNode) == 80 && offsetof(TfLiteNode, user_data) == 32, "TFLite's layout");
static_assert(sizeof(TfLiteRegistration) == 88 && offsetof(TfLiteRegistration, custom_name) == 48, "TFLite's layout");
static_assert(offsetof(TfLiteContext, ReplaceNodeSubsetsWithDelegateKernels) == 64, "TFLite's layout");
static_assert(sizeof(TfLiteDelegate) == 56 && offsetof(TfLiteDelegate, flags) == 40, "TFLite's layout");
static_assert(sizeof(TfLiteDelegateParams) == 32, "TFLite's layout");
#endif

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_TFLITE_ABI_H_
