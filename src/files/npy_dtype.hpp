// npy_dtype.hpp - the dtypes that a .npy header may hold: which they are, how large, what to say.
//
// Included by npy_header.cpp alone. Every dtype of numpy is understood, so that a message can name
// what a file has; few of them can be computed with.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/checked.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_literal.hpp"

namespace convgrad::npy {

inline constexpr std::int64_t kMaxItemBytes = std::numeric_limits<std::int32_t>::max();  // numpy's

template <typename... Parts>
[[noreturn]] void refuse(std::string_view name, const Parts&... parts) {
  throw Error(ErrorKind::input, name, ": ", parts...);
}

struct ElementType {
  char kind;
  std::int64_t bytes;
  bool big_endian = std::endian::native == std::endian::big;
};

struct TypeName {
  std::string_view name;
  ElementType type;
};

// Names as numpy.dtype() takes them, without a byte order. 'int' and 'long' are those of Linux.
inline constexpr TypeName kTypeNames[] = {
    {"float16", {'f', 2}},       {"half", {'f', 2}},         {"float32", {'f', 4}},
    {"single", {'f', 4}},        {"float64", {'f', 8}},      {"double", {'f', 8}},
    {"float", {'f', 8}},         {"float_", {'f', 8}},       {"float128", {'f', 16}},
    {"longdouble", {'f', 16}},   {"longfloat", {'f', 16}},   {"bfloat16", {'V', 2}},
    {"int8", {'i', 1}},          {"byte", {'i', 1}},         {"int16", {'i', 2}},
    {"short", {'i', 2}},         {"int32", {'i', 4}},        {"intc", {'i', 4}},
    {"int64", {'i', 8}},         {"int", {'i', 8}},          {"int_", {'i', 8}},
    {"intp", {'i', 8}},          {"long", {'i', 8}},         {"longlong", {'i', 8}},
    {"uint8", {'u', 1}},         {"ubyte", {'u', 1}},        {"uint16", {'u', 2}},
    {"ushort", {'u', 2}},        {"uint32", {'u', 4}},       {"uintc", {'u', 4}},
    {"uint64", {'u', 8}},        {"uint", {'u', 8}},         {"uintp", {'u', 8}},
    {"ulong", {'u', 8}},         {"ulonglong", {'u', 8}},    {"bool", {'b', 1}},
    {"bool_", {'b', 1}},         {"complex64", {'c', 8}},    {"csingle", {'c', 8}},
    {"singlecomplex", {'c', 8}}, {"complex128", {'c', 16}},  {"cdouble", {'c', 16}},
    {"cfloat", {'c', 16}},       {"complex", {'c', 16}},     {"complex_", {'c', 16}},
    {"complex256", {'c', 32}},   {"clongdouble", {'c', 32}}, {"clongfloat", {'c', 32}},
    {"longcomplex", {'c', 32}},  {"object", {'O', 8}},       {"object_", {'O', 8}},
    {"str", {'U', 0}},           {"str_", {'U', 0}},         {"unicode_", {'U', 0}},
    {"bytes", {'S', 0}},         {"bytes_", {'S', 0}},       {"string_", {'S', 0}},
    {"void", {'V', 0}},          {"datetime64", {'M', 8}},   {"timedelta64", {'m', 8}},
};

// Codes of one letter, a byte order before them allowed.
inline constexpr TypeName kTypeCodes[] = {
    {"?", {'b', 1}}, {"b", {'i', 1}},  {"B", {'u', 1}}, {"h", {'i', 2}},  {"H", {'u', 2}},
    {"i", {'i', 4}}, {"I", {'u', 4}},  {"l", {'i', 8}}, {"L", {'u', 8}},  {"q", {'i', 8}},
    {"Q", {'u', 8}}, {"p", {'i', 8}},  {"P", {'u', 8}}, {"e", {'f', 2}},  {"f", {'f', 4}},
    {"d", {'f', 8}}, {"g", {'f', 16}}, {"F", {'c', 8}}, {"D", {'c', 16}}, {"G", {'c', 32}},
    {"O", {'O', 8}}, {"S", {'S', 0}},  {"a", {'S', 0}}, {"U", {'U', 0}},  {"V", {'V', 0}},
    {"M", {'M', 8}}, {"m", {'m', 8}},  {"c", {'S', 1}},
};

inline std::optional<ElementType> find_type(std::span<const TypeName> table,
                                            std::string_view name) {
  const auto found = std::ranges::find(table, name, &TypeName::name);
  return found == table.end() ? std::nullopt : std::optional(found->type);
}

// A kind letter and a size in bytes (characters for U): f4, V2, U10.
inline std::optional<ElementType> sized_type(std::string_view text) {
  std::int64_t size = 0;
  for (const char c : text.substr(1)) {
    if (c < '0' || c > '9') return std::nullopt;
    size = size * 10 + (c - '0');
    if (size > kMaxItemBytes) return std::nullopt;
  }
  const auto one_of = [size](std::initializer_list<std::int64_t> sizes) {
    return std::ranges::find(sizes, size) != sizes.end();
  };
  const char kind = text[0] == 'a' ? 'S' : text[0];
  bool legal = false;
  if (kind == 'f') legal = one_of({1, 2, 4, 8, 12, 16});  // f1: a float8 of ml_dtypes
  if (kind == 'i' || kind == 'u') legal = one_of({1, 2, 4, 8});
  if (kind == 'b') legal = size == 1;
  if (kind == 'c') legal = one_of({8, 16, 24, 32});
  if (kind == 'O') legal = one_of({4, 8});
  if (kind == 'M' || kind == 'm') legal = size == 8;
  if (kind == 'S' || kind == 'V') legal = true;
  if (kind == 'U') {
    size *= 4;
    legal = size <= kMaxItemBytes;
  }
  return legal ? std::optional(ElementType{kind, size}) : std::nullopt;
}

inline std::optional<ElementType> type_from_text(std::string_view text) {
  if (const auto named = find_type(kTypeNames, text)) return named;
  const char order = text.empty() ? '\0' : text[0];
  const bool has_order = order == '<' || order == '>' || order == '=' || order == '|';
  if (has_order) text.remove_prefix(1);
  const bool date = text.starts_with('M') || text.starts_with('m') ||
                    text.starts_with("datetime64[") || text.starts_with("timedelta64[");
  const std::size_t unit = text.find('[');
  if (date && unit != text.npos && text.size() > unit + 2 && text.ends_with(']')) {
    text = text.substr(0, unit);
  }
  if (text.empty()) return std::nullopt;
  std::optional<ElementType> type = find_type(kTypeCodes, text);
  if (!type && text.size() > 1) type = sized_type(text);
  if (!type && date && !has_order) type = find_type(kTypeNames, text);
  constexpr bool kNativeBig = std::endian::native == std::endian::big;
  if (type) type->big_endian = order == '>' || (order != '<' && kNativeBig);
  return type;
}

inline ElementType type_from(const Literal& descr, std::string_view source, std::string_view name);

[[noreturn]] inline void refuse_descr(const Literal& descr, std::string_view source,
                                      std::string_view name) {
  refuse(name, "descr is ", printable(source.substr(descr.begin, descr.end - descr.begin)),
         ", which is no dtype, expected one such as '<f4'");
}

// count items of this type; count is an integer or a tuple of them.
inline std::optional<std::int64_t> repeated_bytes(std::int64_t bytes, const Literal& count) {
  const std::span<const Literal> extents =
      count.type == Literal::Type::tuple ? std::span(count.items) : std::span(&count, 1);
  std::optional<std::int64_t> result = bytes;
  for (const Literal& extent : extents) {
    if (extent.type != Literal::Type::integer || !extent.fits || extent.integer < 0)
      return std::nullopt;
    if (result) result = checked_multiply(*result, extent.integer);
  }
  return result;
}

// One field of a structured type: (name, descr) or (name, descr, shape).
inline ElementType field_type(const Literal& field, std::string_view source,
                              std::string_view name) {
  const std::size_t parts = field.items.size();
  const Literal::Type label = parts > 0 ? field.items[0].type : Literal::Type::none;
  const bool labelled = label == Literal::Type::string || label == Literal::Type::tuple;
  if (field.type != Literal::Type::tuple || !labelled || parts < 2 || parts > 3) {
    refuse_descr(field, source, name);
  }
  ElementType type = type_from(field.items[1], source, name);
  if (parts == 3) {
    const auto bytes = repeated_bytes(type.bytes, field.items[2]);
    if (!bytes || *bytes > kMaxItemBytes) refuse_descr(field, source, name);
    type.bytes = *bytes;
  }
  return type;
}

// A string, a list of fields, or (descr, shape). The last two have kind R, or O if objects are in.
inline ElementType type_from(const Literal& descr, std::string_view source, std::string_view name) {
  if (descr.type == Literal::Type::string) {
    const auto type = type_from_text(descr.text);
    if (!type) refuse_descr(descr, source, name);
    return *type;
  }
  ElementType total{'R', 0};
  if (descr.type == Literal::Type::tuple && descr.items.size() == 2) {
    total = type_from(descr.items[0], source, name);
    const auto bytes = repeated_bytes(total.bytes, descr.items[1]);
    if (!bytes || *bytes > kMaxItemBytes) refuse_descr(descr, source, name);
    return {total.kind == 'O' ? 'O' : 'R', *bytes};
  }
  if (descr.type != Literal::Type::list) refuse_descr(descr, source, name);
  for (const Literal& field : descr.items) {
    const ElementType type = field_type(field, source, name);
    if (type.kind == 'O') total.kind = 'O';
    total.bytes += type.bytes;
    if (total.bytes > kMaxItemBytes) refuse_descr(descr, source, name);
  }
  return total;
}

inline std::string type_description(const NpyHeader& header) {
  const std::int64_t bytes = header.item_bytes;
  const char kind = header.kind;
  if (kind == 'f') return cat("float", bytes * 8, bytes > 8 ? " (long double)" : "");
  if (kind == 'i') return cat("int", bytes * 8);
  if (kind == 'u') return cat("uint", bytes * 8);
  if (kind == 'b') return "bool";
  if (kind == 'c') return cat("complex", bytes * 8);
  if (kind == 'S') return cat("strings of ", bytes, " bytes");
  if (kind == 'U') return cat("strings of ", bytes / 4, " characters");
  if (kind == 'M') return "dates (datetime64)";
  if (kind == 'm') return "time differences (timedelta64)";
  if (kind == 'O') return "Python objects (pickled objects are never loaded)";
  if (kind == 'R') return cat("a structured type of ", bytes, " bytes");
  return cat("raw bytes (void), ", bytes, " per element");
}

// Without a flag, what every command takes.
inline std::string type_advice(const NpyHeader& header, std::string_view flag) {
  if (header.kind == 'u' && header.item_bytes == 2) {
    return cat("if it is bfloat16, ", flag.empty() ? "save x.view('V2')" : "say so with ", flag,
               ", else convert with x.astype('float32')");
  }
  if ((header.kind == 'u' || header.kind == 'V') && header.item_bytes == 1) {
    if (!flag.empty()) {
      return cat("if these are 8-bit floats, say which with ", flag, ", such as float8_e4m3fn");
    }
    return "if these are 8-bit floats, convert with "
           "x.view(ml_dtypes.float8_e4m3fn).astype('float32')";
  }
  if (header.kind == 'c') return "save x.real or x.imag";
  if (header.kind == 'R') return "save one field, x['name']";
  if (header.kind == 'V') return "bfloat16 is saved as '<V2'";
  return "convert with x.astype('float32')";
}

}  // namespace convgrad::npy
