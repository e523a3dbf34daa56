#include "custom_ops/recursion/accumulators.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/row_moves.h"
#include "custom_ops/recursion/row_products.h"
#include "custom_ops/recursion/rows.h"
#include "custom_ops/recursion/values.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// From here on a product's own work outweighs the traffic of the matrix that it adds to.
constexpr int64_t kRowsPerProduct = 512;

// The type that sums are kept in.
DataType SumType(DataType dtype) {
  return dtype == tensorflow::DT_HALF || dtype == tensorflow::DT_BFLOAT16 ? tensorflow::DT_FLOAT : dtype;
}

Tensor Cast(const Tensor& from, DataType dtype) {
  if (from.dtype() == dtype) return from;
  Tensor to(dtype, from.shape());
  if (from.dtype() == tensorflow::DT_HALF) {
    to.unaligned_flat<float>() = from.unaligned_flat<Eigen::half>().cast<float>();
  } else if (from.dtype() == tensorflow::DT_BFLOAT16) {
    to.unaligned_flat<float>() = from.unaligned_flat<tensorflow::bfloat16>().cast<float>();
  } else if (dtype == tensorflow::DT_HALF) {
    to.unaligned_flat<Eigen::half>() = from.unaligned_flat<float>().cast<Eigen::half>();
  } else {
    to.unaligned_flat<tensorflow::bfloat16>() = from.unaligned_flat<float>().cast<tensorflow::bfloat16>();
  }
  return to;
}

// [n1 + n2 + ..., row...]
Tensor Concatenate(absl::Span<const Tensor> parts) {
  if (parts.size() == 1) return parts[0];
  TensorShape shape = parts[0].shape();
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.dim_size(0);
  shape.set_dim(0, rows);
  Tensor all(parts[0].dtype(), shape);
  char* to = static_cast<char*>(all.data());
  for (const Tensor& part : parts) {
    if (part.NumElements() == 0) continue;
    std::memcpy(to, part.data(), part.TotalBytes());
    to += part.TotalBytes();
  }
  return all;
}

// *sum += x^T dy for all pairs of tensors.
template <typename T>
void AddProducts(absl::Span<const std::pair<Tensor, Tensor>> rows, int64_t m, int64_t n,
                 const tensorflow::DeviceBase::CpuWorkerThreads* workers, Tensor* sum) {
  const DataType type = sum->dtype();
  std::vector<Tensor> held;
  std::vector<RowPair<T>> pairs;
  for (const auto& [x, dy] : rows) {
    const T* left = static_cast<const T*>(held.emplace_back(Cast(x, type)).data());
    pairs.push_back({left, static_cast<const T*>(held.emplace_back(Cast(dy, type)).data()), x.dim_size(0)});
  }
  AddRowProducts<T>(pairs, m, n, static_cast<T*>(sum->data()), workers);
}

}  // namespace

EnvGradients::EnvGradients(const Program& program, const std::vector<Tensor>* env, tensorflow::OpKernelContext* ctx)
    : program_(program),
      env_(env),
      ctx_(ctx),
      dense_(env->size()),
      products_(program.products.size()),
      slices_(env->size()) {}

const std::vector<EnvGradients::Route>& EnvGradients::RoutesOf(const GraphSpec& spec) {
  auto [it, is_new] = routes_.try_emplace(&spec);
  if (!is_new) return it->second;
  const auto find = [&](Target::Kind kind, const Target& like) {
    for (size_t i = 0; i < spec.targets.size(); ++i) {
      const Target& target = spec.targets[i];
      const bool same = target.index == like.index && target.occurrence == like.occurrence;
      if (same && target.kind == kind) return static_cast<int>(i);
    }
    return -1;
  };
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    const Target& target = spec.targets[i];
    const int fetch = i;
    if (target.kind == Target::Kind::kEnvGradient) {
      it->second.push_back({Route::Kind::kDense, target.index, fetch});
    } else if (target.kind == Target::Kind::kProductX) {
      it->second.push_back({Route::Kind::kProduct, target.index, fetch, find(Target::Kind::kProductY, target)});
    } else if (target.kind == Target::Kind::kSliceValues) {
      it->second.push_back({Route::Kind::kSlices, target.index, fetch, find(Target::Kind::kSliceIndices, target)});
    }
  }
  return it->second;
}

absl::Status EnvGradients::Add(const GraphSpec& spec, const std::vector<Tensor>& fetches) {
  for (const Route& route : RoutesOf(spec)) {
    if (route.kind == Route::Kind::kDense) {
      TF_RETURN_IF_ERROR(AddDense(route.index, fetches[route.first]));
      continue;
    }
    if (route.second < 0) return absl::InternalError("a gradient graph gives one half of a pair for the environment");
    TF_RETURN_IF_ERROR(route.kind == Route::Kind::kProduct
                           ? AddProduct(route.index, fetches[route.first], fetches[route.second])
                           : AddSlices(route.index, fetches[route.first], fetches[route.second]));
  }
  return absl::OkStatus();
}

absl::Status EnvGradients::AddDense(int env, const Tensor& value) {
  const Tensor& like = (*env_)[env];
  Tensor shaped;
  if (value.dtype() != like.dtype() || !shaped.CopyFrom(value, like.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of environment value ", env, " must be like it, ",
                     tensorflow::DataTypeString(like.dtype()), " ", like.shape().DebugString(), ", got ",
                     tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString()));
  }
  return AddTo(&dense_[env], Cast(shaped, SumType(value.dtype())));
}

absl::Status EnvGradients::AddProduct(int product, const Tensor& x, const Tensor& dy) {
  if (x.dims() != 2 || dy.dims() != 2 || x.dim_size(0) != dy.dim_size(0) || x.dtype() != dy.dtype()) {
    return absl::InternalError(absl::StrCat("the factors of product ", product, " are ", x.shape().DebugString(),
                                            " and ", dy.shape().DebugString(), "; expected matrices with equal rows"));
  }
  Pending& pending = products_[product];
  if (!pending.rows.empty() && (pending.rows[0].first.dim_size(1) != x.dim_size(1) ||
                                pending.rows[0].second.dim_size(1) != dy.dim_size(1))) {
    return absl::InternalError(absl::StrCat("the factors of product ", product, " change their width"));
  }
  pending.rows.emplace_back(x, dy);
  pending.num_rows += x.dim_size(0);
  return pending.num_rows < kRowsPerProduct ? absl::OkStatus() : Flush(product);
}

absl::Status EnvGradients::AddSlices(int env, const Tensor& values, const Tensor& indices) {
  if (indices.dims() != 1 || values.dims() < 1 || values.dim_size(0) != indices.dim_size(0)) {
    return absl::InternalError(absl::StrCat("slices of environment value ", env, " have values ",
                                            values.shape().DebugString(), " and indices ",
                                            indices.shape().DebugString()));
  }
  Tensor wide = indices;
  if (indices.dtype() == tensorflow::DT_INT32) {
    wide = Tensor(tensorflow::DT_INT64, indices.shape());
    wide.vec<int64_t>() = indices.unaligned_flat<int32_t>().cast<int64_t>();
  } else if (indices.dtype() != tensorflow::DT_INT64) {
    return absl::InternalError("indices of slices must be int32 or int64");
  }
  slices_[env].emplace_back(values, wide);
  return absl::OkStatus();
}

absl::Status EnvGradients::AddRow(int env, int64_t index, const Tensor& row) {
  TensorShape shape = row.shape();
  shape.InsertDim(0, 1);
  Tensor values;
  if (!values.CopyFrom(row, shape)) return absl::InternalError("a row cannot be reshaped");
  Tensor indices(tensorflow::DT_INT64, TensorShape({1}));
  indices.vec<int64_t>()(0) = index;
  return AddSlices(env, values, indices);
}

absl::Status EnvGradients::Flush(int index) {
  Pending pending;
  std::swap(pending, products_[index]);
  if (pending.num_rows == 0) return absl::OkStatus();
  const ProductSpec& spec = program_.products[index];
  if (spec.transposed) {
    for (auto& [x, dy] : pending.rows) std::swap(x, dy);
  }
  const TensorShape& shape = (*env_)[spec.env].shape();
  const int64_t m = pending.rows[0].first.dim_size(1), n = pending.rows[0].second.dim_size(1);
  if (shape.num_elements() != m * n) {
    return absl::InternalError(absl::StrCat("product ", index, " has shape [", m, ",", n,
                                            "], expected that of environment value ", spec.env, ", ",
                                            shape.DebugString()));
  }
  Tensor& sum = dense_[spec.env];
  const DataType type = SumType(pending.rows[0].first.dtype());
  if (IsNone(sum)) sum = Zeros(type, shape);
  MakeExclusive(&sum);
  const tensorflow::DeviceBase::CpuWorkerThreads* workers = ctx_->device()->tensorflow_cpu_worker_threads();
  switch (type) {
    case tensorflow::DT_FLOAT: AddProducts<float>(pending.rows, m, n, workers, &sum); break;
    case tensorflow::DT_DOUBLE: AddProducts<double>(pending.rows, m, n, workers, &sum); break;
    default: return absl::InternalError(absl::StrCat("no products of ", tensorflow::DataTypeString(type)));
  }
  return absl::OkStatus();
}

absl::Status EnvGradients::FlushAll(int env) {
  for (size_t i = 0; i < products_.size(); ++i) {
    if (program_.products[i].env == env) TF_RETURN_IF_ERROR(Flush(i));
  }
  return absl::OkStatus();
}

absl::Status EnvGradients::Dense(int env, Tensor* gradient) {
  if (env < 0 || env >= env_->size()) return absl::InvalidArgumentError(absl::StrCat("no environment value ", env));
  TF_RETURN_IF_ERROR(FlushAll(env));
  const Tensor& like = (*env_)[env];
  Tensor sum = std::exchange(dense_[env], Tensor());
  if (!slices_[env].empty()) TF_RETURN_IF_ERROR(ScatterSlices(env, &sum));
  *gradient = IsNone(sum) ? Zeros(like.dtype(), like.shape()) : Cast(sum, like.dtype());
  return absl::OkStatus();
}

absl::Status EnvGradients::ScatterSlices(int env, Tensor* sum) {
  const Tensor& like = (*env_)[env];
  const DataType type = SumType(like.dtype());
  TF_RETURN_IF_ERROR(AddElements(type, nullptr, nullptr, 0));  // only to refuse the type
  const int64_t num_rows = like.dims() > 0 ? like.dim_size(0) : 0;
  const int64_t width = num_rows > 0 ? like.NumElements() / num_rows : 0;
  const int64_t size = width * tensorflow::DataTypeSize(type);
  const bool fresh = IsNone(*sum);
  Tensor all = fresh ? Tensor(type, like.shape()) : std::move(*sum);
  MakeExclusive(&all);
  char* to = static_cast<char*>(all.data());
  std::vector<bool> written(num_rows, !fresh);
  std::vector<Tensor> held;
  RowMoves moves;
  for (const auto& [values, indices] : slices_[env]) {
    held.push_back(Cast(values, type));
    const char* from = static_cast<const char*>(held.back().data());
    const int64_t count = indices.dim_size(0);
    const int64_t* rows = indices.unaligned_flat<int64_t>().data();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows[i];
      if (row < 0 || row >= num_rows || values.NumElements() != count * width) {
        return absl::InternalError(absl::StrCat("a slice for row ", row, " of environment value ", env, " of shape ",
                                                like.shape().DebugString(), " does not fit"));
      }
      moves.Plan(to + row * size, from + i * size, written[row]);
      written[row] = true;
    }
  }
  moves.Run(type, size, ctx_->device()->tensorflow_cpu_worker_threads());
  for (int64_t row = 0; row < num_rows; ++row) {
    if (!written[row]) std::memset(to + row * size, 0, size);
  }
  slices_[env].clear();
  *sum = std::move(all);
  return absl::OkStatus();
}

absl::Status EnvGradients::Slices(int env, const TensorShape& row_shape, DataType dtype, Tensor* values,
                                  Tensor* indices) {
  if (env < 0 || env >= env_->size()) return absl::InvalidArgumentError(absl::StrCat("no environment value ", env));
  TF_RETURN_IF_ERROR(FlushAll(env));
  std::vector<Tensor> all_values, all_indices;
  for (auto& [part, rows] : slices_[env]) {
    all_values.push_back(std::move(part));
    all_indices.push_back(std::move(rows));
  }
  slices_[env].clear();
  if (const Tensor whole = std::exchange(dense_[env], Tensor()); !IsNone(whole)) {
    // Other uses of the value gave it a gradient as a whole: slices for all rows.
    Tensor rows(tensorflow::DT_INT64, TensorShape({whole.dim_size(0)}));
    for (int64_t i = 0; i < rows.NumElements(); ++i) rows.flat<int64_t>()(i) = i;
    all_values.push_back(Cast(whole, dtype));
    all_indices.push_back(rows);
  }
  if (all_values.empty()) {
    TensorShape shape = row_shape;
    shape.InsertDim(0, 0);
    *values = Tensor(dtype, shape);
    *indices = Tensor(tensorflow::DT_INT64, TensorShape({0}));
    return absl::OkStatus();
  }
  for (const Tensor& part : all_values) {
    if (part.dtype() != dtype || part.dims() != all_values[0].dims()) {
      return absl::InternalError(absl::StrCat("slices of environment value ", env, " are not alike"));
    }
  }
  *values = Concatenate(all_values);
  *indices = Concatenate(all_indices);
  return absl::OkStatus();
}

}  // namespace recursion
}  // namespace tf_ext
