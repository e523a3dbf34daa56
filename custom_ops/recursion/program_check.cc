// Every index of a program is checked once, here, so that the executors need not look.
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_ops/recursion/program.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace {

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  absl::Status Run() {
    if (program_.max_depth <= 0 || program_.max_live_calls <= 0) return Wrong("max_depth and max_live_calls must be > 0");
    TF_RETURN_IF_ERROR(Index(program_.root, program_.functions.size(), "root"));
    for (const ProductSpec& product : program_.products) {
      TF_RETURN_IF_ERROR(Index(product.env, program_.env_types.size(), "product_env"));
    }
    for (const FunctionSpec& function : program_.functions) TF_RETURN_IF_ERROR(Function(function));
    for (int i = 0; i < program_.blocks.size(); ++i) TF_RETURN_IF_ERROR(Block(i));
    return absl::OkStatus();
  }

 private:
  static absl::Status Wrong(const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed recursion program: ", what, "; it was expected as tf_ext.recursion encodes it"));
  }
  static absl::Status Index(int64_t value, int64_t size, const char* what) {
    if (value >= 0 && value < size) return absl::OkStatus();
    return Wrong(absl::StrCat(what, " is ", value, ", expected 0 <= ", what, " < ", size));
  }
  static absl::Status OptionalIndex(int64_t value, int64_t size, const char* what) {
    return value == -1 ? absl::OkStatus() : Index(value, size, what);
  }

  absl::Status Function(const FunctionSpec& function) {
    const int num_slots = function.slot_types.size();
    if (function.slot_shapes.size() != num_slots) {
      return Wrong(absl::StrCat("function ", function.name, " has ", num_slots, " slot_types and ",
                                function.slot_shapes.size(), " slot_shapes"));
    }
    if (function.num_args < 0 || function.num_args > num_slots) return Wrong("num_args exceeds the slots");
    for (int slot : function.results) TF_RETURN_IF_ERROR(Index(slot, num_slots, "results"));
    TF_RETURN_IF_ERROR(Index(function.entry, program_.blocks.size(), "entry"));
    if (&program_.functions[SafeFunction(program_.blocks[function.entry])] != &function) {
      return Wrong(absl::StrCat("the entry of function ", function.name, " belongs to another function"));
    }
    return absl::OkStatus();
  }

  int SafeFunction(const BlockSpec& block) const {
    return block.function >= 0 && block.function < program_.functions.size() ? block.function : 0;
  }

  absl::Status SameFunction(int block, const BlockSpec& of, const char* what) {
    TF_RETURN_IF_ERROR(Index(block, program_.blocks.size(), what));
    if (program_.blocks[block].function != of.function) return Wrong(absl::StrCat(what, " leaves the function"));
    return absl::OkStatus();
  }

  absl::Status Block(int index) {
    const BlockSpec& block = program_.blocks[index];
    TF_RETURN_IF_ERROR(Index(block.function, program_.functions.size(), "function"));
    const FunctionSpec& function = program_.functions[block.function];
    const int num_slots = function.slot_types.size();
    for (const auto& [to, from] : block.moves) {
      TF_RETURN_IF_ERROR(Index(to, num_slots, "moves"));
      TF_RETURN_IF_ERROR(Index(from, num_slots, "moves"));
    }
    if (block.side != -1) {
      TF_RETURN_IF_ERROR(SameFunction(block.side, block, "side"));
      const BlockSpec& side = program_.blocks[block.side];
      if (!side.calls.empty() || side.next != BlockSpec::kJoin || side.switch_slot >= 0 || side.side != -1) {
        return Wrong("a side block must have no calls, no switch and next = -2");
      }
    }
    if (block.switch_slot >= 0) {
      TF_RETURN_IF_ERROR(Index(block.switch_slot, num_slots, "switch"));
      if (block.targets.empty() || !block.calls.empty()) return Wrong("a switch needs targets and may not have calls");
      for (int target : block.targets) TF_RETURN_IF_ERROR(SameFunction(target, block, "targets"));
    } else if (block.next >= 0) {
      TF_RETURN_IF_ERROR(SameFunction(block.next, block, "next"));
    } else if (block.next != BlockSpec::kReturn && block.next != BlockSpec::kJoin) {
      return Wrong(absl::StrCat("next is ", block.next));
    } else if (!block.calls.empty() && block.next == BlockSpec::kJoin) {
      return Wrong("a block with calls cannot be a side block");
    }
    for (const CallSpec& call : block.calls) TF_RETURN_IF_ERROR(Call(call, function));
    for (int graph : {block.plain, block.batched, block.plain_grad, block.batched_grad}) {
      TF_RETURN_IF_ERROR(Graph(graph, num_slots));
      TF_RETURN_IF_ERROR(FeedTypes(graph, function));
    }
    return absl::OkStatus();
  }

  absl::Status Call(const CallSpec& call, const FunctionSpec& caller) {
    const int num_slots = caller.slot_types.size();
    if (call.callees.empty()) return Wrong("a call has no callee");
    TF_RETURN_IF_ERROR(OptionalIndex(call.selector, num_slots, "selector"));
    if (call.selector < 0 && call.callees.size() != 1) return Wrong("a call with several callees needs a selector");
    for (int callee : call.callees) {
      TF_RETURN_IF_ERROR(Index(callee, program_.functions.size(), "callees"));
      const FunctionSpec& function = program_.functions[callee];
      if (function.num_args != call.args.size() || function.results.size() != call.results.size()) {
        return Wrong(absl::StrCat("a call of ", function.name, " has ", call.args.size(), " arguments and ",
                                  call.results.size(), " results, expected ", function.num_args, " and ",
                                  function.results.size()));
      }
    }
    for (int slot : call.results) TF_RETURN_IF_ERROR(Index(slot, num_slots, "call results"));
    const bool maps = call.mode != CallSpec::Mode::kOne;
    const bool range = call.mode == CallSpec::Mode::kRange;
    if (maps && call.mapped.size() != call.args.size()) return Wrong("mapped must name every argument");
    if (range && call.tables.size() != call.args.size()) return Wrong("tables must name every argument");
    if (range) TF_RETURN_IF_ERROR(Index(call.start, num_slots, "start"));
    if (range) TF_RETURN_IF_ERROR(Index(call.limit, num_slots, "limit"));
    bool any_mapped = false;
    for (size_t i = 0; i < call.args.size(); ++i) {
      const bool mapped = maps && call.mapped[i];
      any_mapped |= mapped;
      if (range && mapped) {
        if (call.tables[i] != CallSpec::kIota) {
          TF_RETURN_IF_ERROR(Index(call.tables[i], program_.env_types.size(), "tables"));
        }
      } else {
        TF_RETURN_IF_ERROR(Index(call.args[i], num_slots, "args"));
      }
    }
    if (call.mode == CallSpec::Mode::kMap && !any_mapped) return Wrong("a map call has no mapped argument");
    return SlotTypes(call, caller);
  }

  absl::Status SlotTypes(const CallSpec& call, const FunctionSpec& caller) {
    for (int index : call.callees) {
      const FunctionSpec& callee = program_.functions[index];
      for (size_t i = 0; i < call.args.size(); ++i) {
        const int slot = call.args[i];
        if (slot >= 0 && caller.slot_types[slot] != callee.slot_types[i]) return WrongType("argument", i, caller, callee);
        const int table = call.mode == CallSpec::Mode::kRange ? call.tables[i] : CallSpec::kNotMapped;
        if (table >= 0 && program_.env_types[table] != callee.slot_types[i]) {
          return WrongType("argument", i, caller, callee);
        }
      }
      for (size_t i = 0; i < call.results.size(); ++i) {
        if (caller.slot_types[call.results[i]] != callee.slot_types[callee.results[i]]) {
          return WrongType("result", i, caller, callee);
        }
      }
    }
    return absl::OkStatus();
  }

  static absl::Status WrongType(const char* what, int index, const FunctionSpec& caller, const FunctionSpec& callee) {
    return Wrong(absl::StrCat(what, " ", index, " of a call of ", callee.name, " in ", caller.name,
                              " has another type than there"));
  }

  absl::Status Graph(int index, int num_slots) {
    TF_RETURN_IF_ERROR(OptionalIndex(index, program_.graphs.size(), "graph"));
    if (index < 0) return absl::OkStatus();
    const GraphSpec& graph = program_.graphs[index];
    const int num_env = program_.env_types.size();
    for (const Source& source : graph.sources) {
      if (source.kind == Source::Kind::kSlot || source.kind == Source::Kind::kOutputGradient) {
        TF_RETURN_IF_ERROR(Index(source.index, num_slots, "source slot"));
      } else if (source.kind == Source::Kind::kEnv) {
        TF_RETURN_IF_ERROR(Index(source.index, num_env, "source env"));
      } else if (source.kind == Source::Kind::kSaved && source.index < 0) {
        return Wrong("saved tensor of a negative number");
      }
    }
    for (const Target& target : graph.targets) TF_RETURN_IF_ERROR(GraphTarget(target, num_slots, num_env));
    return absl::OkStatus();
  }

  // Kernels trust the types of what they are given.
  absl::Status FeedTypes(int index, const FunctionSpec& function) {
    if (index < 0) return absl::OkStatus();
    const GraphSpec& graph = program_.graphs[index];
    std::map<std::string, tensorflow::DataType> types;
    for (const auto& node : graph.def.node()) {
      if (auto it = node.attr().find("dtype"); it != node.attr().end()) types[node.name()] = it->second.type();
    }
    for (size_t i = 0; i < graph.feeds.size(); ++i) {
      const Source& source = graph.sources[i];
      tensorflow::DataType expected = types[graph.feeds[i]];
      if (source.kind == Source::Kind::kSlot || source.kind == Source::Kind::kOutputGradient) {
        expected = function.slot_types[source.index];
      } else if (source.kind == Source::Kind::kEnv) {
        expected = program_.env_types[source.index];
      } else if (source.kind == Source::Kind::kRows) {
        expected = tensorflow::DT_INT32;
      } else if (source.kind == Source::Kind::kUid) {
        expected = tensorflow::DT_INT64;
      }
      if (types[graph.feeds[i]] == expected) continue;
      return Wrong(absl::StrCat("feed ", graph.feeds[i], " is ", tensorflow::DataTypeString(types[graph.feeds[i]]),
                                ", expected ", tensorflow::DataTypeString(expected)));
    }
    return absl::OkStatus();
  }

  absl::Status GraphTarget(const Target& target, int num_slots, int num_env) {
    switch (target.kind) {
      case Target::Kind::kSlot:
      case Target::Kind::kSlotGradient:
        return Index(target.index, num_slots, "target slot");
      case Target::Kind::kProductX:
      case Target::Kind::kProductY:
        return Index(target.index, program_.products.size(), "target product");
      case Target::Kind::kSaved:
        return Index(target.index, 1 << 20, "target saved");
      default:
        return Index(target.index, num_env, "target env");
    }
  }

  const Program& program_;
};

}  // namespace

absl::Status CheckProgram(const Program& program) { return Checker(program).Run(); }

}  // namespace recursion
}  // namespace tf_ext
