// Errors that both executors report in the same words.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ERRORS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/program.h"

namespace tf_ext {
namespace recursion {

inline absl::Status TooDeep(const Program& program, const FunctionSpec& callee) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "Calls of SubGraph '", callee.name, "' are nested deeper than max_depth = ", program.max_depth,
      ". Either the recursion never reaches its end, or max_depth has to be larger."));
}

inline absl::Status TooManyCalls(const Program& program, const FunctionSpec& callee) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "More than max_live_calls = ", program.max_live_calls, " calls are open at once, the last of SubGraph '",
      callee.name, "'. Either the recursion never reaches its end, or max_live_calls has to be larger."));
}

// Says where in the recursion an operator failed.
inline absl::Status InCall(const absl::Status& status, const FunctionSpec& function, int64_t least_depth,
                           int64_t greatest_depth) {
  const std::string depth = least_depth == greatest_depth
                                ? absl::StrCat("depth ", least_depth)
                                : absl::StrCat("depths ", least_depth, " to ", greatest_depth);
  absl::Status result(status.code(),
                      absl::StrCat(status.message(), "\n\t [[in SubGraph '", function.name, "' at ", depth, "]]"));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ERRORS_H_
