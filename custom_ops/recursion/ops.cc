// The operators of tf_ext.recursion; docs/design/recursion.md says what they take and give.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/hash.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// What shape inference asks again and again of a program that is long to parse.
struct RootShapes {
  std::vector<tensorflow::PartialTensorShape> args, results;
};

absl::StatusOr<std::shared_ptr<const RootShapes>> ShapesOf(const std::string& serialized) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* known = new std::map<uint64_t, std::shared_ptr<const RootShapes>>;
  const uint64_t fingerprint = tensorflow::Hash64(serialized);
  absl::MutexLock lock(&mutex);
  std::shared_ptr<const RootShapes>& shapes = (*known)[fingerprint];
  if (shapes != nullptr) return shapes;
  TF_ASSIGN_OR_RETURN(const Program program, Program::Parse(serialized));
  const FunctionSpec& root = program.functions[program.root];
  auto made = std::make_shared<RootShapes>();
  made->args.assign(root.slot_shapes.begin(), root.slot_shapes.begin() + root.num_args);
  for (int slot : root.results) made->results.push_back(root.slot_shapes[slot]);
  shapes = std::move(made);
  return shapes;
}

absl::Status SetShape(InferenceContext* c, int output, const tensorflow::PartialTensorShape& row, bool leading,
                      DimensionHandle rows) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(row, &shape));
  if (leading) TF_RETURN_IF_ERROR(c->Concatenate(c->Vector(rows), shape, &shape));
  c->set_output(output, shape);
  return absl::OkStatus();
}

absl::Status RootShapeFunction(InferenceContext* c) {
  std::string serialized;
  bool map = false, collect = false;
  TF_RETURN_IF_ERROR(c->GetAttr("program", &serialized));
  TF_RETURN_IF_ERROR(c->GetAttr("map", &map));
  TF_RETURN_IF_ERROR(c->GetAttr("collect", &collect));
  TF_ASSIGN_OR_RETURN(const std::shared_ptr<const RootShapes> shapes, ShapesOf(serialized));
  const int num_args = shapes->args.size(), num_results = shapes->results.size();
  const int num_outputs = num_results + (collect ? num_args + num_results : 0) + 1;
  if (c->num_outputs() != num_outputs || c->num_inputs() < num_args) {
    return absl::InvalidArgumentError(absl::StrCat("the program's root function takes ", num_args,
                                                   " arguments and the operator has ", num_outputs,
                                                   " outputs; got ", c->num_inputs(), " and ", c->num_outputs()));
  }
  DimensionHandle rows = c->UnknownDim();
  if (map && num_args > 0 && c->RankKnown(c->input(0)) && c->Rank(c->input(0)) > 0) rows = c->Dim(c->input(0), 0);
  int output = 0;
  for (const auto& shape : shapes->results) TF_RETURN_IF_ERROR(SetShape(c, output++, shape, map, rows));
  if (collect) {
    const DimensionHandle calls = c->UnknownDim();
    for (const auto& shape : shapes->args) TF_RETURN_IF_ERROR(SetShape(c, output++, shape, true, calls));
    for (const auto& shape : shapes->results) TF_RETURN_IF_ERROR(SetShape(c, output++, shape, true, calls));
  }
  c->set_output(output, c->Scalar());
  return absl::OkStatus();
}

// Values and indices of slices have an unknown number of rows; the other gradients have the shapes of what they are for,
// which are known to the caller only.
absl::Status GradShapeFunction(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
  std::vector<tensorflow::PartialTensorShape> rows;
  TF_RETURN_IF_ERROR(c->GetAttr("slice_shapes", &rows));
  std::vector<ShapeHandle> values(rows.size()), indices(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(rows[i], &values[i]));
    const ShapeHandle length = c->Vector(c->UnknownDim());
    TF_RETURN_IF_ERROR(c->Concatenate(length, values[i], &values[i]));
    indices[i] = length;
  }
  TF_RETURN_IF_ERROR(c->set_output("values", values));
  return c->set_output("indices", indices);
}

absl::Status UnknownShapes(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
  return absl::OkStatus();
}

#define TF_EXT_RECURSION(name)                          \
  REGISTER_OP(name)                                     \
      .Input("args: Targs")                             \
      .Input("env: Tenv")                               \
      .Output("results: Tresults")                      \
      .Output("calls: Tcalls")                          \
      .Output("tape: variant")                          \
      .Attr("program: string")                          \
      .Attr("execution: {'invoke', 'batched'} = 'invoke'") \
      .Attr("map: bool = false")                        \
      .Attr("record: bool = false")                     \
      .Attr("sequential: bool = false")                 \
      .Attr("collect: bool = false")                    \
      .Attr("Targs: list(type) >= 0")                   \
      .Attr("Tenv: list(type) >= 0")                    \
      .Attr("Tresults: list(type) >= 0")                \
      .Attr("Tcalls: list(type) >= 0")                  \
      .SetShapeFn(RootShapeFunction)

TF_EXT_RECURSION("TfExtRecursion").Doc("Runs a recursion whose calls have no effects.");
TF_EXT_RECURSION("TfExtStatefulRecursion").SetIsStateful().Doc("Runs a recursion whose calls may have effects.");

REGISTER_OP("TfExtRecursionGrad")
    .Input("tape: variant")
    .Input("dresults: Tdresults")
    .Input("dcalls: Tdcalls")
    .Output("dargs: Tdargs")
    .Output("denv: Tdenv")
    .Output("values: Tvalues")
    .Output("indices: Tindices")
    .Attr("arg_grads: list(int) >= 0")
    .Attr("env_dense: list(int) >= 0")
    .Attr("env_slices: list(int) >= 0")
    .Attr("slice_shapes: list(shape) >= 0")
    .Attr("Tdresults: list(type) >= 0")
    .Attr("Tdcalls: list(type) >= 0")
    .Attr("Tdargs: list(type) >= 0")
    .Attr("Tdenv: list(type) >= 0")
    .Attr("Tvalues: list(type) >= 0")
    .Attr("Tindices: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(GradShapeFunction)
    .Doc("Runs a recursion backwards over its tape.");

#define TF_EXT_RECURSION_CALL(name)      \
  REGISTER_OP(name)                      \
      .Input("args: Targs")              \
      .Output("results: Tresults")       \
      .Attr("callee: int")               \
      .Attr("mapped: list(bool) >= 0")   \
      .Attr("reduce: string = ''")       \
      .Attr("Targs: list(type) >= 0")    \
      .Attr("Tresults: list(type) >= 0") \
      .SetShapeFn(UnknownShapes)

TF_EXT_RECURSION_CALL("TfExtRecursionCall").Doc("Stands for a call while a body is traced.");
TF_EXT_RECURSION_CALL("TfExtStatefulRecursionCall")
    .SetIsStateful()
    .Doc("Stands for a call that may have effects while a body is traced.");

}  // namespace
}  // namespace recursion
}  // namespace tf_ext
