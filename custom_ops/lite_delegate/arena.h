// Memory for the tensors of one request.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ARENA_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ARENA_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tf_ext {
namespace lite {

// One block that holds all tensors of a model, each aligned as LiteRT wants it.
class Arena {
 public:
  explicit Arena(const std::vector<std::size_t>& sizes);

  void* at(std::size_t tensor) const { return places_[tensor]; }
  void CopyFrom(const Arena& other);

 private:
  struct Free {
    void operator()(void* block) const;
  };
  std::unique_ptr<void, Free> block_;
  char* begin_ = nullptr;
  std::size_t size_;
  std::vector<void*> places_;
};

// Blocks that requests of one model take turns with: as many as have ever been under way at once, up to a number.
class Arenas {
 public:
  explicit Arenas(std::vector<std::size_t> sizes) : sizes_(std::move(sizes)) {}

  std::unique_ptr<Arena> Take();
  void Give(std::unique_ptr<Arena> arena);

 private:
  const std::vector<std::size_t> sizes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> spare_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_ARENA_H_
