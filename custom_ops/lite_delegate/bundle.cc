#include "custom_ops/lite_delegate/bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "custom_ops/lite_delegate/sha256.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr char kMagic[] = "TFXLITE1";
constexpr std::size_t kHeader = 16;
constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of bytes, and of nothing else as many
constexpr int kMostUnits = 1 << 20;
constexpr double kMostMicros = 1e12;

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Reads a plan, and checks all that the engine relies on: a bundle may be damaged, or made by another program.
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
    return true;
  }

  bool Tensors(const Json& tensors) {
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
    bundle_.units_ = static_cast<int>(units.items().size());
    return true;
  }

  bool Pieces(const Json& pieces) {
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

  // Each tensor that a piece reads must be an input of the model, or be written by all pieces that end with its maker: the unit
  // from which on it is there is that of the piece that writes it and begins last.
  bool Readable() {
    std::vector<int> made(bundle_.tensors_.size(), bundle_.units_ + 1);
    for (const int input : bundle_.inputs_) made[input] = 0;
    for (const PieceSpec& piece : bundle_.pieces_) {
      for (const int output : piece.outputs) made[output] = std::min(made[output], piece.end);
    }
    for (const PieceSpec& piece : bundle_.pieces_) {
      for (const int input : piece.inputs) {
        if (made[input] > piece.begin) return Fail("a piece reads a tensor that none before it writes");
      }
    }
    for (const int output : bundle_.outputs_) {
      if (made[output] > bundle_.units_) return Fail("an output of the model is written by no piece");
    }
    return true;
  }

  Bundle& bundle_;
  std::string& error_;
  std::map<int, int> places_;  // of tensors, by id
};

std::unique_ptr<Bundle> Bundle::Open(const std::string& path, TfExtLiteStatus* status, std::string* error) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) {
    *status = kTfExtLiteNotFound;
    *error = "There is no bundle " + path + ". Make it with: tf-ext lite bundle MODEL.tflite " + path;
    return nullptr;
  }
  std::shared_ptr<const Bytes> bytes;
  if (!S_ISDIR(about.st_mode)) {
    *status = kTfExtLiteDataLoss;
    bytes = Bytes::Map(path, error);
    if (bytes == nullptr) return nullptr;
    std::unique_ptr<Bundle> bundle = Open(std::move(bytes), status, error);
    if (bundle == nullptr) *error = path + ": " + *error;
    return bundle;
  }
  *status = kTfExtLiteDataLoss;
  bytes = Bytes::Map(path + "/plan.json", error);
  if (bytes == nullptr) return nullptr;
  auto bundle = std::make_unique<Bundle>();
  bundle->folder_ = path;
  if (PlanReader(bundle.get(), error).Read({bytes->data(), bytes->size()})) {
    *status = kTfExtLiteOk;
    return bundle;
  }
  *error = path + "/plan.json: " + *error;
  return nullptr;
}

std::unique_ptr<Bundle> Bundle::Open(std::shared_ptr<const Bytes> file, TfExtLiteStatus* status, std::string* error) {
  *status = kTfExtLiteDataLoss;
  if (file->size() < kHeader || std::memcmp(file->data(), kMagic, 8) != 0) {
    *error = "expected a bundle, which begins with TFXLITE1; this is another file, or cut short";
    return nullptr;
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(file->data()[8 + i]);
  if (length > file->size() - kHeader) {
    *error = "expected a plan of " + std::to_string(length) + " bytes, but the file has only " +
             std::to_string(file->size()) + ": it is cut short";
    return nullptr;
  }
  auto bundle = std::make_unique<Bundle>();
  bundle->file_ = file;
  if (!PlanReader(bundle.get(), error).Read({file->data() + kHeader, static_cast<std::size_t>(length)})) return nullptr;
  *status = kTfExtLiteOk;
  return bundle;
}

std::shared_ptr<const char> Bundle::Load(int index, std::string* error) const {
  const PieceSpec& piece = pieces_[index];
  std::shared_ptr<const Bytes> bytes = file_;
  std::int64_t offset = piece.offset;
  if (bytes == nullptr) {
    bytes = Bytes::Map(folder_ + "/" + piece.file, error);
    if (bytes == nullptr) return nullptr;
    offset = 0;
    if (bytes->size() != piece.bytes) {
      *error = folder_ + "/" + piece.file + " was expected to have " + std::to_string(piece.bytes) + " bytes, but has " +
               std::to_string(bytes->size()) + "; make the bundle anew";
      return nullptr;
    }
  }
  const char* data = bytes->data() + offset;
  if (Sha256(data, piece.bytes) != piece.sha256) {
    *error = "piece " + std::to_string(index) + " of bundle '" + name_ +
             "' has another checksum than its plan says: it is damaged; make the bundle anew";
    return nullptr;
  }
  return std::shared_ptr<const char>(bytes, data);
}

}  // namespace lite
}  // namespace tf_ext
