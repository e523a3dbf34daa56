// TfExtRowAt: rows of a table by index, the one table look-up of recursion bodies.
//
// `table[i]` in a body is otherwise a strided slice with computed bounds (four small operators, and a dense gradient), and
// for many calls at once has no operator at all.
#include <cstring>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("TfExtRowAt")
    .Input("table: T")
    .Input("indices: Tindices")
    .Output("rows: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("wrap: bool = false")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle table, row, out;
      TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &table));
      TF_RETURN_IF_ERROR(c->Subshape(table, 1, &row));
      TF_RETURN_IF_ERROR(c->Concatenate(c->input(1), row, &out));
      c->set_output(0, out);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Gathers rows of a table along its first dimension.

wrap: whether negative indices count from the end; otherwise they are out of range.
)doc");

class RowAtOp : public OpKernel {
 public:
  explicit RowAtOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("wrap", &wrap_));
    OP_REQUIRES(ctx, tensorflow::DataTypeCanUseMemcpy(ctx->input_type(0)),
                absl::InvalidArgumentError("TfExtRowAt: expected a table of numbers"));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& table = ctx->input(0);
    const Tensor& indices = ctx->input(1);
    OP_REQUIRES(ctx, table.dims() >= 1,
                absl::InvalidArgumentError("TfExtRowAt: expected a table with at least one dimension, got a scalar"));
    TensorShape shape = indices.shape();
    for (int d = 1; d < table.dims(); ++d) OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(table.dim_size(d)));
    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &rows));
    if (indices.dtype() == tensorflow::DT_INT32) {
      Copy<int32_t>(ctx, table, indices, rows);
    } else {
      Copy<int64_t>(ctx, table, indices, rows);
    }
  }

 private:
  template <typename Index>
  void Copy(OpKernelContext* ctx, const Tensor& table, const Tensor& indices, Tensor* rows) const {
    const int64_t limit = table.dim_size(0);
    const int64_t count = indices.NumElements();
    if (count == 0) return;
    const Index* index = static_cast<const Index*>(indices.data());
    const size_t bytes = limit == 0 ? 0 : table.TotalBytes() / limit;
    const char* from = static_cast<const char*>(table.data());
    char* to = static_cast<char*>(rows->data());
    for (int64_t i = 0; i < count; ++i, to += bytes) {
      int64_t at = index[i];
      if (wrap_ && at < 0) at += limit;
      OP_REQUIRES(ctx, at >= 0 && at < limit,
                  absl::InvalidArgumentError(absl::StrCat("index ", index[i], " is out of range for a table of ", limit,
                                                          " rows")));
      CopyRow(to, from + at * bytes, bytes);
    }
  }

  // Scalars are what trees are made of: no call of memcpy for them.
  static void CopyRow(char* to, const char* from, size_t bytes) {
    switch (bytes) {
      case 1: *to = *from; break;
      case 4: std::memcpy(to, from, 4); break;
      case 8: std::memcpy(to, from, 8); break;
      default: std::memcpy(to, from, bytes);
    }
  }

  bool wrap_;
};

REGISTER_KERNEL_BUILDER(Name("TfExtRowAt").Device(tensorflow::DEVICE_CPU), RowAtOp);

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
