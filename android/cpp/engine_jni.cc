// Engine.java over tf_ext_lite.h.

#include <jni.h>

#include <memory>
#include <string>
#include <vector>

#include "android/cpp/strings.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace {

using tf_ext::lite::Throw;

TfExtLiteEngine* ToEngine(jlong handle) { return reinterpret_cast<TfExtLiteEngine*>(handle); }

bool Check(JNIEnv* env, TfExtLiteStatus status) {
  if (status == kTfExtLiteOk) return true;
  Throw(env, status, TfExtLiteLastError());
  return false;
}

// The memory of direct buffers; false, with an exception, where one is not direct.
bool ToBuffers(JNIEnv* env, jobjectArray buffers, std::vector<TfExtLiteBuffer>* result) {
  const jsize count = env->GetArrayLength(buffers);
  for (jsize i = 0; i < count; ++i) {
    jobject buffer = env->GetObjectArrayElement(buffers, i);
    void* data = buffer == nullptr ? nullptr : env->GetDirectBufferAddress(buffer);
    const jlong bytes = buffer == nullptr ? -1 : env->GetDirectBufferCapacity(buffer);
    env->DeleteLocalRef(buffer);
    if (data == nullptr || bytes < 0) {
      Throw(env, kTfExtLiteInvalidArgument,
            "Buffer " + std::to_string(i) + " was expected to be a direct ByteBuffer, but is null or on the heap; make it "
            "with Engine.newInput, Engine.newOutput or ByteBuffer.allocateDirect.");
      return false;
    }
    result->push_back({data, static_cast<size_t>(bytes)});
  }
  return true;
}

TfExtLiteRequestOptions ToOptions(jlong slo, jint priority, jint worker) {
  return {sizeof(TfExtLiteRequestOptions), slo, priority, worker};
}

jstring ToJavaAndFree(JNIEnv* env, char* text) {
  jstring result = text == nullptr ? nullptr : env->NewStringUTF(text);
  TfExtLiteFree(text);
  return result;
}

// A run that is under way: the Java object that is told of its end.
struct Pending {
  JavaVM* vm;
  jobject job;  // a global reference
};

void Ended(void* user, TfExtLiteJob, TfExtLiteStatus status) {
  std::unique_ptr<Pending> pending(static_cast<Pending*>(user));
  const std::string message = status == kTfExtLiteOk ? "" : TfExtLiteLastError();
  JNIEnv* env = nullptr;
  bool attached = false;
  if (pending->vm->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK) {
    // Java and Android declare the argument differently.
#if defined(__ANDROID__)
    attached = pending->vm->AttachCurrentThreadAsDaemon(&env, nullptr) == JNI_OK;
#else
    attached = pending->vm->AttachCurrentThreadAsDaemon(reinterpret_cast<void**>(&env), nullptr) == JNI_OK;
#endif
    if (!attached) return;  // the machine is shutting down
  }
  jclass type = env->GetObjectClass(pending->job);
  jmethodID ended = env->GetMethodID(type, "ended", "(ILjava/lang/String;)V");
  jstring text = env->NewStringUTF(message.c_str());
  env->CallVoidMethod(pending->job, ended, static_cast<jint>(status), text);
  // What a dependent of the future threw is kept by the future; nothing may stay pending on the engine's thread.
  if (env->ExceptionCheck()) env->ExceptionClear();
  env->DeleteLocalRef(text);
  env->DeleteLocalRef(type);
  env->DeleteGlobalRef(pending->job);
  if (attached) pending->vm->DetachCurrentThread();
}

}  // namespace

#define TF_EXT_JNI(type, name) extern "C" JNIEXPORT type JNICALL Java_dev_tfext_lite_Engine_##name

TF_EXT_JNI(jlong, create)(JNIEnv* env, jclass, jobjectArray keys, jobjectArray values) {
  const std::vector<std::string> names = tf_ext::lite::ToStrings(env, keys);
  const std::vector<std::string> texts = tf_ext::lite::ToStrings(env, values);
  TfExtLiteEngine* engine = nullptr;
  Check(env, TfExtLiteEngineCreate(tf_ext::lite::Pointers(names).data(), tf_ext::lite::Pointers(texts).data(),
                                   names.size(), &engine));
  return reinterpret_cast<jlong>(engine);
}

TF_EXT_JNI(void, delete)(JNIEnv*, jclass, jlong handle) { TfExtLiteEngineDelete(ToEngine(handle)); }

TF_EXT_JNI(jint, addModel)(JNIEnv* env, jclass, jlong handle, jstring path) {
  int32_t model = -1;
  Check(env, TfExtLiteAddModel(ToEngine(handle), tf_ext::lite::ToString(env, path).c_str(), &model));
  return model;
}

TF_EXT_JNI(jint, addModelFromDescriptor)(JNIEnv* env, jclass, jlong handle, jint fd, jlong offset, jlong length) {
  int32_t model = -1;
  Check(env, TfExtLiteAddModelFromDescriptor(ToEngine(handle), fd, offset, length, &model));
  return model;
}

TF_EXT_JNI(jint, count)(JNIEnv* env, jclass, jlong handle, jint model, jboolean input) {
  const int32_t count = input ? TfExtLiteInputCount(ToEngine(handle), model)
                              : TfExtLiteOutputCount(ToEngine(handle), model);
  if (count < 0) Throw(env, kTfExtLiteNotFound, "There is no model " + std::to_string(model) + "; addModel returns them.");
  return count;
}

TF_EXT_JNI(jlong, bytes)(JNIEnv* env, jclass, jlong handle, jint model, jint index, jboolean input) {
  TfExtLiteTensor tensor{};
  Check(env, input ? TfExtLiteInput(ToEngine(handle), model, index, &tensor)
                   : TfExtLiteOutput(ToEngine(handle), model, index, &tensor));
  return static_cast<jlong>(tensor.bytes);
}

TF_EXT_JNI(void, warmUp)(JNIEnv* env, jclass, jlong handle, jint model) {
  Check(env, TfExtLiteWarmUp(ToEngine(handle), model));
}

TF_EXT_JNI(void, request)(JNIEnv* env, jclass, jlong handle, jint model, jobjectArray inputs, jobjectArray outputs,
                          jlong slo, jint priority, jint worker) {
  std::vector<TfExtLiteBuffer> in, out;
  if (!ToBuffers(env, inputs, &in) || !ToBuffers(env, outputs, &out)) return;
  const TfExtLiteRequestOptions options = ToOptions(slo, priority, worker);
  Check(env, TfExtLiteRequest(ToEngine(handle), model, in.data(), in.size(), out.data(), out.size(), &options));
}

TF_EXT_JNI(void, requestAsync)(JNIEnv* env, jclass, jlong handle, jint model, jobjectArray inputs, jobjectArray outputs,
                               jlong slo, jint priority, jint worker, jobject job) {
  std::vector<TfExtLiteBuffer> in, out;
  if (!ToBuffers(env, inputs, &in) || !ToBuffers(env, outputs, &out)) return;
  const TfExtLiteRequestOptions options = ToOptions(slo, priority, worker);
  auto pending = std::make_unique<Pending>();
  env->GetJavaVM(&pending->vm);
  pending->job = env->NewGlobalRef(job);
  TfExtLiteJob id = 0;
  const TfExtLiteStatus status = TfExtLiteRequestAsync(ToEngine(handle), model, in.data(), in.size(), out.data(),
                                                       out.size(), &options, Ended, pending.get(), &id);
  if (status == kTfExtLiteOk) {
    pending.release();  // belongs to Ended
  } else {
    env->DeleteGlobalRef(pending->job);
    Check(env, status);
  }
}

TF_EXT_JNI(jstring, statistics)(JNIEnv* env, jclass, jlong handle) {
  return ToJavaAndFree(env, TfExtLiteStatistics(ToEngine(handle)));
}

TF_EXT_JNI(void, setTracing)(JNIEnv*, jclass, jlong handle, jboolean enabled) {
  TfExtLiteSetTracing(ToEngine(handle), enabled);
}

TF_EXT_JNI(jstring, trace)(JNIEnv* env, jclass, jlong handle) {
  return ToJavaAndFree(env, TfExtLiteTrace(ToEngine(handle)));
}
