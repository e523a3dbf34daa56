// Reads the plan of a bundle.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLAN_READER_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLAN_READER_H_

#include <string>
#include <string_view>

#include "custom_ops/lite_delegate/bundle.h"

namespace tf_ext {
namespace lite {

// Checks all that the engine relies on, since a bundle may be damaged, or made by another program. False, with the reason. The
// bundle's file, where it is a single one, must be there already: pieces must lie within it.
bool ReadPlan(std::string_view text, Bundle* bundle, std::string* error);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PLAN_READER_H_
