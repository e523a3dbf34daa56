// Programs that LiteRT keeps in a folder, guarded against damage: what reads them in drivers trusts every byte, and a damaged one
// ends the process.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_CACHE_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_CACHE_H_

#include <string>

namespace tf_ext {
namespace lite {

// Each file has its checksum beside it. Several processes may use a folder: what one writes while another seals is dropped at the
// next start, and compiled anew.
class ProgramCache {
 public:
  // Makes the folder if need be, and removes what is damaged, or was never sealed because a process ended too soon. An empty
  // name: nothing is kept.
  explicit ProgramCache(std::string folder);

  const std::string& folder() const { return folder_; }
  // Writes the checksums of files that are new, or were written again.
  void Seal() const;

 private:
  const std::string folder_;
};

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_PROGRAM_CACHE_H_
