// From a block's GraphDef to straight-line code.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_GRAPH_COMPILER_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_GRAPH_COMPILER_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_ext {
namespace recursion {

// A value in the code: a register, or a constant.
struct Operand {
  bool constant = false;
  int index = -1;
  bool operator==(const Operand& other) const { return constant == other.constant && index == other.index; }
};

struct Instruction {
  std::shared_ptr<const tensorflow::NodeProperties> properties;
  std::unique_ptr<tensorflow::OpKernel> kernel;
  tensorflow::AsyncOpKernel* async = nullptr;  // the kernel, when it is asynchronous
  std::unique_ptr<tensorflow::OpKernel> few_rows;  // of a product: takes the kernel's place when there are few rows
  int transposed = -1;  // of such a product with a transposed environment value: that value
  bool stateless = false;
  std::vector<Operand> inputs;
  int first_input = 0;  // in Activation::inputs
  int first_output = 0, num_outputs = 0;
  absl::InlinedVector<bool, 8> required;  // outputs that somebody reads; empty: all
  // Inputs that somebody reads later: a second reference keeps the kernel from writing to them.
  absl::InlinedVector<int, 4> guards;
  absl::InlinedVector<int, 4> releases;  // registers that nobody reads later
};

struct GraphCode {
  std::vector<Instruction> instructions;
  // Each constant twice: with two references no kernel takes it for its own and writes to it.
  std::vector<std::pair<tensorflow::Tensor, tensorflow::Tensor>> constants;
  std::vector<int> feeds;        // register of each feed
  std::vector<Operand> fetches;
  std::vector<bool> last_fetch;  // the fetch takes the register over
  int num_registers = 0;
  int num_inputs = 0;
};

struct CompileTarget {
  tensorflow::Device* device;
  tensorflow::FunctionLibraryRuntime* library;
};

absl::Status CompileGraph(const GraphSpec& spec, const CompileTarget& target, GraphCode* code);

}  // namespace recursion
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_GRAPH_COMPILER_H_
