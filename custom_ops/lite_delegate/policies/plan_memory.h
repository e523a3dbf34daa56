// The plan of the event before: most of it still holds when the next one is made.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_PLAN_MEMORY_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_PLAN_MEMORY_H_

#include <vector>

#include "custom_ops/lite_delegate/policies/outlook.h"

namespace tf_ext {
namespace lite {

class PlanMemory {
 public:
  bool empty() const { return kept_.empty(); }

  void Keep(const Outlook& outlook, const Plan& plan);

  // Puts the items of a new plan into the order of the kept one, and its choices, as far as they still can be taken. Jobs that
  // it does not know come first or last.
  void Recall(const Outlook& outlook, bool new_first, Plan* plan);

 private:
  struct Kept {
    JobId id;
    int unit;
    int worker;
    int piece;
    int position;
  };

  std::vector<Kept> kept_;  // by job
  bool ranked_ = false;
  std::vector<int> position_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_PLAN_MEMORY_H_
