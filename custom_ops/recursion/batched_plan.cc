#include "custom_ops/recursion/batched_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_ext {
namespace recursion {
namespace batched {
namespace {

// For the cost of values whose shape is not known.
constexpr int64_t kUsualSize = 32;

class Planner {
 public:
  explicit Planner(BatchedPlan* plan) : plan_(plan), program_(plan->program()) {}

  absl::Status Plan() {
    FindSlotKinds();
    FindLeaves();
    plan_->blocks.resize(program_.blocks.size());
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      BlockPlan& block = plan_->blocks[b];
      block.index = b;
      block.spec = &program_.blocks[b];
      block.function = &program_.functions[block.spec->function];
      block.rank = block.spec->rank == 0 && !leads_to_calls_[b] ? 1 : block.spec->rank;
      TF_RETURN_IF_ERROR(CheckSelectors(block));
      if (block.spec->batched < 0) continue;
      TF_RETURN_IF_ERROR(PlanForward(block));
      TF_RETURN_IF_ERROR(PlanGradient(block));
      PlanCost(block);
      for (const SlotRead& read : block.reads) block.keyed |= read.keyed;
      plan_->needs_uid |= block.needs_uid;
    }
    return absl::OkStatus();
  }

 private:
  void FindSlotKinds() {
    for (const FunctionSpec& function : program_.functions) {
      plan_->slot_kinds.emplace_back(function.slot_types.size(), SlotKind::kRow);
    }
    for (const BlockSpec& block : program_.blocks) {
      for (const CallSpec& call : block.calls) {
        if (call.mode == CallSpec::Mode::kOne) continue;
        const SlotKind kind = call.reduce == CallSpec::Reduce::kSum ? SlotKind::kSum : SlotKind::kStack;
        for (int slot : call.results) plan_->slot_kinds[block.function][slot] = kind;
      }
    }
  }

  void FindLeaves() {
    leads_to_calls_.resize(program_.blocks.size());
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t b = 0; b < program_.blocks.size(); ++b) {
        const BlockSpec& block = program_.blocks[b];
        bool leads = !block.calls.empty() || (block.next >= 0 && leads_to_calls_[block.next]);
        for (int target : block.targets) leads |= leads_to_calls_[target];
        changed |= leads && !leads_to_calls_[b];
        leads_to_calls_[b] = leads;
      }
    }
  }

  absl::Status CheckSelectors(const BlockPlan& block) const {
    std::vector<int> slots = {block.spec->switch_slot};
    for (const CallSpec& call : block.spec->calls) {
      slots.push_back(call.selector);
      if (call.mode == CallSpec::Mode::kRange) slots.insert(slots.end(), {call.start, call.limit});
    }
    for (int slot : slots) {
      if (slot < 0) continue;
      const tensorflow::DataType type = block.function->slot_types[slot];
      if (type == tensorflow::DT_BOOL || type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64) continue;
      return absl::InvalidArgumentError(absl::StrCat("Slot ", slot, " of '", block.function->name, "' selects, but is ",
                                                     tensorflow::DataTypeString(type),
                                                     ", expected bool, int32 or int64."));
    }
    return absl::OkStatus();
  }

  // Shape of one result of a mapped call, as the callee declares it.
  tensorflow::PartialTensorShape ResultShape(int function, int slot) const {
    for (const BlockSpec& block : program_.blocks) {
      if (block.function != function) continue;
      for (const CallSpec& call : block.calls) {
        const auto found = std::find(call.results.begin(), call.results.end(), slot);
        if (found == call.results.end()) continue;
        const FunctionSpec& callee = program_.functions[call.callees[0]];
        return callee.slot_shapes[callee.results[found - call.results.begin()]];
      }
    }
    return program_.functions[function].slot_shapes[slot];
  }

  int Read(BlockPlan& block, int slot) const {
    for (size_t i = 0; i < block.reads.size(); ++i) {
      if (block.reads[i].slot == slot) return i;
    }
    const int function = block.spec->function;
    SlotRead read;
    read.slot = slot;
    read.kind = plan_->slot_kinds[function][slot];
    read.dtype = block.function->slot_types[slot];
    read.row_shape = read.kind == SlotKind::kRow ? block.function->slot_shapes[slot] : ResultShape(function, slot);
    read.keyed = read.kind == SlotKind::kStack || !read.row_shape.IsFullyDefined();
    block.reads.push_back(std::move(read));
    return block.reads.size() - 1;
  }

  int Gather(BlockPlan& block, const Source& source) const {
    Gathered gathered;
    for (int slot : source.joined) gathered.parts.push_back(Read(block, slot));
    if (source.joined.empty()) gathered.parts.push_back(Read(block, source.index));
    for (size_t i = 0; i < block.gathered.size(); ++i) {
      if (block.gathered[i].parts == gathered.parts) return i;
    }
    block.gathered.push_back(std::move(gathered));
    return block.gathered.size() - 1;
  }

  absl::Status PlanForward(BlockPlan& block) {
    const GraphSpec& spec = program_.graphs[block.spec->batched];
    for (const Source& source : spec.sources) {
      switch (source.kind) {
        case Source::Kind::kSlot:
          block.feeds.push_back({Feed::Kind::kSlot, Gather(block, source)});
          break;
        case Source::Kind::kEnv: block.feeds.push_back({Feed::Kind::kEnv, source.index}); break;
        case Source::Kind::kRows: block.feeds.push_back({Feed::Kind::kRows}); break;
        case Source::Kind::kUid:
          block.feeds.push_back({Feed::Kind::kUid});
          block.needs_uid = true;
          break;
        default: return absl::InternalError("A forward graph is fed by its own gradient.");
      }
    }
    block.num_forward_reads = block.reads.size();
    block.num_forward_gathered = block.gathered.size();
    const bool lean = block.spec->batched_lean != block.spec->batched;
    int num_kept = 0;
    for (size_t f = 0; f < spec.targets.size(); ++f) {
      if (spec.targets[f].kind != Target::Kind::kSlot) continue;
      Output output;
      output.fetch = f;
      output.lean_fetch = lean ? num_kept : f;
      ++num_kept;
      output.slot = spec.targets[f].index;
      output.stacked = spec.stacked[f];
      output.row_shape = block.function->slot_shapes[output.slot];
      block.outputs.push_back(std::move(output));
    }
    return absl::OkStatus();
  }

  absl::Status PlanGradient(BlockPlan& block) {
    block.gradient = block.spec->batched_grad;
    if (block.gradient < 0) return absl::OkStatus();
    const GraphSpec& spec = program_.graphs[block.gradient];
    TF_RETURN_IF_ERROR(Keep(block, spec));
    for (const Source& source : spec.sources) {
      TF_ASSIGN_OR_RETURN(const Feed feed, GradientFeed(block, source));
      block.gradient_feeds.push_back(feed);
    }
    for (size_t f = 0; f < spec.targets.size(); ++f) {
      if (spec.targets[f].kind != Target::Kind::kSlotGradient) continue;
      PlanSlotGradients(block, spec.targets[f], f);
    }
    return absl::OkStatus();
  }

  void PlanCost(BlockPlan& block) const {
    int64_t bytes = 0;
    const auto add = [&](const tensorflow::PartialTensorShape& shape, tensorflow::DataType dtype) {
      int64_t elements = 1;
      for (int d = 0; d < shape.dims(); ++d) elements *= shape.dim_size(d) < 0 ? kUsualSize : shape.dim_size(d);
      bytes += elements * tensorflow::DataTypeSize(dtype);
    };
    for (const SlotRead& read : block.reads) add(read.row_shape, read.dtype);
    for (const Output& output : block.outputs) add(output.row_shape, block.function->slot_types[output.slot]);
    block.cost = EstimateCost(program_.graphs[block.spec->batched], bytes);
    if (block.gradient >= 0) block.divisible_gradient = IsDivisible(program_.graphs[block.gradient]);
  }

  void PlanSlotGradients(BlockPlan& block, const Target& target, int fetch) const {
    if (target.joined.empty()) block.slot_gradients.push_back({fetch, Read(block, target.index)});
    int64_t offset = 0;
    for (int slot : target.joined) {
      block.slot_gradients.push_back({fetch, Read(block, slot), offset, /*part=*/true});
      offset += block.function->slot_shapes[slot].num_elements();
    }
  }

  // What a record has to keep for the gradient graph, in the order BlockPlan says.
  absl::Status Keep(BlockPlan& block, const GraphSpec& spec) {
    for (const Source& source : spec.sources) {
      if (source.kind == Source::Kind::kUid) block.keeps_uid = true;
      if (source.kind == Source::Kind::kSlot) AddUnique(block.kept_slots, Gather(block, source));
      if (source.kind == Source::Kind::kSaved) {
        TF_ASSIGN_OR_RETURN(const int fetch, SavedFetch(block, source.index));
        AddUnique(block.kept_fetches, fetch);
      }
    }
    block.needs_uid |= block.keeps_uid;
    for (int s : block.kept_slots) block.gathered[s].kept = true;
    return absl::OkStatus();
  }

  absl::StatusOr<Feed> GradientFeed(BlockPlan& block, const Source& source) {
    const int num_slots = block.kept_slots.size();
    switch (source.kind) {
      case Source::Kind::kSlot:
        return Feed{Feed::Kind::kKept, Position(block.kept_slots, Gather(block, source))};
      case Source::Kind::kSaved: {
        TF_ASSIGN_OR_RETURN(const int fetch, SavedFetch(block, source.index));
        return Feed{Feed::Kind::kKept, num_slots + Position(block.kept_fetches, fetch)};
      }
      case Source::Kind::kUid:
        return Feed{Feed::Kind::kKept, num_slots + static_cast<int>(block.kept_fetches.size())};
      case Source::Kind::kEnv: return Feed{Feed::Kind::kEnv, source.index};
      case Source::Kind::kRows: return Feed{Feed::Kind::kRows};
      case Source::Kind::kOutputGradient:
        for (size_t i = 0; i < block.outputs.size(); ++i) {
          if (block.outputs[i].slot != source.index) continue;
          block.outputs[i].differentiated = true;
          return Feed{Feed::Kind::kOutputGradient, static_cast<int>(i)};
        }
        return absl::InternalError(
            absl::StrCat("A gradient graph of '", block.function->name, "' asks for the gradient of slot ",
                         source.index, ", which its block does not write."));
    }
    return absl::InternalError("A source of an unknown kind.");
  }

  absl::StatusOr<int> SavedFetch(const BlockPlan& block, int saved) const {
    const std::vector<Target>& targets = program_.graphs[block.spec->batched].targets;
    for (size_t f = 0; f < targets.size(); ++f) {
      if (targets[f].kind == Target::Kind::kSaved && targets[f].index == saved) return f;
    }
    return absl::InternalError(absl::StrCat("A gradient graph of '", block.function->name, "' reads saved tensor ",
                                            saved, ", which its block does not save."));
  }

  static void AddUnique(std::vector<int>& list, int value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }
  static int Position(const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) - list.begin();
  }

  BatchedPlan* plan_;
  const Program& program_;
  std::vector<bool> leads_to_calls_;  // by block
};

}  // namespace

absl::StatusOr<std::shared_ptr<const BatchedPlan>> BatchedPlan::Create(CompiledProgram* compiled,
                                                                       tensorflow::Device* device) {
  auto plan = std::make_shared<BatchedPlan>();
  plan->compiled = compiled;
  plan->serial_device = MakeSerialDevice(device);
  TF_RETURN_IF_ERROR(Planner(plan.get()).Plan());
  return std::shared_ptr<const BatchedPlan>(std::move(plan));
}

}  // namespace batched
}  // namespace recursion
}  // namespace tf_ext
