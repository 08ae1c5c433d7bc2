// xml_text.cpp - see xml_text.hpp.
#include "report/xml_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

// What XML 1.0 can hold: https://www.w3.org/TR/xml/#charsets
bool is_xml_character(std::uint32_t c) {
  if (c < 0x20) return c == '\t' || c == '\n' || c == '\r';
  return c < 0xd800 || (c > 0xdfff && c < 0xfffe) || (c > 0xffff && c < 0x110000);
}

// The character at the beginning of text, and its bytes; 0 bytes if that is no UTF-8.
std::pair<std::uint32_t, std::size_t> decoded(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {0, 0};
  std::uint32_t c = first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    c = c << 6 | (byte(i) & 0x3fu);
  }
  static constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[size]) return {0, 0};  // not the shortest spelling
  return {c, size};
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto [c, size] = decoded(text);
    if (size == 0 || !is_xml_character(c)) {
      result += "\xef\xbf\xbd";
    } else if (c == '&' || c == '<' || c == '>' || c == '"' || c < 0x20) {
      result += cat("&#", c, ";");  // line ends too: an attribute would make them spaces
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return result;
}

}  // namespace convgrad::cli
