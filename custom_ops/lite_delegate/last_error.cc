#include "custom_ops/lite_delegate/last_error.h"

#include <utility>

namespace tf_ext {
namespace lite {
namespace {

thread_local std::string last_error;

}  // namespace

TfExtLiteStatus Fail(TfExtLiteStatus status, std::string text) {
  last_error = std::move(text);
  return status;
}

}  // namespace lite
}  // namespace tf_ext

const char* TfExtLiteLastError(void) { return tf_ext::lite::last_error.c_str(); }
