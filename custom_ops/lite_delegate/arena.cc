#include "custom_ops/lite_delegate/arena.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "custom_ops/lite_delegate/litert.h"

namespace tf_ext {
namespace lite {
namespace {

constexpr std::size_t kMostSpare = 64;
// Vector kernels read past the end of a tensor.
constexpr std::size_t kReadPastEnd = 64;

std::size_t Rounded(std::size_t size) {
  return (size + kReadPastEnd + kLiteRtAlignment - 1) / kLiteRtAlignment * kLiteRtAlignment;
}

}  // namespace

void Arena::Free::operator()(void* block) const { std::free(block); }

Arena::Arena(const std::vector<std::size_t>& sizes) : size_(0) {
  for (const std::size_t size : sizes) size_ += Rounded(size);
  // A piece may leave a tensor unwritten where its bundle is wrong: then it is zero, and not what another request left. Cleared
  // memory comes from the system untouched, and tensors that no piece uses never take any.
  block_.reset(std::calloc(1, size_ + 2 * kLiteRtAlignment));
  if (block_ == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
  begin_ = static_cast<char*>(block_.get()) + (kLiteRtAlignment - address % kLiteRtAlignment) % kLiteRtAlignment;
  char* next = begin_;
  for (const std::size_t size : sizes) {
    places_.push_back(next);
    next += Rounded(size);
  }
}

void Arena::CopyFrom(const Arena& other) { std::memcpy(begin_, other.begin_, size_); }

std::unique_ptr<Arena> Arenas::Take() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty()) {
      std::unique_ptr<Arena> arena = std::move(spare_.back());
      spare_.pop_back();
      return arena;
    }
  }
  return std::make_unique<Arena>(sizes_);
}

void Arenas::Give(std::unique_ptr<Arena> arena) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (arena != nullptr && spare_.size() < kMostSpare) spare_.push_back(std::move(arena));
}

}  // namespace lite
}  // namespace tf_ext
