// Files mapped into memory.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "custom_ops/lite_delegate/bundle.h"

namespace tf_ext {
namespace lite {

Bytes::~Bytes() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
}

std::shared_ptr<const Bytes> Bytes::Map(const std::string& path, std::string* error) {
  // Of a pipe nobody need ever write the other end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    *error = path + " cannot be read: " + std::strerror(errno);
    return nullptr;
  }
  std::shared_ptr<const Bytes> bytes = Map(fd, 0, -1, error);
  close(fd);
  if (bytes == nullptr) *error = path + ": " + *error;
  return bytes;
}

std::shared_ptr<const Bytes> Bytes::Map(int fd, std::int64_t offset, std::int64_t length, std::string* error) {
  struct stat about;
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    *error = "expected an open file";
    return nullptr;
  }
  if (length < 0) length = about.st_size - offset;
  if (offset < 0 || length <= 0 || offset > about.st_size || length > about.st_size - offset) {
    *error = "expected bytes " + std::to_string(offset) + " to " + std::to_string(offset + length) + " of a file of " +
             std::to_string(about.st_size) + " bytes";
    return nullptr;
  }
  // A mapping begins at a page.
  const std::int64_t page = sysconf(_SC_PAGESIZE), before = offset % page;
  const std::size_t size = static_cast<std::size_t>(length + before);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, offset - before);
  if (mapped == MAP_FAILED) {
    *error = std::string("cannot be mapped into memory: ") + std::strerror(errno);
    return nullptr;
  }
  auto bytes = std::make_shared<Bytes>(static_cast<const char*>(mapped) + before, static_cast<std::size_t>(length));
  bytes->mapped_ = mapped;
  bytes->mapped_size_ = size;
  return bytes;
}

}  // namespace lite
}  // namespace tf_ext
