#include "custom_ops/lite_delegate/callback_policy.h"

#include <algorithm>

namespace tf_ext {
namespace lite {

void CallbackPolicy::ViewModels(const Snapshot& snapshot) {
  // Models are added and never removed, and their tables stay where they are.
  for (std::size_t index = models_.size(); index < snapshot.models.size(); ++index) {
    const ModelCosts& costs = *snapshot.models[index];
    std::vector<TfExtLitePieceView> pieces;
    for (int piece = 0; piece < static_cast<int>(costs.pieces().size()); ++piece) {
      pieces.push_back({costs.pieces()[piece].begin, costs.pieces()[piece].end, costs.ExpectedOf(piece)});
    }
    pieces_.push_back(std::move(pieces));
    models_.push_back({costs.units(), static_cast<int32_t>(pieces_.back().size()), pieces_.back().data()});
  }
}

void CallbackPolicy::Decide(const Snapshot& snapshot, std::vector<Decision>* decisions) {
  ViewModels(snapshot);
  jobs_.clear();
  for (const JobView& job : snapshot.jobs) {
    jobs_.push_back({job.id, job.model, job.unit, job.priority, job.pinned, job.submitted, job.deadline, job.excluded});
  }
  workers_.clear();
  for (const WorkerView& worker : snapshot.workers) {
    workers_.push_back({worker.available, worker.queued, worker.free_at, worker.slowdown});
  }
  const TfExtLiteSnapshot view{snapshot.now,
                               static_cast<int32_t>(jobs_.size()),
                               static_cast<int32_t>(workers_.size()),
                               static_cast<int32_t>(models_.size()),
                               jobs_.data(),
                               workers_.data(),
                               models_.data()};
  answers_.assign(jobs_.size(), {});
  const int count = std::clamp<int>(callback_(user_, &view, answers_.data()), 0, static_cast<int>(answers_.size()));
  for (int index = 0; index < count; ++index) {
    decisions->push_back({answers_[index].job, answers_[index].worker, answers_[index].piece});
  }
}

}  // namespace lite
}  // namespace tf_ext
