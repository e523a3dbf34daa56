#include "custom_ops/recursion/graph_compiler.h"

#include <map>
#include <queue>
#include <string>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/product_kernels.h"
#include "custom_ops/recursion/step.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::NodeDef;
using tensorflow::Tensor;

// A folded constant larger than this would rather be computed when needed than kept.
constexpr int64_t kLargestFolded = 16 << 20;

struct Edge {
  int node = -1;
  int output = -1;  // -1: control
};

bool IsAlias(const std::string& op) {
  static const auto* aliases = new absl::flat_hash_set<std::string>{
      "Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault"};
  return aliases->contains(op);
}

bool HasFunctionAttr(const NodeDef& node) {
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func() || value.list().func_size() > 0) return true;
  }
  return false;
}

bool HasResource(const tensorflow::NodeProperties& properties) {
  for (auto type : properties.input_types) {
    if (type == tensorflow::DT_RESOURCE) return true;
  }
  for (auto type : properties.output_types) {
    if (type == tensorflow::DT_RESOURCE) return true;
  }
  return false;
}

class Compiler {
 public:
  Compiler(const GraphSpec& spec, const CompileTarget& target, GraphCode* code)
      : spec_(spec), target_(target), code_(*code) {}

  absl::Status Run() {
    TF_RETURN_IF_ERROR(ReadEdges());
    TF_RETURN_IF_ERROR(Order());
    for (size_t i = 0; i < spec_.feeds.size(); ++i) {
      feeds_[spec_.feeds[i]] = i;
      code_.feeds.push_back(code_.num_registers++);
    }
    values_.resize(spec_.def.node_size());
    types_.resize(code_.num_registers);
    for (int node : order_) TF_RETURN_IF_ERROR(Translate(node));
    TF_RETURN_IF_ERROR(FindFetches());
    RemoveDead();
    TF_RETURN_IF_ERROR(MakeKernels());
    FindLastReaders();
    return absl::OkStatus();
  }

 private:
  absl::Status Wrong(const NodeDef& node, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("operator '", node.name(), "' (", node.op(), "): ", what));
  }

  absl::StatusOr<Edge> ParseInput(const std::string& text) {
    Edge edge;
    std::string name = text;
    if (absl::StartsWith(text, "^")) {
      name = text.substr(1);
    } else {
      edge.output = 0;
      const size_t colon = text.rfind(':');
      if (colon != std::string::npos) {
        name = text.substr(0, colon);
        if (!absl::SimpleAtoi(text.substr(colon + 1), &edge.output)) edge.output = -2;
      }
    }
    auto it = names_.find(name);
    if (it == names_.end() || edge.output == -2) {
      return absl::InvalidArgumentError(absl::StrCat("no operator gives '", text, "' in a recursion's graph"));
    }
    edge.node = it->second;
    return edge;
  }

  absl::Status ReadEdges() {
    const int num_nodes = spec_.def.node_size();
    for (int i = 0; i < num_nodes; ++i) names_[spec_.def.node(i).name()] = i;
    edges_.resize(num_nodes);
    for (int i = 0; i < num_nodes; ++i) {
      for (const std::string& input : spec_.def.node(i).input()) {
        TF_ASSIGN_OR_RETURN(Edge edge, ParseInput(input));
        edges_[i].push_back(edge);
      }
    }
    return absl::OkStatus();
  }

  // Definition order where the edges leave a choice: it is the order in which the body was written.
  absl::Status Order() {
    const int num_nodes = spec_.def.node_size();
    std::vector<int> waiting(num_nodes);
    std::vector<std::vector<int>> readers(num_nodes);
    std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
    for (int i = 0; i < num_nodes; ++i) {
      waiting[i] = edges_[i].size();
      for (const Edge& edge : edges_[i]) readers[edge.node].push_back(i);
      if (waiting[i] == 0) ready.push(i);
    }
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      order_.push_back(node);
      for (int reader : readers[node]) {
        if (--waiting[reader] == 0) ready.push(reader);
      }
    }
    if (order_.size() != num_nodes) return absl::InvalidArgumentError("a recursion's graph has a cycle");
    return absl::OkStatus();
  }

  absl::Status Translate(int index) {
    const NodeDef& node = spec_.def.node(index);
    if (auto feed = feeds_.find(node.name()); feed != feeds_.end()) {
      values_[index].push_back({false, code_.feeds[feed->second]});
      return tensorflow::GetNodeAttr(node, "dtype", &types_[code_.feeds[feed->second]]);
    }
    if (node.op() == "Placeholder") return Wrong(node, "nothing is fed to it");
    if (node.op() == "NoOp") return absl::OkStatus();
    Instruction instruction;
    for (const Edge& edge : edges_[index]) {
      if (edge.output < 0) continue;
      if (edge.output >= values_[edge.node].size()) return Wrong(node, "an input does not exist");
      instruction.inputs.push_back(values_[edge.node][edge.output]);
    }
    if (IsAlias(node.op())) {
      values_[index] = std::move(instruction.inputs);
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(FindProperties(node, &instruction));
    if (instruction.properties->input_types.size() != instruction.inputs.size()) {
      return Wrong(node, absl::StrCat("has ", instruction.inputs.size(), " inputs, expected ",
                                      instruction.properties->input_types.size()));
    }
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      // Kernels trust this, and end the process where it does not hold.
      if (TypeOf(instruction.inputs[i]) == instruction.properties->input_types[i]) continue;
      return Wrong(node, absl::StrCat("input ", i, " is ", tensorflow::DataTypeString(TypeOf(instruction.inputs[i])),
                                      ", expected ",
                                      tensorflow::DataTypeString(instruction.properties->input_types[i])));
    }
    if (instruction.stateless && Fold(&instruction, &values_[index])) return absl::OkStatus();
    if (!instruction.stateless) {
      Emit(std::move(instruction), &values_[index]);
      return absl::OkStatus();
    }
    const std::string key = MergeKey(instruction);
    auto [it, is_new] = merged_.try_emplace(key, index);
    if (is_new) {
      Emit(std::move(instruction), &values_[index]);
    } else {
      values_[index] = values_[it->second];
    }
    return absl::OkStatus();
  }

  tensorflow::DataType TypeOf(const Operand& operand) const {
    return operand.constant ? code_.constants[operand.index].first.dtype() : types_[operand.index];
  }

  absl::Status FindProperties(const NodeDef& node, Instruction* instruction) {
    const auto* registry = target_.library->GetFunctionLibraryDefinition();
    NodeDef def = node;
    def.clear_device();
    ChooseProduct(&def);
    const tensorflow::OpDef* op_def = nullptr;
    TF_RETURN_IF_ERROR(registry->LookUpOpDef(def.op(), &op_def));
    tensorflow::AddDefaultsToNodeDef(*op_def, &def);
    TF_RETURN_IF_ERROR(
        tensorflow::NodeProperties::CreateFromNodeDef(std::move(def), registry, &instruction->properties));
    instruction->num_outputs = instruction->properties->output_types.size();
    instruction->stateless = !op_def->is_stateful() && !HasResource(*instruction->properties);
    return absl::OkStatus();
  }

  // The operator's value when it depends on constants alone. One that fails is left to fail when, and if, it is run.
  bool Fold(Instruction* instruction, std::vector<Operand>* values) {
    const NodeDef& def = instruction->properties->node_def;
    if (HasFunctionAttr(def)) return false;
    std::vector<tensorflow::TensorValue> inputs;
    for (const Operand& input : instruction->inputs) {
      if (!input.constant) return false;
      inputs.emplace_back(&code_.constants[input.index].first);
    }
    if (!MakeKernel(instruction).ok()) return false;
    if (step_ == nullptr) step_ = std::make_unique<Step>(target_.device, target_.library);
    std::vector<Tensor> outputs(instruction->num_outputs);
    bool small = true;
    const absl::Status status =
        step_->RunKernel(instruction->kernel.get(), instruction->async, inputs, instruction->num_outputs,
                         [&](int i, Tensor output) {
                           small &= def.op() == "Const" || output.TotalBytes() <= kLargestFolded;
                           outputs[i] = std::move(output);
                         });
    if (!status.ok() || !small) return false;
    for (Tensor& output : outputs) {
      values->push_back({true, static_cast<int>(code_.constants.size())});
      code_.constants.emplace_back(output, output);
    }
    return true;
  }

  static std::string MergeKey(const Instruction& instruction) {
    const NodeDef& def = instruction.properties->node_def;
    std::string key = def.op();
    for (const Operand& input : instruction.inputs) absl::StrAppend(&key, input.constant ? ",c" : ",r", input.index);
    std::map<std::string, std::string> attrs;
    for (const auto& [name, value] : def.attr()) {
      if (!absl::StartsWith(name, "_")) attrs[name] = value.SerializeAsString();
    }
    for (const auto& [name, value] : attrs) absl::StrAppend(&key, "|", name, "=", value.size(), ":", value);
    return key;
  }

  void Emit(Instruction instruction, std::vector<Operand>* values) {
    instruction.first_output = code_.num_registers;
    for (int i = 0; i < instruction.num_outputs; ++i) {
      values->push_back({false, code_.num_registers++});
      types_.push_back(instruction.properties->output_types[i]);
    }
    code_.instructions.push_back(std::move(instruction));
  }

  absl::Status FindFetches() {
    for (const std::string& fetch : spec_.fetches) {
      TF_ASSIGN_OR_RETURN(Edge edge, ParseInput(fetch));
      if (edge.output < 0 || edge.output >= values_[edge.node].size()) {
        return absl::InvalidArgumentError(absl::StrCat("no operator gives '", fetch, "' in a recursion's graph"));
      }
      code_.fetches.push_back(values_[edge.node][edge.output]);
    }
    return absl::OkStatus();
  }

  void RemoveDead() {
    std::vector<bool> live(code_.num_registers);
    for (const Operand& fetch : code_.fetches) {
      if (!fetch.constant) live[fetch.index] = true;
    }
    std::vector<Instruction> kept;
    for (auto it = code_.instructions.rbegin(); it != code_.instructions.rend(); ++it) {
      bool needed = !it->stateless;
      for (int i = 0; i < it->num_outputs; ++i) needed |= live[it->first_output + i];
      if (!needed) continue;
      bool all = true;
      for (int i = 0; i < it->num_outputs; ++i) {
        it->required.push_back(live[it->first_output + i]);
        all &= live[it->first_output + i];
      }
      if (all) it->required.clear();
      for (const Operand& input : it->inputs) {
        if (!input.constant) live[input.index] = true;
      }
      kept.push_back(std::move(*it));
    }
    code_.instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  }

  absl::Status MakeKernel(Instruction* instruction) {
    tensorflow::OpKernel* kernel = nullptr;
    TF_RETURN_IF_ERROR(target_.library->CreateKernel(instruction->properties, &kernel));
    instruction->kernel.reset(kernel);
    instruction->async = kernel->AsAsync();
    const NodeDef& def = instruction->properties->node_def;
    TF_RETURN_IF_ERROR(MakeFewRowsKernel(def, target_.library, &instruction->few_rows));
    if (instruction->few_rows == nullptr || instruction->inputs[1].constant) return absl::OkStatus();
    bool transposed = false;
    TF_RETURN_IF_ERROR(tensorflow::GetNodeAttr(def, "transpose_b", &transposed));
    for (size_t i = 0; transposed && i < spec_.sources.size(); ++i) {
      const bool same = code_.feeds[i] == instruction->inputs[1].index;
      if (same && spec_.sources[i].kind == Source::Kind::kEnv) instruction->transposed = spec_.sources[i].index;
    }
    return absl::OkStatus();
  }

  absl::Status MakeKernels() {
    for (Instruction& instruction : code_.instructions) {
      instruction.first_input = code_.num_inputs;
      code_.num_inputs += instruction.inputs.size();
      if (instruction.kernel != nullptr) continue;
      const absl::Status status = MakeKernel(&instruction);
      if (!status.ok()) {
        const NodeDef& def = instruction.properties->node_def;
        return absl::Status(status.code(),
                            absl::StrCat("operator '", def.name(), "' (", def.op(), "): ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  void FindLastReaders() {
    std::vector<bool> read_later(code_.num_registers);
    code_.last_fetch.assign(code_.fetches.size(), false);
    for (int i = code_.fetches.size() - 1; i >= 0; --i) {
      const Operand& fetch = code_.fetches[i];
      if (fetch.constant || read_later[fetch.index]) continue;
      code_.last_fetch[i] = read_later[fetch.index] = true;
    }
    // Environment values belong to everybody: there is always a later reader.
    for (size_t i = 0; i < spec_.sources.size(); ++i) {
      if (spec_.sources[i].kind != Source::Kind::kEnv) continue;
      for (size_t f = 0; f < code_.fetches.size(); ++f) {
        if (code_.fetches[f] == Operand{false, code_.feeds[i]}) code_.last_fetch[f] = false;
      }
    }
    const absl::flat_hash_set<int> environment = EnvironmentRegisters();
    for (auto it = code_.instructions.rbegin(); it != code_.instructions.rend(); ++it) {
      for (int i = 0; i < it->num_outputs; ++i) {
        if (!read_later[it->first_output + i]) it->releases.push_back(it->first_output + i);
      }
      for (size_t i = 0; i < it->inputs.size(); ++i) {
        const int index = it->inputs[i].index;
        if (it->inputs[i].constant || environment.contains(index)) continue;
        // Seen here for the first time from the end: read last. A second time, or later too: not to be written.
        if (read_later[index]) {
          it->guards.push_back(index);
        } else {
          read_later[index] = true;
          it->releases.push_back(index);
        }
      }
    }
  }

  absl::flat_hash_set<int> EnvironmentRegisters() const {
    absl::flat_hash_set<int> registers;
    for (size_t i = 0; i < spec_.sources.size(); ++i) {
      if (spec_.sources[i].kind == Source::Kind::kEnv) registers.insert(code_.feeds[i]);
    }
    return registers;
  }

  const GraphSpec& spec_;
  const CompileTarget target_;
  GraphCode& code_;
  std::unique_ptr<Step> step_;
  absl::flat_hash_map<std::string, int> names_;
  std::vector<std::vector<Edge>> edges_;
  std::vector<int> order_;
  absl::flat_hash_map<std::string, int> feeds_;
  std::vector<std::vector<Operand>> values_;  // per node
  std::vector<tensorflow::DataType> types_;   // per register
  absl::flat_hash_map<std::string, int> merged_;
};

}  // namespace

absl::Status CompileGraph(const GraphSpec& spec, const CompileTarget& target, GraphCode* code) {
  return Compiler(spec, target, code).Run();
}

}  // namespace recursion
}  // namespace tf_ext
