#include "custom_ops/recursion/join_slots.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/tensor.h"

namespace tf_ext {
namespace recursion {
namespace {

using tensorflow::NodeDef;

// The node and output that an input, or a fetch, names.
std::pair<std::string, int> Parse(const std::string& input) {
  const size_t colon = input.rfind(':');
  if (colon == std::string::npos) return {input, 0};
  return {input.substr(0, colon), std::atoi(input.c_str() + colon + 1)};
}

class Joiner {
 public:
  Joiner(const Program& program, const BlockSpec& block, GraphSpec* graph)
      : function_(program.functions[block.function]), graph_(*graph), is_list_(function_.slot_types.size(), false) {
    for (const BlockSpec& other : program.blocks) {
      if (other.function != block.function) continue;
      for (const CallSpec& call : other.calls) {
        if (call.mode == CallSpec::Mode::kOne) continue;
        for (int slot : call.results) is_list_[slot] = true;
      }
    }
    for (int i = 0; i < graph_.def.node_size(); ++i) nodes_[graph_.def.node(i).name()] = i;
    CountReaders();
  }

  void Run() {
    for (int i = 0; i < graph_.def.node_size(); ++i) {
      const std::string& op = graph_.def.node(i).op();
      if (op == "ConcatV2") JoinFeeds(i);
      if (op == "Split" || op == "SplitV") JoinFetches(i);
    }
  }

 private:
  void CountReaders() {
    for (const NodeDef& node : graph_.def.node()) {
      for (const std::string& input : node.input()) {
        // A control edge is a reader too: what it comes from has to stay.
        ++readers_[absl::StartsWith(input, "^") ? input.substr(1) : Parse(input).first];
      }
    }
    for (const std::string& fetch : graph_.fetches) ++readers_[Parse(fetch).first];
  }

  const NodeDef* Node(const std::string& name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &graph_.def.node(found->second);
  }

  // Whether `input` is the constant 1: the first dimension of a row, along which rows of any rank lie side by side.
  bool IsFirstOfRow(const std::string& input, int row_rank) const {
    const NodeDef* node = Node(Parse(input).first);
    if (node == nullptr || node->op() != "Const") return false;
    tensorflow::Tensor value;
    const auto proto = node->attr().find("value");
    if (proto == node->attr().end() || !value.FromProto(proto->second.tensor()) || value.NumElements() != 1) return false;
    int64_t axis = 0;
    if (value.dtype() == tensorflow::DT_INT32) {
      axis = *static_cast<const int32_t*>(value.data());
    } else if (value.dtype() == tensorflow::DT_INT64) {
      axis = *static_cast<const int64_t*>(value.data());
    }
    return axis == 1 || axis == -row_rank;
  }

  // The rank of the rows in these slots if they can lie side by side, else -1.
  int CommonRank(const std::vector<int>& slots) const {
    const tensorflow::PartialTensorShape& first = function_.slot_shapes[slots[0]];
    for (int slot : slots) {
      const tensorflow::PartialTensorShape& shape = function_.slot_shapes[slot];
      const tensorflow::DataType type = function_.slot_types[slot];
      if (is_list_[slot] || !shape.IsFullyDefined() || shape.dims() < 1 || shape.dims() != first.dims()) return -1;
      if (type != function_.slot_types[slots[0]] || !tensorflow::DataTypeCanUseMemcpy(type)) return -1;
      for (int d = 1; d < shape.dims(); ++d) {
        if (shape.dim_size(d) != first.dim_size(d)) return -1;
      }
    }
    return first.dims();
  }

  int FeedOf(const std::string& node) const {
    const auto found = std::find(graph_.feeds.begin(), graph_.feeds.end(), node);
    return found == graph_.feeds.end() ? -1 : found - graph_.feeds.begin();
  }

  void JoinFeeds(int index) {
    const NodeDef& concat = graph_.def.node(index);
    std::vector<int> slots;
    std::vector<std::string> joined;
    for (int i = 0; i + 1 < concat.input_size(); ++i) {
      const std::string name = Parse(concat.input(i)).first;
      const int feed = FeedOf(name);
      if (feed < 0 || graph_.sources[feed].kind != Source::Kind::kSlot || !graph_.sources[feed].joined.empty()) return;
      if (readers_[name] != 1) return;
      slots.push_back(graph_.sources[feed].index);
      joined.push_back(name);
    }
    if (slots.size() < 2) return;
    const int rank = CommonRank(slots);
    if (rank < 0 || !IsFirstOfRow(concat.input(concat.input_size() - 1), rank)) return;
    for (const std::string& name : joined) {
      const int feed = FeedOf(name);
      graph_.feeds.erase(graph_.feeds.begin() + feed);
      graph_.sources.erase(graph_.sources.begin() + feed);
      // What nobody reads and nobody feeds would be an error.
      graph_.def.mutable_node(nodes_[name])->set_op("NoOp");
      graph_.def.mutable_node(nodes_[name])->clear_attr();
    }
    NodeDef* feed = graph_.def.mutable_node(index);
    const std::string name = feed->name();
    const auto type = function_.slot_types[slots[0]];
    feed->Clear();
    feed->set_name(name);
    feed->set_op("Placeholder");
    (*feed->mutable_attr())["dtype"].set_type(type);
    graph_.feeds.push_back(name);
    graph_.sources.push_back({Source::Kind::kSlot, slots[0], slots});
  }

  void JoinFetches(int index) {
    const NodeDef& split = graph_.def.node(index);
    const bool sizes = split.op() == "SplitV";
    const int num = split.attr().at("num_split").i();
    if (readers_[split.name()] != num || num < 2) return;
    std::vector<int> fetches(num, -1), slots(num, -1);
    for (size_t f = 0; f < graph_.fetches.size(); ++f) {
      const auto [name, output] = Parse(graph_.fetches[f]);
      if (name != split.name()) continue;
      if (output < 0 || output >= num || graph_.targets[f].kind != Target::Kind::kSlotGradient) return;
      if (!graph_.targets[f].joined.empty()) return;
      fetches[output] = f;
      slots[output] = graph_.targets[f].index;
    }
    if (std::find(fetches.begin(), fetches.end(), -1) != fetches.end()) return;
    const int rank = CommonRank(slots);
    if (rank < 0 || !IsFirstOfRow(split.input(sizes ? 2 : 0), rank)) return;
    const std::string whole = split.input(sizes ? 0 : 1);
    std::sort(fetches.rbegin(), fetches.rend());
    for (int f : fetches) {
      graph_.fetches.erase(graph_.fetches.begin() + f);
      graph_.targets.erase(graph_.targets.begin() + f);
      graph_.stacked.erase(graph_.stacked.begin() + f);
    }
    const auto [name, output] = Parse(whole);
    graph_.fetches.push_back(absl::StrCat(name, ":", output));
    graph_.targets.push_back({Target::Kind::kSlotGradient, slots[0], 0, slots});
    graph_.stacked.push_back(true);
  }

  const FunctionSpec& function_;
  GraphSpec& graph_;
  std::vector<bool> is_list_;  // by slot
  absl::flat_hash_map<std::string, int> nodes_;
  absl::flat_hash_map<std::string, int> readers_;
};

}  // namespace

void JoinSlots(Program* program) {
  std::map<int, int> users;  // of graphs: one that serves several blocks serves different slots
  for (const BlockSpec& block : program->blocks) {
    ++users[block.batched];
    ++users[block.batched_grad];
  }
  for (const BlockSpec& block : program->blocks) {
    if (block.batched >= 0 && users[block.batched] == 1) {
      Joiner(*program, block, &program->graphs[block.batched]).Run();
    }
    if (block.batched_grad >= 0 && users[block.batched_grad] == 1) {
      Joiner(*program, block, &program->graphs[block.batched_grad]).Run();
    }
  }
}

}  // namespace recursion
}  // namespace tf_ext
