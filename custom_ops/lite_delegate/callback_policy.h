// A policy of the user's own behind the C interface.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_CALLBACK_POLICY_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_CALLBACK_POLICY_H_

#include <vector>

#include "custom_ops/lite_delegate/policy.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace tf_ext {
namespace lite {

class CallbackPolicy : public Policy {
 public:
  CallbackPolicy(TfExtLitePolicyCallback callback, void* user) : callback_(callback), user_(user) {}

  const char* name() const override { return "callback"; }
  // Where work runs is the user's choice alone.
  bool steals() const override { return false; }
  void Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) override;

 private:
  void ViewModels(const Snapshot& snapshot);

  TfExtLitePolicyCallback callback_;
  void* user_;
  std::vector<std::vector<TfExtLitePieceView>> pieces_;
  std::vector<TfExtLiteModelView> models_;
  std::vector<TfExtLiteJobView> jobs_;
  std::vector<TfExtLiteWorkerView> workers_;
  std::vector<TfExtLiteDecision> answers_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_CALLBACK_POLICY_H_
