// A bundle, opened: its plan, and the bytes of its pieces. docs/design/lite.md describes the format.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_BUNDLE_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_BUNDLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "custom_ops/lite_delegate/json.h"
#include "custom_ops/lite_delegate/tf_ext_lite.h"

namespace tf_ext {
namespace lite {

// Bytes that are mapped from a file, or that the caller keeps.
class Bytes {
 public:
  Bytes(const void* data, std::size_t size) : data_(data), size_(size) {}
  Bytes(const Bytes&) = delete;
  ~Bytes();

  // Null, with the reason, where the file cannot be mapped. A negative length: to the end of the file.
  static std::shared_ptr<const Bytes> Map(const std::string& path, std::string* error);
  static std::shared_ptr<const Bytes> Map(int fd, std::int64_t offset, std::int64_t length, std::string* error);

  const char* data() const { return static_cast<const char*>(data_); }
  std::size_t size() const { return size_; }

 private:
  const void* data_;
  std::size_t size_;
  void* mapped_ = nullptr;
  std::size_t mapped_size_ = 0;
};

struct TensorSpec {
  int id;
  std::string name;
  std::string type;  // numpy's name
  std::vector<std::int32_t> shape;
  std::size_t bytes;
};

struct PieceSpec {
  int begin, end;  // units
  std::string file;
  std::int64_t offset;
  std::size_t bytes;
  std::string sha256;
  std::vector<int> inputs, outputs;         // indices into Bundle::tensors
  std::map<std::string, double> latency_us;  // by processor; absent where it does not run there
};

struct ProcessorSpec {
  std::string name, accelerator;
};

class Bundle {
 public:
  // Of the three, null where the bundle cannot be read; `status` and `error` say why.
  static std::unique_ptr<Bundle> Open(const std::string& path, TfExtLiteStatus* status, std::string* error);
  static std::unique_ptr<Bundle> Open(std::shared_ptr<const Bytes> file, TfExtLiteStatus* status, std::string* error);

  const std::string& name() const { return name_; }
  int units() const { return units_; }
  int operators() const { return operators_; }
  int graph_tensors() const { return graph_tensors_; }
  std::uint32_t codes_crc32() const { return codes_crc32_; }
  // CRC-32 over the constants of the model's first graph, in the order of their tensors: the tensor's index (4 bytes) and its size
  // (8 bytes, both little endian), its first 64 bytes and its last 64, or all of both where it has fewer. It tells a model from
  // one that was trained anew. -1: the bundle does not tell.
  std::int64_t constants_crc32() const { return constants_crc32_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const std::vector<int>& inputs() const { return inputs_; }    // indices into tensors()
  const std::vector<int>& outputs() const { return outputs_; }
  const std::vector<PieceSpec>& pieces() const { return pieces_; }
  const std::vector<ProcessorSpec>& processors() const { return processors_; }

  // The sub-model of a piece, its checksum compared. It stays mapped as long as the result lives; `size` tells its length. Null,
  // with the reason, where it is damaged.
  std::shared_ptr<const char> Load(int piece, std::string* error) const;

 private:
  friend class PlanReader;

  std::string folder_;                 // of a bundle in a folder
  std::shared_ptr<const Bytes> file_;  // of one in a single file
  std::string name_;
  int units_ = 0, operators_ = 0, graph_tensors_ = 0;
  std::uint32_t codes_crc32_ = 0;
  std::int64_t constants_crc32_ = -1;
  std::vector<TensorSpec> tensors_;
  std::vector<int> inputs_, outputs_;
  std::vector<PieceSpec> pieces_;
  std::vector<ProcessorSpec> processors_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_BUNDLE_H_
