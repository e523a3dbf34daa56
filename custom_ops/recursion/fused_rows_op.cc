// TfExtFusedRows: a chain of elementwise operators, splits and concatenations of rows as one kernel.
#include <algorithm>

#include "custom_ops/recursion/fused_rows.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfExtFusedRows")
    .Input("inputs: num_inputs * float")
    .Input("indices: num_indices * Tindices")
    .Output("outputs: num_outputs * float")
    .Attr("num_inputs: int >= 1")
    .Attr("num_indices: int >= 0 = 0")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("wrap: list(bool) >= 0 = []")
    .Attr("num_outputs: int >= 1")
    .Attr("width: int >= 1")
    .Attr("input_views: list(int)")
    .Attr("output_views: list(int)")
    .Attr("output_shapes: list(shape)")
    .Attr("num_scratch: int >= 0")
    .Attr("code: list(int)")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      std::vector<PartialTensorShape> shapes;
      TF_RETURN_IF_ERROR(c->GetAttr("output_shapes", &shapes));
      for (int i = 0; i < c->num_outputs() && i < static_cast<int>(shapes.size()); ++i) {
        tensorflow::shape_inference::ShapeHandle shape;
        TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(shapes[i], &shape));
        c->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Runs straight-line arithmetic on rows of floats.

width: floats in one operand.
input_views: (input, offset of the first float in its row, kind, number of indices) per operand; kind 0: a row for each
  row, 1: one row for all, 2: one number for all, 3: the rows that the indices tell.
wrap: per number of indices, whether negative ones count from the end.
output_views: (output, offset of the first float in its row) per operand.
output_shapes: of the outputs; an unknown dimension is the number of rows.
code: (operation, to, a, b) per instruction; operands are numbered input views, output views, scratch rows.
)doc");

struct InputView {
  int input;
  int64_t offset;
  int kind;
  int indices;
};
constexpr int kRow = 0, kSameRow = 1, kScalar = 2, kLookedUp = 3;

class FusedRowsOp : public OpKernel {
 public:
  explicit FusedRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    std::vector<int64_t> inputs, outputs, code;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("width", &width_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_scratch", &num_scratch_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_shapes", &shapes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("input_views", &inputs));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("output_views", &outputs));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("code", &code));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_inputs", &num_inputs_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("wrap", &wrap_));
    for (size_t i = 0; i + 3 < inputs.size(); i += 4) {
      inputs_.push_back({static_cast<int>(inputs[i]), inputs[i + 1], static_cast<int>(inputs[i + 2]),
                         static_cast<int>(inputs[i + 3])});
    }
    for (size_t i = 0; i + 1 < outputs.size(); i += 2) outputs_.push_back({static_cast<int>(outputs[i]), outputs[i + 1]});
    for (size_t i = 0; i + 3 < code.size(); i += 4) {
      program_.push_back({static_cast<RowOp>(code[i]), static_cast<int>(code[i + 1]), static_cast<int>(code[i + 2]),
                          static_cast<int>(code[i + 3])});
    }
    OP_REQUIRES(ctx, Valid(ctx), absl::InvalidArgumentError("TfExtFusedRows: views or code are out of range"));
  }

  void Compute(OpKernelContext* ctx) override {
    int64_t rows = -1;
    for (const InputView& view : inputs_) {
      if (view.kind != kRow && view.kind != kLookedUp) continue;
      const Tensor& input = ctx->input(view.input);
      const int64_t length = input.dims() == 0 ? 1 : input.dim_size(input.dims() - 1);
      int64_t mine = length == 0 ? 0 : input.NumElements() / length;
      if (view.kind == kLookedUp) mine = ctx->input(num_inputs_ + view.indices).NumElements();
      OP_REQUIRES(ctx, (rows < 0 || rows == mine) && view.offset + width_ <= length,
                  absl::InvalidArgumentError(absl::StrCat("elementwise operands disagree: one has ", rows,
                                                          " rows, another shape ", input.shape().DebugString())));
      rows = mine;
    }
    std::vector<RowView> views(inputs_.size() + outputs_.size());
    std::vector<float> spread;                   // rows made of scalars
    std::vector<std::vector<int64_t>> offsets;  // of looked-up rows
    if (!BindInputs(ctx, &views, &spread, &offsets)) return;
    std::vector<Tensor*> outputs(shapes_.size());
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (!ctx->output_required(i)) continue;
      TensorShape shape;
      for (int d = 0; d < shapes_[i].dims(); ++d) {
        OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(shapes_[i].dim_size(d) < 0 ? rows : shapes_[i].dim_size(d)));
      }
      OP_REQUIRES_OK(ctx, ctx->allocate_output(i, shape, &outputs[i]));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Tensor* output = outputs[outputs_[i].first];
      if (output == nullptr) continue;  // kept for a gradient that nobody asked for
      const int64_t length = output->dims() == 0 ? 1 : output->dim_size(output->dims() - 1);
      OP_REQUIRES(ctx, length * rows == output->NumElements(),
                  absl::InvalidArgumentError("TfExtFusedRows: an output has another number of rows than the inputs"));
      views[inputs_.size() + i] = {output->flat<float>().data() + outputs_[i].second, length, nullptr};
    }
    Run(ctx, views, rows);
  }

 private:
  bool Valid(OpKernelConstruction* ctx) const {
    const int operands = inputs_.size() + outputs_.size() + num_scratch_;
    if (num_scratch_ < 0 || static_cast<int>(shapes_.size()) != ctx->num_outputs()) return false;
    bool any_row = false;
    for (const InputView& view : inputs_) {
      if (view.input < 0 || view.input >= num_inputs_ || view.offset < 0) return false;
      if (view.kind == kLookedUp && (view.indices < 0 || view.indices >= static_cast<int>(wrap_.size()))) return false;
      any_row |= view.kind == kRow || view.kind == kLookedUp;
    }
    std::vector<int64_t> written(shapes_.size());
    for (const auto& [output, offset] : outputs_) {
      if (output < 0 || output >= ctx->num_outputs() || offset < 0) return false;
      const PartialTensorShape& shape = shapes_[output];
      if (shape.unknown_rank() || shape.dims() < 1 || shape.dim_size(shape.dims() - 1) < offset + width_) return false;
      written[output] += width_;
    }
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].dims() < 1 || written[i] != shapes_[i].dim_size(shapes_[i].dims() - 1)) return false;
    }
    for (const RowInstruction& i : program_) {
      if (i.op < RowOp::kCopy || i.op >= RowOp::kNumOps || i.to < static_cast<int>(inputs_.size())) return false;
      if (i.to >= operands || i.a < 0 || i.a >= operands || i.b < 0 || i.b >= operands) return false;
    }
    return any_row && static_cast<int>(wrap_.size()) == ctx->num_inputs() - num_inputs_;
  }

  bool BindInputs(OpKernelContext* ctx, std::vector<RowView>* views, std::vector<float>* spread,
                  std::vector<std::vector<int64_t>>* offsets) const {
    offsets->reserve(inputs_.size());
    const int64_t scalars = std::count_if(inputs_.begin(), inputs_.end(), [](auto& v) { return v.kind == kScalar; });
    spread->resize(scalars * width_);
    float* next = spread->data();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const InputView& view = inputs_[i];
      const Tensor& input = ctx->input(view.input);
      const int64_t length = input.dims() == 0 ? 1 : input.dim_size(input.dims() - 1);
      float* data = const_cast<float*>(input.flat<float>().data());
      if (view.kind == kScalar) {
        if (input.NumElements() != 1) return Refuse(ctx, input);
        std::fill_n(next, width_, data[0]);
        (*views)[i] = {next, 0, nullptr};
        next += width_;
      } else if (view.kind == kLookedUp) {
        offsets->emplace_back();
        if (!LookUp(ctx, view.indices, length == 0 ? 0 : input.NumElements() / length, length, &offsets->back())) {
          return false;
        }
        (*views)[i] = {data + view.offset, 0, offsets->back().data()};
      } else {
        if (view.kind == kSameRow && (input.NumElements() != length || view.offset + width_ > length)) {
          return Refuse(ctx, input);
        }
        (*views)[i] = {data + view.offset, view.kind == kRow ? length : 0, nullptr};
      }
    }
    return true;
  }

  bool LookUp(OpKernelContext* ctx, int number, int64_t limit, int64_t length, std::vector<int64_t>* offsets) const {
    const Tensor& indices = ctx->input(num_inputs_ + number);
    const bool narrow = indices.dtype() == tensorflow::DT_INT32;
    offsets->resize(indices.NumElements());
    for (int64_t i = 0; i < indices.NumElements(); ++i) {
      const int64_t given = narrow ? indices.flat<int32_t>()(i) : indices.flat<int64_t>()(i);
      const int64_t at = wrap_[number] && given < 0 ? given + limit : given;
      if (at < 0 || at >= limit) {
        ctx->CtxFailure(absl::InvalidArgumentError(
            absl::StrCat("index ", given, " is out of range for a table of ", limit, " rows")));
        return false;
      }
      (*offsets)[i] = at * length;
    }
    return true;
  }

  static bool Refuse(OpKernelContext* ctx, const Tensor& input) {
    ctx->CtxFailure(absl::InvalidArgumentError(
        absl::StrCat("an elementwise operand has the unexpected shape ", input.shape().DebugString())));
    return false;
  }

  void Run(OpKernelContext* ctx, const std::vector<RowView>& views, int64_t rows) const {
    const int64_t cost = width_ * program_.size();
    constexpr int64_t kWorthThreads = 1 << 17;  // some 20 us of work: less does not pay for waking a thread
    auto run = [&](int64_t begin, int64_t end) { RunRows(program_, views, num_scratch_, width_, begin, end); };
    if (rows * cost < kWorthThreads) {
      run(0, rows);
      return;
    }
    const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers->num_threads, workers->workers, rows, cost, run);
  }

  int64_t width_;
  int num_scratch_;
  int num_inputs_;
  std::vector<bool> wrap_;
  std::vector<PartialTensorShape> shapes_;
  std::vector<InputView> inputs_;
  std::vector<std::pair<int, int64_t>> outputs_;
  std::vector<RowInstruction> program_;
};

REGISTER_KERNEL_BUILDER(Name("TfExtFusedRows").Device(tensorflow::DEVICE_CPU), FusedRowsOp);

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
