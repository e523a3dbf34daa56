// What the pieces of a model cost on which worker, and what follows from it for the rest of a request.
//
// A model is a row of units 0..n-1 (Band, section 3.1: operators that the same processors support). A piece is a run of
// units that was cut out as a sub-model of its own. A request goes through the units from 0 to n, one piece after the other.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_COSTS_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_COSTS_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace tf_ext {
namespace lite {

// Microseconds of some steady clock, real or virtual.
using Micros = std::int64_t;

// Sums of a few of these still fit.
constexpr Micros kNever = std::numeric_limits<Micros>::max() / 1024;

// Units [begin, end).
struct Piece {
  int begin;
  int end;
};

class ModelCosts {
 public:
  // `expected` holds, piece by piece, one time per worker: `kNever` where the worker cannot run the piece. There is at least
  // one unit, and each piece lies within the units and holds at least one.
  ModelCosts(int units, std::vector<Piece> pieces, int workers, std::vector<Micros> expected);

  int units() const { return units_; }
  int workers() const { return workers_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

  // The pieces that begin at a unit, as indices into pieces(); the longest first, so that who takes the first of equal ones
  // splits no more than need be.
  const std::vector<int>& StartingAt(int unit) const { return starting_at_[unit]; }

  Micros Expected(int piece, int worker) const { return expected_[piece * workers_ + worker]; }
  // Of all workers. Stays where it is.
  const Micros* ExpectedOf(int piece) const { return &expected_[piece * workers_]; }

  // The least time from a unit to the end, each piece on the worker that suits it best, without any waiting. 0 at the end,
  // `kNever` if no row of pieces leads there.
  Micros Remaining(int unit) const { return remaining_[unit]; }

  // The same where every piece runs on one worker.
  Micros RemainingOn(int unit, int worker) const { return remaining_on_[unit * workers_ + worker]; }

  // Takes note of what a piece took; the expectation follows slowly (exponential moving average, Band, section 3.2).
  void Observe(int piece, int worker, Micros took);

  // The worker cannot run the piece after all, now or later.
  void Forbid(int piece, int worker);

  // A worker that is gone runs nothing, until it comes back: all of the above takes it to be able to run no piece.
  void SetAvailable(int worker, bool available);

 private:
  // Of the units up to `last`, where only pieces that begin there have changed.
  void ComputeRemaining(int last);
  void ComputeRemainingAt(int unit);

  int units_;
  int workers_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<int>> starting_at_;
  std::vector<char> available_;
  std::vector<Micros> profiled_;  // as if all workers were available
  std::vector<Micros> expected_;
  std::vector<Micros> remaining_;
  std::vector<Micros> remaining_on_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_COSTS_H_
