// Gradients of blocks of rows, during one backward pass.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_ROW_GRADIENTS_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_ROW_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/recursion/row_moves.h"
#include "custom_ops/recursion/rows.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {

// Where the rows that a batch read came from.
struct SourceRows {
  int32_t count = 0;               // rows of the tensor that was read
  int32_t block = -1;              // `refs` empty: these are consecutive rows of one block, from `start`
  int32_t start = 0;
  std::vector<Ref> refs;           // all rows, one after the other
  std::vector<int32_t> offsets;    // sums: row i is the sum of refs [offsets[i], offsets[i + 1])
};

// The gradient of a block begins as nothing. The first tensor that covers it is taken as it is; otherwise rows are
// copied when they come first and added when they come again, and those that never came are zero.
class RowGradients {
 public:
  RowGradients(const std::vector<BlockInfo>& infos, RowMover mover)
      : infos_(infos), mover_(mover), states_(infos.size()) {}

  // Adds the rows of `gradient` to where `rows` came from; moved from where it can be taken over.
  absl::Status Scatter(const SourceRows& rows, tensorflow::Tensor gradient);
  // The same for the part of each row of `gradient` that begins after `offset` elements.
  absl::Status ScatterPart(const SourceRows& rows, const tensorflow::Tensor& gradient, int64_t offset);

  // Whether anything reached the block or the view of it.
  bool Reached(int block) const;
  // The gradient of the block, which is forgotten.
  absl::Status Take(int block, tensorflow::Tensor* gradient);

 private:
  struct State {
    tensorflow::Tensor value;
    bool exists = false;
    int32_t missing = 0;            // rows that nothing reached; 0: `written` is not in use
    std::vector<uint8_t> written;
  };

  absl::Status ScatterAll(int block, tensorflow::Tensor gradient);
  // Rows that begin at `from`, `stride` bytes apart.
  absl::Status ScatterRows(const SourceRows& rows, const char* from, int64_t stride);
  // The block's gradient, ready to be written into.
  State& Open(int block);
  void Plan(State& state, int64_t row, int64_t row_bytes, const char* from);
  void FillMissing(State& state);

  const std::vector<BlockInfo>& infos_;
  RowMover mover_;
  std::vector<State> states_;
  RowMoves moves_;  // of the scatter at hand
};

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_ROW_GRADIENTS_H_
