// Plans that are worth looking at, each made by a simple rule.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_CANDIDATES_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_CANDIDATES_H_

#include <cstddef>
#include <vector>

#include "custom_ops/lite_delegate/policies/outlook.h"

namespace tf_ext {
namespace lite {

class Candidates {
 public:
  explicit Candidates(Outlook* outlook) : outlook_(outlook) {}

  // Forgets all plans, but keeps their memory. `now` is the time of the outlook.
  void Clear(Micros now);

  // A plan to fill in: all items in the order of the outlook, and no choices.
  Plan* New();

  // Oldest first, and shortest first.
  void AddForLatency();

  // Longest first; by the work left, piece by piece; and spread over the workers in several ways, the shortest piece first on
  // each.
  void AddForMakespan();

  // From the `most` plans that are over first: the same places, and on each worker the shortest piece first as far as no job
  // ends later than the first plan that is over (Smith's rule for deadlines, from the back).
  void AddShortestWithinMakespan(int most);

  // By deadline and by slack; and the same with jobs given up so that the others make it (after Moore and Hodgson).
  void AddForDeadlines();

  int size() const { return used_; }
  Plan& operator[](int index) { return plans_[index]; }

 private:
  struct Entry {
    int item;
    Micros cost;
    Micros due;
    bool placed;
  };

  template <typename Key>
  Plan* Sorted(Key key);
  void AddSpread(const std::vector<int>& longest_first, double evenness);
  void AddShortestWithin(const Plan& from, Micros makespan);
  void SequenceBackwards(std::vector<Entry>* entries, Micros end);
  void AddGivingUp(const Plan& from);

  Outlook* outlook_;
  Micros now_ = 0;
  std::vector<Plan> plans_;  // the first used_ of them
  int used_ = 0;
  std::vector<std::vector<Entry>> entries_;
  std::vector<Micros> key_;
  std::vector<int> scratch_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_POLICIES_CANDIDATES_H_
