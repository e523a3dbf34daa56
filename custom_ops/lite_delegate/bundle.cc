#include "custom_ops/lite_delegate/bundle.h"

#include <sys/stat.h>

#include <cstring>

#include "custom_ops/lite_delegate/plan_reader.h"
#include "custom_ops/lite_delegate/sha256.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr char kMagic[] = "TFXLITE1";
constexpr std::size_t kHeader = 16;

}  // namespace

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
  if (ReadPlan({bytes->data(), bytes->size()}, bundle.get(), error)) {
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
  if (!ReadPlan({file->data() + kHeader, static_cast<std::size_t>(length)}, bundle.get(), error)) return nullptr;
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
