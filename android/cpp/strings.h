// What the JNI functions of the engine and the delegate share: strings, and errors as exceptions.

#ifndef TF_EXT_ANDROID_CPP_STRINGS_H_
#define TF_EXT_ANDROID_CPP_STRINGS_H_

#include <jni.h>

#include <string>
#include <vector>

namespace tf_ext {
namespace lite {

inline std::string ToString(JNIEnv* env, jstring text) {
  if (text == nullptr) return "";
  const char* chars = env->GetStringUTFChars(text, nullptr);
  std::string result = chars == nullptr ? "" : chars;
  if (chars != nullptr) env->ReleaseStringUTFChars(text, chars);
  return result;
}

inline std::vector<std::string> ToStrings(JNIEnv* env, jobjectArray texts) {
  std::vector<std::string> result;
  const jsize count = env->GetArrayLength(texts);
  for (jsize i = 0; i < count; ++i) {
    auto text = static_cast<jstring>(env->GetObjectArrayElement(texts, i));
    result.push_back(ToString(env, text));
    env->DeleteLocalRef(text);
  }
  return result;
}

// The strings' addresses; they live as long as `strings`.
inline std::vector<const char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> result;
  for (const std::string& text : strings) result.push_back(text.c_str());
  return result;
}

// Raises a LiteException in Java when the native function returns.
inline void Throw(JNIEnv* env, int status, const std::string& message) {
  jclass type = env->FindClass("dev/tfext/lite/LiteException");
  if (type == nullptr) return;  // the missing class is the exception
  jmethodID make = env->GetMethodID(type, "<init>", "(ILjava/lang/String;)V");
  jstring text = env->NewStringUTF(message.c_str());
  if (make == nullptr || text == nullptr) return;
  env->Throw(static_cast<jthrowable>(env->NewObject(type, make, static_cast<jint>(status), text)));
}

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_ANDROID_CPP_STRINGS_H_
