#include "custom_ops/lite_delegate/program_cache.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "custom_ops/lite_delegate/bundle.h"
#include "custom_ops/lite_delegate/sha256.h"

namespace tf_ext {
namespace lite {
namespace {

namespace files = std::filesystem;

constexpr char kSeal[] = ".sha256";

files::path SealOf(const files::path& file) { return file.string() + kSeal; }

std::vector<files::path> Programs(const std::string& folder) {
  std::vector<files::path> found;
  std::error_code error;
  files::recursive_directory_iterator at(folder, error);
  while (!error && at != files::recursive_directory_iterator()) {
    if (at->is_regular_file(error) && at->path().extension() != kSeal) found.push_back(at->path());
    at.increment(error);
  }
  return found;
}

// Empty where it cannot be read.
std::string ChecksumOf(const files::path& file) {
  std::string error;
  const std::shared_ptr<const Bytes> bytes = Bytes::Map(file.string(), &error);
  return bytes == nullptr ? "" : Sha256(bytes->data(), bytes->size());
}

std::string Sealed(const files::path& file) {
  std::ifstream seal(SealOf(file));
  std::string checksum;
  seal >> checksum;
  return checksum;
}

// Whole or not at all, whatever other processes do.
void Write(const files::path& target, const std::string& text) {
  const files::path part = target.string() + "." + std::to_string(getpid()) + kSeal;
  std::error_code error;
  const bool written = static_cast<bool>(std::ofstream(part) << text << std::flush);
  if (written) files::rename(part, target, error);
  if (!written || error) files::remove(part, error);
}

}  // namespace

ProgramCache::ProgramCache(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  files::create_directories(folder_, error);  // LiteRT keeps nothing where there is no folder, and does not say so
  for (const files::path& file : Programs(folder_)) {
    const std::string checksum = ChecksumOf(file);
    if (!checksum.empty() && checksum == Sealed(file)) continue;
    files::remove(file, error);
    files::remove(SealOf(file), error);
  }
}

void ProgramCache::Seal() const {
  if (folder_.empty()) return;
  for (const files::path& file : Programs(folder_)) {
    std::error_code none, error;
    const files::file_time_type sealed = files::last_write_time(SealOf(file), none);
    if (!none && sealed > files::last_write_time(file, error)) continue;
    const std::string checksum = ChecksumOf(file);
    if (!checksum.empty()) Write(SealOf(file), checksum + "\n");
  }
}

}  // namespace lite
}  // namespace tf_ext
