// SHA-256 (FIPS 180-4), by which a bundle's pieces are told from damaged ones.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHA256_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHA256_H_

#include <cstddef>
#include <string>

namespace tf_ext {
namespace lite {

// In lower-case hexadecimal digits.
std::string Sha256(const void* data, std::size_t size);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_SHA256_H_
