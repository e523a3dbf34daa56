#include "custom_ops/lite_delegate/costs.h"

#include <algorithm>
#include <utility>

namespace tf_ext {
namespace lite {
namespace {

// An expectation moves by this part of the difference. What changes quickly (throttling) is the worker's slowdown, not this.
constexpr Micros kMemory = 8;

}  // namespace

ModelCosts::ModelCosts(int units, std::vector<Piece> pieces, int workers, std::vector<Micros> expected)
    : units_(units),
      workers_(workers),
      pieces_(std::move(pieces)),
      starting_at_(units + 1),
      available_(workers, 1),
      profiled_(std::move(expected)),
      remaining_(units + 1, kNever),
      remaining_on_((units + 1) * workers, kNever) {
  for (Micros& time : profiled_) time = std::clamp<Micros>(time, 0, kNever);
  expected_ = profiled_;
  for (int piece = 0; piece < static_cast<int>(pieces_.size()); ++piece) {
    starting_at_[pieces_[piece].begin].push_back(piece);
  }
  for (std::vector<int>& starting : starting_at_) {
    std::stable_sort(starting.begin(), starting.end(), [this](int a, int b) { return pieces_[a].end > pieces_[b].end; });
  }
  remaining_[units] = 0;
  std::fill_n(remaining_on_.begin() + units * workers, workers, 0);
  ComputeRemaining(units - 1);
}

void ModelCosts::Observe(int piece, int worker, Micros took) {
  Micros& profiled = profiled_[piece * workers_ + worker];
  if (profiled >= kNever) return;
  const Micros old = profiled;
  profiled += (took - old) / kMemory;
  if (!available_[worker] || profiled == old) return;
  expected_[piece * workers_ + worker] = profiled;
  ComputeRemaining(pieces_[piece].begin);
}

void ModelCosts::Forbid(int piece, int worker) {
  profiled_[piece * workers_ + worker] = expected_[piece * workers_ + worker] = kNever;
  ComputeRemaining(pieces_[piece].begin);
}

void ModelCosts::SetAvailable(int worker, bool available) {
  available_[worker] = available;
  for (int piece = 0; piece < static_cast<int>(pieces_.size()); ++piece) {
    const int at = piece * workers_ + worker;
    expected_[at] = available ? profiled_[at] : kNever;
  }
  ComputeRemaining(units_ - 1);
}

void ModelCosts::ComputeRemaining(int last) {
  for (int unit = last; unit >= 0; --unit) ComputeRemainingAt(unit);
}

void ModelCosts::ComputeRemainingAt(int unit) {
  Micros* on = &remaining_on_[unit * workers_];
  std::fill_n(on, workers_, kNever);
  Micros least = kNever;
  for (const int piece : starting_at_[unit]) {
    const int end = pieces_[piece].end;
    for (int worker = 0; worker < workers_; ++worker) {
      const Micros cost = Expected(piece, worker);
      least = std::min(least, cost + remaining_[end]);
      on[worker] = std::min(on[worker], cost + RemainingOn(end, worker));
    }
  }
  remaining_[unit] = least;
}

}  // namespace lite
}  // namespace tf_ext
