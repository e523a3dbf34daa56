#include "custom_ops/lite_delegate/plan_reader.h"

#include <algorithm>
#include <map>

#include "custom_ops/lite_delegate/json.h"
#include "custom_ops/lite_delegate/litert.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of bytes, and of nothing else as many
constexpr int kMostUnits = 1 << 20;                    // and operators, and ids of tensors
constexpr std::size_t kMostListed = 1 << 16;           // tensors, and pieces
constexpr double kMostMicros = 1e12;

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What a tensor of this type and shape takes; -1 where it is more than any has.
std::int64_t BytesOf(const ElementType& type, const std::vector<std::int32_t>& shape) {
  std::int64_t bytes = static_cast<std::int64_t>(type.bytes);
  for (const std::int32_t size : shape) {
    if (size != 0 && bytes > kMost / size) return -1;
    bytes *= size;
  }
  return bytes;
}

}  // namespace

class PlanReader {
 public:
  PlanReader(Bundle* bundle, std::string* error) : bundle_(*bundle), error_(*error) {}

  bool Read(std::string_view text) {
    Json plan;
    std::string reason;
    if (!Json::Parse(text, &plan, &reason)) return Fail("the plan is no JSON: " + reason);
    if (plan["format"].text() != "tf_ext.lite" || !plan["version"].IsInteger(1, 1)) {
      return Fail("expected a plan of format tf_ext.lite, version 1, but it is of format '" + plan["format"].text() +
                  "', version " + std::to_string(plan["version"].integer()) + "; make the bundle anew with this version");
    }
    return Model(plan["model"]) && Tensors(plan["tensors"]) && Ids(plan["inputs"], "inputs", &bundle_.inputs_) &&
           Ids(plan["outputs"], "outputs", &bundle_.outputs_) && Processors(plan["processors"]) &&
           Units(plan["units"]) && Pieces(plan["pieces"]) && Connected();
  }

 private:
  bool Fail(const std::string& text) {
    error_ = text;
    return false;
  }

  bool Model(const Json& model) {
    if (!model["name"].is(Json::Type::kString) || !model["operators"].IsInteger(1, kMostUnits) ||
        !model["tensors"].IsInteger(1, kMost) || !model["codes_crc32"].IsInteger(0, 0xFFFFFFFF)) {
      return Fail("the plan's 'model' is incomplete");
    }
    bundle_.name_ = model["name"].text();
    bundle_.operators_ = static_cast<int>(model["operators"].integer());
    bundle_.graph_tensors_ = static_cast<int>(model["tensors"].integer());
    bundle_.codes_crc32_ = static_cast<std::uint32_t>(model["codes_crc32"].integer());
    const Json& constants = model["constants_crc32"];
    if (constants.is(Json::Type::kNull)) return true;
    bundle_.constants_crc32_ = constants.integer();
    return constants.IsInteger(0, 0xFFFFFFFF) || Fail("the plan's 'constants_crc32' is none");
  }

  bool Tensors(const Json& tensors) {
    if (tensors.items().size() > kMostListed) return Fail("the plan has too many tensors");
    for (const Json& tensor : tensors.items()) {
      TensorSpec spec{static_cast<int>(tensor["id"].integer()), tensor["name"].text(), tensor["type"].text(), {}, 0};
      if (!tensor["id"].IsInteger(0, kMostUnits) || spec.type.empty() || !tensor["shape"].is(Json::Type::kArray) ||
          tensor["shape"].items().size() > 8 || !tensor["bytes"].IsInteger(0, kMost)) {
        return Fail("tensor " + std::to_string(bundle_.tensors_.size()) + " of the plan is incomplete");
      }
      for (const Json& size : tensor["shape"].items()) {
        if (!size.IsInteger(0, 0x7FFFFFFF)) return Fail("tensor '" + spec.name + "' has a size that is none");
        spec.shape.push_back(static_cast<std::int32_t>(size.integer()));
      }
      spec.bytes = static_cast<std::size_t>(tensor["bytes"].integer());
      // The runtime goes by the shape, and memory is reserved by the bytes.
      const ElementType* type = FindElementType(spec.type);
      if (type == nullptr) return Fail("tensor '" + spec.name + "' is of type '" + spec.type + "', which has no fixed size");
      if (BytesOf(*type, spec.shape) != tensor["bytes"].integer()) {
        return Fail("tensor '" + spec.name + "' is said to have " + std::to_string(spec.bytes) +
                    " bytes, which its type and shape do not have");
      }
      if (!places_.emplace(spec.id, bundle_.tensors_.size()).second) return Fail("a tensor is there twice");
      bundle_.tensors_.push_back(std::move(spec));
    }
    return true;
  }

  bool Ids(const Json& ids, const char* what, std::vector<int>* places) {
    if (!ids.is(Json::Type::kArray)) return Fail(std::string("the plan has no list of ") + what);
    for (const Json& id : ids.items()) {
      const auto place = id.IsInteger(0, kMostUnits) ? places_.find(static_cast<int>(id.integer())) : places_.end();
      if (place == places_.end()) return Fail(std::string("one of the ") + what + " is no tensor of the plan");
      places->push_back(place->second);
    }
    return true;
  }

  bool Processors(const Json& processors) {
    for (const Json& processor : processors.items()) {
      const std::string& accelerator = processor["accelerator"].text();
      if (processor["name"].text().empty() || !Contains({"cpu", "gpu", "npu"}, accelerator)) {
        return Fail("expected processors with a name and the accelerator cpu, gpu or npu");
      }
      bundle_.processors_.push_back({processor["name"].text(), accelerator});
    }
    return !bundle_.processors_.empty() || Fail("the plan names no processor");
  }

  bool Units(const Json& units) {
    if (units.items().empty() || units.items().size() > kMostUnits) return Fail("the plan has no units");
    maker_.assign(bundle_.tensors_.size(), -1);
    std::int64_t begin = 0;
    for (const Json& unit : units.items()) {
      const std::vector<Json>& range = unit["operators"].items();
      const std::string which = "unit " + std::to_string(bundle_.units_);
      if (range.size() != 2 || !range[0].IsInteger(begin, begin) || !range[1].IsInteger(begin + 1, bundle_.operators_)) {
        return Fail(which + " does not begin with the operator behind the last unit's, or has none");
      }
      begin = range[1].integer();
      std::vector<int> outputs;
      if (!Ids(unit["outputs"], "outputs of a unit", &outputs)) return false;
      for (const int output : outputs) {
        if (maker_[output] >= 0) return Fail(which + " writes a tensor that another unit writes");
        maker_[output] = bundle_.units_;
      }
      ++bundle_.units_;
    }
    return begin == bundle_.operators_ || Fail("the units do not cover the operators");
  }

  bool Pieces(const Json& pieces) {
    if (pieces.items().size() > kMostListed) return Fail("the plan has too many pieces");
    for (const Json& piece : pieces.items()) {
      const std::string which = "piece " + std::to_string(bundle_.pieces_.size());
      const std::vector<Json>& range = piece["units"].items();
      if (range.size() != 2 || !range[0].IsInteger(0, bundle_.units_ - 1) ||
          !range[1].IsInteger(range[0].integer() + 1, bundle_.units_) || !piece["bytes"].IsInteger(1, kMost)) {
        return Fail(which + " is incomplete");
      }
      PieceSpec spec{};
      spec.begin = static_cast<int>(range[0].integer());
      spec.end = static_cast<int>(range[1].integer());
      spec.bytes = static_cast<std::size_t>(piece["bytes"].integer());
      spec.sha256 = piece["sha256"].text();
      if (!Ids(piece["inputs"], "inputs of a piece", &spec.inputs) ||
          !Ids(piece["outputs"], "outputs of a piece", &spec.outputs)) {
        return false;
      }
      if (!Place(piece, which, &spec)) return false;
      for (const ProcessorSpec& processor : bundle_.processors_) {
        const Json& latency = piece["latency_us"][processor.name];
        if (!latency.is(Json::Type::kNumber)) continue;
        if (!(latency.number() >= 0 && latency.number() < kMostMicros)) return Fail(which + " has a latency that is none");
        spec.latency_us[processor.name] = latency.number();
      }
      bundle_.pieces_.push_back(std::move(spec));
    }
    return true;
  }

  // Where the bytes of a piece lie: within the file, or in a file of the folder and not outside of it.
  bool Place(const Json& piece, const std::string& which, PieceSpec* spec) {
    if (bundle_.file_ != nullptr) {
      const std::int64_t size = static_cast<std::int64_t>(bundle_.file_->size());
      if (!piece["offset"].IsInteger(0, size) || static_cast<std::int64_t>(spec->bytes) > size - piece["offset"].integer()) {
        return Fail(which + " lies outside of the file, which has " + std::to_string(size) + " bytes: it is cut short");
      }
      spec->offset = piece["offset"].integer();
      return true;
    }
    spec->file = piece["file"].text();
    if (spec->file.empty() || spec->file[0] == '/' || spec->file.find("..") != std::string::npos ||
        spec->file.find('\0') != std::string::npos) {
      return Fail(which + " has no file in the bundle's folder");
    }
    return true;
  }

  // Whether some row of pieces leads from the first unit to the last, and each piece finds what it reads.
  bool Connected() {
    std::vector<char> reached(bundle_.units_ + 1, 0);
    reached[0] = 1;
    std::vector<const PieceSpec*> sorted;
    for (const PieceSpec& piece : bundle_.pieces_) sorted.push_back(&piece);
    std::sort(sorted.begin(), sorted.end(), [](const PieceSpec* a, const PieceSpec* b) { return a->begin < b->begin; });
    for (const PieceSpec* piece : sorted) {
      if (reached[piece->begin] && !piece->latency_us.empty()) reached[piece->end] = 1;
    }
    if (!reached[bundle_.units_]) return Fail("the pieces do not lead from the first unit to the last");
    return Readable();
  }

  // Whatever row of pieces a request takes, each tensor must be there when a piece reads it: where a piece covers the unit that
  // makes a tensor and does not write it, the tensor is only certain before the end of that piece.
  bool Readable() {
    const int units = bundle_.units_;
    std::vector<int> from(maker_.size()), until(maker_.size(), units + 1);
    for (std::size_t i = 0; i < maker_.size(); ++i) from[i] = maker_[i] < 0 ? units + 1 : maker_[i] + 1;
    for (const int input : bundle_.inputs_) from[input] = 0, maker_[input] = -1;
    for (const PieceSpec& piece : bundle_.pieces_) {
      if (piece.latency_us.empty()) continue;
      std::vector<char> writes(maker_.size(), 0);
      for (const int output : piece.outputs) {
        if (maker_[output] < piece.begin || maker_[output] >= piece.end) {
          return Fail("a piece writes a tensor that none of its units makes");
        }
        writes[output] = 1;
      }
      for (std::size_t i = 0; i < maker_.size(); ++i) {
        const bool makes = maker_[i] >= piece.begin && maker_[i] < piece.end;
        if (makes && !writes[i]) until[i] = std::min(until[i], piece.end);
      }
    }
    const auto certain = [&](int tensor, int unit) { return from[tensor] <= unit && unit < until[tensor]; };
    for (const PieceSpec& piece : bundle_.pieces_) {
      for (const int input : piece.inputs) {
        if (!certain(input, piece.begin)) return Fail("a piece reads a tensor that need not have been written before");
      }
    }
    for (const int output : bundle_.outputs_) {
      if (!certain(output, units)) return Fail("an output of the model need not be written by any piece");
    }
    return true;
  }

  Bundle& bundle_;
  std::string& error_;
  std::map<int, int> places_;  // of tensors, by id
  std::vector<int> maker_;     // the unit that writes a tensor, or -1
};

bool ReadPlan(std::string_view text, Bundle* bundle, std::string* error) { return PlanReader(bundle, error).Read(text); }

}  // namespace lite
}  // namespace tf_ext
