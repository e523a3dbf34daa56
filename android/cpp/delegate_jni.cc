// TfExtLiteDelegate.java: the delegate as TFLite's Java interpreters take it, by the address of its TfLiteDelegate.

#include <jni.h>

#include <cstddef>
#include <string>
#include <vector>

#include "android/cpp/strings.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

// The entry points of TFLite's external delegates, which the engine's library exports.
extern "C" void* tflite_plugin_create_delegate(const char* const* keys, const char* const* values, size_t count,
                                               void (*report_error)(const char*));
extern "C" void tflite_plugin_destroy_delegate(void* delegate);

namespace {

thread_local std::string reported;

void Report(const char* message) { reported = message; }

}  // namespace

extern "C" JNIEXPORT jlong JNICALL Java_dev_tfext_lite_TfExtLiteDelegate_create(JNIEnv* env, jclass, jobjectArray keys,
                                                                               jobjectArray values) {
  using tf_ext::lite::Pointers;
  const std::vector<std::string> names = tf_ext::lite::ToStrings(env, keys);
  const std::vector<std::string> texts = tf_ext::lite::ToStrings(env, values);
  reported.clear();
  void* delegate =
      tflite_plugin_create_delegate(Pointers(names).data(), Pointers(texts).data(), names.size(), Report);
  if (delegate == nullptr) {
    tf_ext::lite::Throw(env, kTfExtLiteInvalidArgument,
                        reported.empty() ? "The delegate could not be created." : reported);
  }
  return reinterpret_cast<jlong>(delegate);
}

extern "C" JNIEXPORT void JNICALL Java_dev_tfext_lite_TfExtLiteDelegate_delete(JNIEnv*, jclass, jlong handle) {
  tflite_plugin_destroy_delegate(reinterpret_cast<void*>(handle));
}
