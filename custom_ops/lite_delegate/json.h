// A strict reader of JSON (RFC 8259: UTF-8, no name twice, limits to size, number and depth), for the plans of bundles, and a
// writer of strings for statistics and traces.

#ifndef TF_EXT_CUSTOM_OPS_LITE_DELEGATE_JSON_H_
#define TF_EXT_CUSTOM_OPS_LITE_DELEGATE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tf_ext {
namespace lite {

// A value. What is asked for and is not there, or is of another type, is null, empty or zero: readers check what they need.
class Json {
 public:
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };

  // False, with the reason and the place, where the text is not JSON.
  static bool Parse(std::string_view text, Json* value, std::string* error);

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool boolean() const { return number_ != 0; }
  double number() const { return number_; }
  const std::string& text() const { return text_; }
  const std::vector<Json>& items() const { return items_; }
  const Json& operator[](std::string_view name) const;

  // Whether it is a whole number from `least` to `most`.
  bool IsInteger(std::int64_t least, std::int64_t most) const;
  // 0 where it is too large to be held exactly.
  std::int64_t integer() const { return number_ > -9e15 && number_ < 9e15 ? static_cast<std::int64_t>(number_) : 0; }

 private:
  friend class JsonReader;
  Type type_ = Type::kNull;
  double number_ = 0;
  std::string text_;
  std::vector<Json> items_;                 // of an array; of an object the values
  std::vector<std::string> names_;          // of an object
};

// The text as a JSON string, quotes included.
std::string Quoted(std::string_view text);

}  // namespace lite
}  // namespace tf_ext

#endif  // TF_EXT_CUSTOM_OPS_LITE_DELEGATE_JSON_H_
