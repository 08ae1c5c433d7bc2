// npy_dtype.cpp - reads the dtype strings of .npy headers, and names those that are refused.

#include <bit>
#include <charconv>
#include <utility>

#include "base/messages.hpp"
#include "files/npy_parse.hpp"

namespace convgrad {
namespace {

constexpr std::pair<char, std::string_view> kKinds[] = {
    {'f', "float"},
    {'i', "int"},
    {'u', "uint"},
    {'c', "complex"},
    {'b', "bool"},
    {'V', "raw bytes (void)"},
    {'S', "strings"},
    {'U', "strings"},
    {'M', "dates (datetime64)"},
    {'m', "time differences (timedelta64)"},
    {'O', "Python objects (pickled objects are never loaded)"},
};

bool is_one_of(std::string_view letters, char c) { return letters.find(c) != letters.npos; }

std::string description(const NpyHeader& header) {
  for (const auto& [kind, words] : kKinds) {
    if (kind != header.kind) continue;
    if (is_one_of("fiuc", kind)) return cat(words, header.item_bytes * 8);
    if (kind == 'V') return cat(words, ", ", header.item_bytes, " per element");
    return std::string(words);
  }
  return "a structured type";
}

// Without a flag it advises what every command takes.
std::string advice(const NpyHeader& header, std::string_view flag) {
  if (header.kind == 'u' && header.item_bytes == 2) {
    return cat("if it is bfloat16, ", flag.empty() ? "save x.view('V2')" : "say so with ", flag,
               ", else convert with x.astype('float32')");
  }
  if (is_one_of("uV", header.kind) && header.item_bytes == 1) {
    const std::string other = "convert with x.view(ml_dtypes.float8_e4m3fn).astype('float32')";
    return cat("if these are 8-bit floats, ",
               flag.empty() ? other : cat("say which with ", flag, ", such as float8_e4m3fn"));
  }
  if (header.kind == 'c') return "save x.real or x.imag";
  if (header.kind == 'R') return "save one field, x['name']";
  if (header.kind == 'V') return "bfloat16 is saved as '<V2'";
  return "convert with x.astype('float32')";
}

}  // namespace

namespace npy {

void refuse_dtype(const NpyHeader& header, std::string_view name, std::string_view flag) {
  refuse(name, "dtype '", printable(header.descr), "' is ", description(header),
         ", expected float16, bfloat16, float32, float64 or an 8-bit float (", advice(header, flag),
         ")");
}

void parse_dtype(NpyHeader& header, std::string_view name) {
  std::string_view text = header.descr == "bfloat16" ? "<V2" : std::string_view(header.descr);
  header.big_endian = text.starts_with('>');
  if (text.find_first_of("<>|=") == 0) text.remove_prefix(1);
  header.kind = text.empty() ? '\0' : text[0];
  const std::string_view size = text.substr(text.empty() ? 0 : 1);
  const char* const end = size.data() + size.size();
  unsigned bytes = 0;  // stays 0 for more than it holds, which no writer has
  const bool has_size = std::from_chars(size.data(), end, bytes).ptr == end && bytes > 0;
  header.item_bytes = bytes;
  const bool is_read = header.kind == 'S' || (header.kind == 'b' && bytes == 1) ||
                       (is_one_of("fiuV", header.kind) && bytes <= 8 && std::has_single_bit(bytes));
  if (has_size && is_read) return;  // files of parts have a text, S
  if (is_one_of(has_size ? "fiucVUMmO" : "MmO", header.kind)) refuse_dtype(header, name);
  refuse(name, "damaged header: descr is '", printable(header.descr),
         "', which is no dtype, expected one such as '<f4'");
}

}  // namespace npy

DType float_dtype(const NpyHeader& header, std::string_view name, std::string_view flag) {
  if (header.dtype) return *header.dtype;
  if (header.kind == 'f' && header.item_bytes == 1) return DType::e5m2;  // ml_dtypes' '<f1'
  if (header.kind == 'V' && header.item_bytes == 2) return DType::bf16;
  if (header.kind == 'f' && header.item_bytes == 2) return DType::f16;
  if (header.kind == 'f' && header.item_bytes == 4) return DType::f32;
  if (header.kind == 'f' && header.item_bytes == 8) return DType::f64;
  npy::refuse_dtype(header, name, flag);
}

}  // namespace convgrad
