#include "custom_ops/lite_delegate/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tf_ext {
namespace lite {
namespace {

// Damaged text must exhaust neither the stack nor the memory: a value takes some hundred bytes, and two of text make one.
constexpr int kDeepest = 32;
constexpr std::size_t kLongest = std::size_t{64} << 20;
constexpr int kMostValues = 1 << 22;

// How many bytes the character that begins here has; 0 where it is no UTF-8 (RFC 3629).
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than need be, half of a pair, or beyond the last character.
  const bool wrong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) || (first == 0xF0 && byte(1) < 0x90) ||
                     (first == 0xF4 && byte(1) > 0x8F);
  return wrong ? 0 : length;
}

void AppendUtf8(unsigned code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += static_cast<char>(0xC0 | code >> 6);
    *out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    *out += static_cast<char>(0xE0 | code >> 12);
    *out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    *out += static_cast<char>(0xF0 | code >> 18);
    *out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    *out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  bool Read(Json* value, std::string* error) {
    bool good = text_.size() <= kLongest ? Value(value, 0) : Fail("at most 64 MiB");
    if (good) {
      Skip();
      if (at_ != text_.size()) good = Fail("nothing more");
    }
    if (!good) *error = "expected " + expected_ + " at byte " + std::to_string(at_);
    return good;
  }

 private:
  bool Fail(const char* expected) {
    expected_ = expected;
    return false;
  }

  void Skip() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != '\0') ++at_;
  }

  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool Word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Fail("a value");
    at_ += word.size();
    return true;
  }

  bool Value(Json* value, int depth) {
    if (depth > kDeepest) return Fail("fewer levels");
    if (++values_ > kMostValues) return Fail("fewer values");
    Skip();
    if (at_ >= text_.size()) return Fail("a value");
    switch (text_[at_]) {
      case '{': return Object(value, depth);
      case '[': return Array(value, depth);
      case '"': value->type_ = Json::Type::kString; return String(&value->text_);
      case 't': value->type_ = Json::Type::kBool; value->number_ = 1; return Word("true");
      case 'f': value->type_ = Json::Type::kBool; return Word("false");
      case 'n': return Word("null");
      default: value->type_ = Json::Type::kNumber; return Number(&value->number_);
    }
  }

  bool Object(Json* value, int depth) {
    value->type_ = Json::Type::kObject;
    ++at_;
    if (Take('}')) return true;
    do {
      Skip();
      value->names_.emplace_back();
      if (at_ >= text_.size() || text_[at_] != '"') return Fail("a name in quotes");
      if (!String(&value->names_.back())) return false;
      if (!Take(':')) return Fail("':'");
      value->items_.emplace_back();
      if (!Value(&value->items_.back(), depth + 1)) return false;
    } while (Take(','));
    if (!Take('}')) return Fail("',' or '}'");
    // Readers differ in which of two they take.
    std::vector<std::string_view> sorted(value->names_.begin(), value->names_.end());
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() || Fail("no name twice");
  }

  bool Array(Json* value, int depth) {
    value->type_ = Json::Type::kArray;
    ++at_;
    if (Take(']')) return true;
    do {
      value->items_.emplace_back();
      if (!Value(&value->items_.back(), depth + 1)) return false;
    } while (Take(','));
    return Take(']') || Fail("',' or ']'");
  }

  bool Hex(unsigned* code) {
    *code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) return Fail("four hexadecimal digits");
      *code = *code << 4 | static_cast<unsigned>(digit);
    }
    return true;
  }

  bool Escape(std::string* out) {
    const char c = at_ < text_.size() ? text_[at_++] : ' ';
    static constexpr char kFrom[] = "\"\\/bfnrt", kTo[] = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
      unsigned code, low;
      if (!Hex(&code)) return false;
      if (code >= 0xDC00 && code < 0xE000) return Fail("the first half of a character");
      if (code >= 0xD800 && code < 0xDC00) {
        if (at_ > text_.size() || text_.substr(at_, 2) != "\\u") return Fail("the second half of a character");
        at_ += 2;
        if (!Hex(&low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return Fail("the second half of a character");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      AppendUtf8(code, out);
      return true;
    }
    const char* found = c == '\0' ? nullptr : std::strchr(kFrom, c);
    if (found == nullptr) return Fail("an escape");
    *out += kTo[found - kFrom];
    return true;
  }

  bool String(std::string* out) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      const std::size_t length = Utf8Length(text_.substr(at_));
      if (length == 0) return Fail("UTF-8");
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return Fail("no control character");
      if (text_[at_] != '\\') {
        out->append(text_, at_, length);
        at_ += length;
        continue;
      }
      ++at_;
      if (!Escape(out)) return false;
    }
    if (at_ >= text_.size()) return Fail("the end of a string");
    ++at_;
    return true;
  }

  bool Digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ > begin || Fail("a digit");
  }

  bool Number(double* number) {
    const size_t begin = at_;
    if (text_[at_] == '-') ++at_;
    const size_t first = at_;
    if (!Digits()) return false;
    if (text_[first] == '0' && at_ > first + 1) return Fail("no leading zero");
    if (at_ < text_.size() && text_[at_] == '.' && (++at_, !Digits())) return false;
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!Digits()) return false;
    }
    // The locale's decimal point is the app's affair: strtod is told of digits and a dot only in the "C" locale, so that what
    // it does not read to its end is scaled by hand.
    const std::string token(text_.substr(begin, at_ - begin));
    char* end = nullptr;
    *number = std::strtod(token.c_str(), &end);
    if (*end == '.') {
      std::string comma = token;
      comma[end - token.c_str()] = ',';
      *number = std::strtod(comma.c_str(), nullptr);
    }
    return std::isfinite(*number) || Fail("a number in range");
  }

  std::string_view text_;
  size_t at_ = 0;
  int values_ = 0;
  std::string expected_;
};

bool Json::Parse(std::string_view text, Json* value, std::string* error) {
  *value = Json();
  return JsonReader(text).Read(value, error);
}

const Json& Json::operator[](std::string_view name) const {
  static const Json* const nothing = new Json();
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return items_[i];
  }
  return *nothing;
}

bool Json::IsInteger(std::int64_t least, std::int64_t most) const {
  // Doubles hold whole numbers exactly up to 2^53, and no size of a bundle comes near it.
  return type_ == Type::kNumber && std::floor(number_) == number_ && std::fabs(number_) < 9e15 &&
         integer() >= least && integer() <= most;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = Utf8Length(text.substr(i));
    const char c = text[i];
    if (length == 0) {  // what systems and drivers tell need not be UTF-8
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out.append(text, i, length);
    }
    i += std::max<std::size_t>(length, 1);
  }
  return out + '"';
}

}  // namespace lite
}  // namespace tf_ext
