#include "custom_ops/recursion/gradient_log.h"

#include <utility>

#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {

struct GradientLog::Entry {
  const GraphSpec* spec = nullptr;  // null: a row
  std::vector<tensorflow::Tensor> values;
  int env = -1;
  int64_t index = 0;
};

struct GradientLog::Segment {
  std::vector<Entry> entries;
  std::atomic<bool> is_first{false};  // everything before it has been summed
  bool closed = false;
  Segment* next = nullptr;
};

GradientLog::GradientLog(EnvGradients* sums) : sums_(sums) { segments_.emplace_back().is_first = true; }

GradientLog::~GradientLog() = default;

GradientLog::Segment* GradientLog::InsertAfter(Segment* segment) {
  std::unique_lock<std::mutex> lock(mutex_);
  Segment* made = &segments_.emplace_back();
  made->next = segment->next;
  segment->next = made;
  return made;
}

absl::Status GradientLog::Add(Segment* segment, const GraphSpec& spec, std::vector<tensorflow::Tensor> fetches) {
  Entry entry;
  entry.spec = &spec;
  entry.values = std::move(fetches);
  return Add(segment, std::move(entry));
}

absl::Status GradientLog::AddRow(Segment* segment, int env, int64_t index, tensorflow::Tensor row) {
  Entry entry;
  entry.values.push_back(std::move(row));
  entry.env = env;
  entry.index = index;
  return Add(segment, std::move(entry));
}

absl::Status GradientLog::Sum(const Entry& entry) {
  if (entry.spec != nullptr) return sums_->Add(*entry.spec, entry.values);
  return sums_->AddRow(entry.env, entry.index, entry.values[0]);
}

absl::Status GradientLog::Add(Segment* segment, Entry entry) {
  if (!segment->is_first.load(std::memory_order_acquire)) {
    segment->entries.push_back(std::move(entry));
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(Flush(segment));
  return Sum(entry);
}

absl::Status GradientLog::Flush(Segment* segment) {
  for (const Entry& entry : segment->entries) TF_RETURN_IF_ERROR(Sum(entry));
  segment->entries.clear();
  segment->entries.shrink_to_fit();
  return absl::OkStatus();
}

// Sums outside of the lock: a first segment that is closed has no other user, and none can become first before it
// passes that on.
absl::Status GradientLog::Close(Segment* segment) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    segment->closed = true;
    if (!segment->is_first.load(std::memory_order_relaxed)) return absl::OkStatus();
  }
  while (true) {
    TF_RETURN_IF_ERROR(Flush(segment));
    std::unique_lock<std::mutex> lock(mutex_);
    segment = segment->next;
    if (segment == nullptr) return absl::OkStatus();
    segment->is_first.store(true, std::memory_order_release);
    if (!segment->closed) return absl::OkStatus();
  }
}

absl::Status GradientLog::CloseAll() {
  for (Segment* segment = first(); segment != nullptr; segment = segment->next) {
    if (!segment->closed) TF_RETURN_IF_ERROR(Close(segment));
  }
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
