// What went wrong last on this thread, for TfExtLiteLastError().

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LAST_ERROR_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LAST_ERROR_H_

#include <string>

#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace tf_ext {
namespace lite {

// Keeps the text (what was expected, what came, what to do) and returns the status.
TfExtLiteStatus Fail(TfExtLiteStatus status, std::string text);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_LAST_ERROR_H_
