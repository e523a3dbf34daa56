#include "custom_ops/recursion/invoke_plan.h"

#include <algorithm>

namespace tf_ext {
namespace recursion {
namespace {

using Slots = std::vector<bool>;

// Backward data flow over the blocks of all functions, to a fixed point.
class Liveness {
 public:
  explicit Liveness(const Program& program) : program_(program) {
    for (const BlockSpec& block : program.blocks) {
      live_in_.emplace_back(program.functions[block.function].slot_types.size());
      side_out_.emplace_back(live_in_.back().size());
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = program.blocks.size() - 1; i >= 0; --i) changed |= Update(i);
    }
  }

  const Slots& in(int block) const { return live_in_[block]; }

  // Needed once the calls have been made (by the side block, or after the calls), or, without calls, after the moves.
  Slots AfterCalls(int index) const {
    const BlockSpec& block = program_.blocks[index];
    const FunctionSpec& function = program_.functions[block.function];
    Slots live(function.slot_types.size());
    if (block.switch_slot >= 0) {
      for (int target : block.targets) Add(live_in_[target], &live);
      live[block.switch_slot] = true;
    } else if (block.next >= 0) {
      live = live_in_[block.next];
    } else if (block.next == BlockSpec::kReturn) {
      for (int slot : function.results) live[slot] = true;
    } else {
      live = side_out_[index];
    }
    for (const CallSpec& call : block.calls) {
      for (int slot : call.results) live[slot] = false;
    }
    if (block.side >= 0) Add(live_in_[block.side], &live);
    return live;
  }

  static void Add(const Slots& from, Slots* to) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i]) (*to)[i] = true;
    }
  }

 private:
  bool Update(int index) {
    const BlockSpec& block = program_.blocks[index];
    if (block.side >= 0 && block.next >= 0) Add(live_in_[block.next], &side_out_[block.side]);
    if (block.side >= 0 && block.next == BlockSpec::kReturn) {
      for (int slot : program_.functions[block.function].results) side_out_[block.side][slot] = true;
    }
    if (block.side >= 0 && block.switch_slot >= 0) Add(AfterCalls(index), &side_out_[block.side]);
    Slots live = AfterCalls(index);
    for (const CallSpec& call : block.calls) {
      for (int slot : {call.selector, call.start, call.limit}) {
        if (slot >= 0) live[slot] = true;
      }
      for (int slot : call.args) {
        if (slot >= 0) live[slot] = true;
      }
    }
    for (auto it = block.moves.rbegin(); it != block.moves.rend(); ++it) {
      live[it->first] = false;
      live[it->second] = true;
    }
    if (block.plain >= 0) {
      const GraphSpec& graph = program_.graphs[block.plain];
      for (const Target& target : graph.targets) {
        if (target.kind == Target::Kind::kSlot) live[target.index] = false;
      }
      for (const Source& source : graph.sources) {
        if (source.kind == Source::Kind::kSlot) live[source.index] = true;
      }
    }
    if (live == live_in_[index]) return false;
    live_in_[index] = std::move(live);
    return true;
  }

  const Program& program_;
  std::vector<Slots> live_in_;
  std::vector<Slots> side_out_;  // of side blocks: what the blocks after them need
};

// Goes through a block from its end, so that the first reader met is the last one.
void PlanReaders(const Program& program, const Liveness& liveness, int index, BlockPlan* plan) {
  const BlockSpec& block = program.blocks[index];
  Slots live = liveness.AfterCalls(index);
  plan->args_last.resize(block.calls.size());
  for (int c = block.calls.size() - 1; c >= 0; --c) {
    const CallSpec& call = block.calls[c];
    for (int slot : {call.selector, call.start, call.limit}) {
      if (slot >= 0) live[slot] = true;
    }
    plan->args_last[c].assign(call.args.size(), false);
    for (int a = call.args.size() - 1; a >= 0; --a) {
      const int slot = call.args[a];
      if (slot < 0) continue;
      plan->args_last[c][a] = !live[slot];
      live[slot] = true;
    }
  }
  plan->move_last.assign(block.moves.size(), false);
  for (int m = block.moves.size() - 1; m >= 0; --m) {
    const auto& [to, from] = block.moves[m];
    live[to] = false;
    plan->move_last[m] = !live[from] && to != from;
    live[from] = true;
  }
  if (block.plain < 0) return;
  const GraphSpec& graph = program.graphs[block.plain];
  for (int slot : plan->written) live[slot] = false;
  plan->feed_last.assign(graph.feeds.size(), false);
  for (int f = graph.feeds.size() - 1; f >= 0; --f) {
    if (graph.sources[f].kind != Source::Kind::kSlot) continue;
    plan->feed_last[f] = !live[graph.sources[f].index];
    live[graph.sources[f].index] = true;
  }
}

int IndexIn(std::vector<int>* list, int value) {
  auto it = std::find(list->begin(), list->end(), value);
  if (it != list->end()) return it - list->begin();
  list->push_back(value);
  return list->size() - 1;
}

void PlanGradient(const Program& program, const BlockSpec& block, BlockPlan* plan) {
  if (block.plain_grad < 0) return;
  const FunctionSpec& function = program.functions[block.function];
  for (const Source& source : program.graphs[block.plain_grad].sources) {
    int index = -1;
    if (source.kind == Source::Kind::kSlot) {
      index = IndexIn(&plan->kept_slots, source.index);
    } else if (source.kind == Source::Kind::kOutputGradient) {
      if (!function.slot_shapes[source.index].IsFullyDefined()) index = IndexIn(&plan->shape_slots, source.index);
    } else if (source.kind == Source::Kind::kSaved) {
      plan->num_saved = std::max(plan->num_saved, source.index + 1);
    }
    plan->gradient_feeds.push_back(index);
  }
}

}  // namespace

std::shared_ptr<const InvokePlan> MakeInvokePlan(const Program& program) {
  auto plan = std::make_shared<InvokePlan>();
  const Liveness liveness(program);
  for (int i = 0; i < program.blocks.size(); ++i) {
    const BlockSpec& block = program.blocks[i];
    BlockPlan& block_plan = plan->blocks.emplace_back();
    if (block.plain < 0 && block.batched >= 0) plan->complete = false;
    if (block.plain >= 0) {
      int& num_saved = block_plan.num_saved;
      for (const Target& target : program.graphs[block.plain].targets) {
        if (target.kind == Target::Kind::kSlot) block_plan.written.push_back(target.index);
        if (target.kind == Target::Kind::kSaved) num_saved = std::max(num_saved, target.index + 1);
      }
    }
    PlanReaders(program, liveness, i, &block_plan);
    PlanGradient(program, block, &block_plan);
  }
  for (const FunctionSpec& function : program.functions) {
    std::vector<bool>& last = plan->result_last.emplace_back(function.results.size(), true);
    for (size_t i = 0; i < function.results.size(); ++i) {
      for (size_t j = i + 1; j < function.results.size(); ++j) {
        if (function.results[i] == function.results[j]) last[i] = false;
      }
    }
  }
  return plan;
}

}  // namespace recursion
}  // namespace tf_ext
