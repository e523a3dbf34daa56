#include "custom_ops/recursion/program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "custom_ops/recursion/join_slots.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::AttrValue;
using tensorflow::NodeDef;

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed recursion program: ", what, "; it was expected as tf_ext.recursion encodes it"));
}

const AttrValue* FindAttr(const NodeDef& node, const std::string& name) {
  auto it = node.attr().find(name);
  return it == node.attr().end() ? nullptr : &it->second;
}

int64_t Int(const NodeDef& node, const std::string& name, int64_t otherwise) {
  const AttrValue* attr = FindAttr(node, name);
  return attr == nullptr ? otherwise : attr->i();
}

std::string String(const NodeDef& node, const std::string& name) {
  const AttrValue* attr = FindAttr(node, name);
  return attr == nullptr ? "" : attr->s();
}

std::vector<int> Ints(const NodeDef& node, const std::string& name) {
  const AttrValue* attr = FindAttr(node, name);
  if (attr == nullptr) return {};
  return std::vector<int>(attr->list().i().begin(), attr->list().i().end());
}

std::vector<bool> Bools(const NodeDef& node, const std::string& name) {
  const AttrValue* attr = FindAttr(node, name);
  if (attr == nullptr) return {};
  return std::vector<bool>(attr->list().b().begin(), attr->list().b().end());
}

std::vector<std::string> Strings(const NodeDef& node, const std::string& name) {
  const AttrValue* attr = FindAttr(node, name);
  if (attr == nullptr) return {};
  return std::vector<std::string>(attr->list().s().begin(), attr->list().s().end());
}

std::vector<tensorflow::DataType> Types(const NodeDef& node, const std::string& name) {
  std::vector<tensorflow::DataType> types;
  const AttrValue* attr = FindAttr(node, name);
  if (attr == nullptr) return types;
  for (int type : attr->list().type()) types.push_back(static_cast<tensorflow::DataType>(type));
  return types;
}

absl::Status ParseFunction(const NodeDef& node, Program* program) {
  FunctionSpec function;
  function.name = node.name();
  function.num_args = Int(node, "num_args", 0);
  function.slot_types = Types(node, "slot_types");
  if (const AttrValue* attr = FindAttr(node, "slot_shapes")) {
    for (const auto& shape : attr->list().shape()) function.slot_shapes.emplace_back(shape);
  }
  function.entry = Int(node, "entry", -1);
  function.results = Ints(node, "results");
  if (const AttrValue* attr = FindAttr(node, "is_branch")) function.is_branch = attr->b();
  program->functions.push_back(std::move(function));
  return absl::OkStatus();
}

absl::Status ParseBlock(const NodeDef& node, Program* program) {
  BlockSpec block;
  block.function = Int(node, "function", -1);
  block.plain = Int(node, "plain", -1);
  block.batched = Int(node, "batched", -1);
  block.plain_grad = Int(node, "plain_grad", -1);
  block.batched_grad = Int(node, "batched_grad", -1);
  const std::vector<int> moves = Ints(node, "moves");
  if (moves.size() % 2 != 0) return Malformed(absl::StrCat("block ", node.name(), " has half a move"));
  for (size_t i = 0; i < moves.size(); i += 2) block.moves.emplace_back(moves[i], moves[i + 1]);
  block.side = Int(node, "side", -1);
  block.next = Int(node, "next", BlockSpec::kReturn);
  block.switch_slot = Int(node, "switch", -1);
  block.targets = Ints(node, "targets");
  block.rank = Int(node, "rank", 0);
  program->blocks.push_back(std::move(block));
  return absl::OkStatus();
}

absl::Status ParseCall(const NodeDef& node, std::vector<std::pair<int, CallSpec>>* calls) {
  CallSpec call;
  call.callees = Ints(node, "callees");
  call.selector = Int(node, "selector", -1);
  call.args = Ints(node, "args");
  call.results = Ints(node, "results");
  call.site = Int(node, "site", 0);
  call.mapped = Bools(node, "mapped");
  call.tables = Ints(node, "tables");
  call.start = Int(node, "start", -1);
  call.limit = Int(node, "limit", -1);
  const std::string mode = String(node, "mode");
  if (mode.empty() || mode == "one") {
    call.mode = CallSpec::Mode::kOne;
  } else if (mode == "map" || mode == "range") {
    call.mode = mode == "map" ? CallSpec::Mode::kMap : CallSpec::Mode::kRange;
    const std::string reduce = String(node, "reduce");
    if (reduce != "stack" && reduce != "sum") {
      return Malformed(absl::StrCat("call ", node.name(), " reduces by '", reduce, "', expected 'stack' or 'sum'"));
    }
    call.reduce = reduce == "stack" ? CallSpec::Reduce::kStack : CallSpec::Reduce::kSum;
  } else {
    return Malformed(absl::StrCat("call ", node.name(), " has mode '", mode, "', expected 'one', 'map' or 'range'"));
  }
  calls->emplace_back(Int(node, "block", -1), std::move(call));
  return absl::OkStatus();
}

absl::Status ParseSource(const std::string& text, Source* source) {
  static const auto* kinds = new std::map<std::string, Source::Kind>{
      {"slot", Source::Kind::kSlot},           {"env", Source::Kind::kEnv},     {"n", Source::Kind::kRows},
      {"uid", Source::Kind::kUid},             {"dout", Source::Kind::kOutputGradient},
      {"saved", Source::Kind::kSaved}};
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  auto it = kinds->find(parts[0]);
  if (it == kinds->end()) return Malformed(absl::StrCat("unknown source '", text, "'"));
  source->kind = it->second;
  const bool has_index = it->second != Source::Kind::kRows && it->second != Source::Kind::kUid;
  if (parts.size() != (has_index ? 2 : 1) || (has_index && !absl::SimpleAtoi(parts[1], &source->index))) {
    return Malformed(absl::StrCat("source '", text, "' has a wrong index"));
  }
  return absl::OkStatus();
}

absl::Status ParseTarget(const std::string& text, Target* target) {
  static const auto* kinds = new std::map<std::string, Target::Kind>{
      {"slot", Target::Kind::kSlot},        {"saved", Target::Kind::kSaved},   {"dslot", Target::Kind::kSlotGradient},
      {"denv", Target::Kind::kEnvGradient}, {"px", Target::Kind::kProductX},   {"py", Target::Kind::kProductY},
      {"sv", Target::Kind::kSliceValues},   {"si", Target::Kind::kSliceIndices}};
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  auto it = kinds->find(parts[0]);
  if (it == kinds->end()) return Malformed(absl::StrCat("unknown target '", text, "'"));
  target->kind = it->second;
  const bool wrong_index = parts.size() < 2 || parts.size() > 3 || !absl::SimpleAtoi(parts[1], &target->index) ||
                           (parts.size() == 3 && !absl::SimpleAtoi(parts[2], &target->occurrence));
  if (wrong_index) return Malformed(absl::StrCat("target '", text, "' has a wrong index"));
  return absl::OkStatus();
}

absl::Status ParseGraph(const NodeDef& node, Program* program) {
  GraphSpec graph;
  if (!graph.def.ParseFromString(String(node, "def"))) {
    return Malformed(absl::StrCat("the definition of graph ", node.name(), " cannot be parsed"));
  }
  graph.feeds = Strings(node, "feeds");
  graph.fetches = Strings(node, "fetches");
  graph.stacked = Bools(node, "stacked");
  for (const std::string& text : Strings(node, "sources")) {
    TF_RETURN_IF_ERROR(ParseSource(text, &graph.sources.emplace_back()));
  }
  for (const std::string& text : Strings(node, "targets")) {
    TF_RETURN_IF_ERROR(ParseTarget(text, &graph.targets.emplace_back()));
  }
  if (graph.stacked.empty()) graph.stacked.assign(graph.fetches.size(), true);
  if (graph.feeds.size() != graph.sources.size() || graph.fetches.size() != graph.targets.size() ||
      graph.fetches.size() != graph.stacked.size()) {
    return Malformed(absl::StrCat("graph ", node.name(), " has lists of unequal lengths"));
  }
  program->graphs.push_back(std::move(graph));
  return absl::OkStatus();
}

void ParseHeader(const NodeDef& node, Program* program) {
  program->root = Int(node, "root", 0);
  program->max_depth = Int(node, "max_depth", 0);
  program->max_live_calls = Int(node, "max_live_calls", 0);
  program->env_types = Types(node, "env_types");
  const std::vector<int> env = Ints(node, "product_env");
  const std::vector<bool> transposed = Bools(node, "product_transposed");
  for (size_t i = 0; i < env.size(); ++i) {
    program->products.push_back({env[i], i < transposed.size() && transposed[i]});
  }
}

// A run that keeps no tape need not compute what only a gradient would read.
int Lean(Program* program, int index) {
  if (index < 0) return -1;
  const auto is_saved = [](const Target& target) { return target.kind == Target::Kind::kSaved; };
  const std::vector<Target>& targets = program->graphs[index].targets;
  if (std::none_of(targets.begin(), targets.end(), is_saved)) return index;
  GraphSpec lean = program->graphs[index];
  for (int f = lean.targets.size() - 1; f >= 0; --f) {
    if (!is_saved(lean.targets[f])) continue;
    lean.targets.erase(lean.targets.begin() + f);
    lean.fetches.erase(lean.fetches.begin() + f);
    lean.stacked.erase(lean.stacked.begin() + f);
  }
  program->graphs.push_back(std::move(lean));
  return program->graphs.size() - 1;
}

void AddLeanGraphs(Program* program) {
  std::map<int, int> lean;
  const auto find = [&](int graph) {
    const auto [it, is_new] = lean.try_emplace(graph, -1);
    if (is_new) it->second = Lean(program, graph);
    return it->second;
  };
  for (BlockSpec& block : program->blocks) {
    block.plain_lean = find(block.plain);
    block.batched_lean = find(block.batched);
  }
}

}  // namespace

// In program_check.cc.
absl::Status CheckProgram(const Program& program);

absl::StatusOr<Program> Program::Parse(const std::string& serialized) {
  tensorflow::GraphDef def;
  if (!def.ParseFromString(serialized)) return Malformed("it cannot be parsed");
  if (def.node_size() == 0 || def.node(0).op() != "Program") return Malformed("its first record is no Program");
  Program program;
  std::vector<std::pair<int, CallSpec>> calls;
  ParseHeader(def.node(0), &program);
  for (int i = 1; i < def.node_size(); ++i) {
    const NodeDef& node = def.node(i);
    if (node.op() == "Function") {
      TF_RETURN_IF_ERROR(ParseFunction(node, &program));
    } else if (node.op() == "Block") {
      TF_RETURN_IF_ERROR(ParseBlock(node, &program));
    } else if (node.op() == "Call") {
      TF_RETURN_IF_ERROR(ParseCall(node, &calls));
    } else if (node.op() == "Graph") {
      TF_RETURN_IF_ERROR(ParseGraph(node, &program));
    } else {
      return Malformed(absl::StrCat("record '", node.name(), "' has the unknown kind '", node.op(), "'"));
    }
  }
  for (auto& [block, call] : calls) {
    if (block < 0 || block >= program.blocks.size()) return Malformed("a call belongs to no block");
    program.blocks[block].calls.push_back(std::move(call));
  }
  program.library = std::move(*def.mutable_library());
  TF_RETURN_IF_ERROR(CheckProgram(program));
  JoinSlots(&program);
  AddLeanGraphs(&program);
  return program;
}

}  // namespace recursion
}  // namespace tf_ext
