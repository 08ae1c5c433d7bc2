// raw_tensor.cpp - reads the dtype and the shape of a raw file from its name.
#include <algorithm>
#include <charconv>
#include <vector>

#include "base/messages.hpp"
#include "convgrad/error.hpp"
#include "files/npy_parse.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

// These are numpy's names of what can be compared and looked at, but not computed with.
constexpr struct {
  std::string_view name;
  char kind;
  std::int64_t bytes;
} kOthers[] = {{"bool", 'b', 1},   {"int8", 'i', 1},   {"int16", 'i', 2},
               {"int32", 'i', 4},  {"int64", 'i', 8},  {"uint8", 'u', 1},
               {"uint16", 'u', 2}, {"uint32", 'u', 4}, {"uint64", 'u', 8}};

void set_dtype(NpyHeader& header, std::string_view name, const std::string& argument) {
  if (const auto dtype = stored_dtype_from_name(name)) {
    header.dtype = dtype;
    header.kind = *dtype == DType::bf16 ? 'V' : 'f';
    header.item_bytes = dtype_bytes(*dtype);
    return;
  }
  std::vector<std::string> names = {"float16", "bfloat16", "float32", "float64"};
  for (const auto& other : kOthers) {
    if (name == other.name) {
      header.kind = other.kind;
      header.item_bytes = other.bytes;
      return;
    }
    names.emplace_back(other.name);
  }
  misuse(argument, ": '", name, "' is no dtype, expected FILE:DTYPE[EXTENTS]",
         " such as x.bin:float32[8,56,56,64]", did_you_mean(std::string(name), names));
}

// Reads "8,56,56,64", with blanks; "" is an array of one element without axes.
std::vector<std::int64_t> extents_of(std::string_view list, const std::string& argument) {
  std::vector<std::int64_t> shape;
  const auto refuse = [&] {
    misuse(argument, ": [", list, "] is no shape, expected whole numbers ",
           "from 0 to 2^63 - 1 with commas between them: [8,56,56,64]");
  };
  const bool any = list.find_first_not_of(' ') != list.npos;
  for (std::size_t begin = 0; any && begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    std::string_view word = list.substr(begin, comma - begin);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    std::int64_t extent = -1;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), extent);
    if (status != std::errc() || end != word.data() + word.size() || extent < 0) refuse();
    shape.push_back(extent);
    begin = comma + 1;
  }
  return shape;
}

}  // namespace

bool looks_like_raw(std::string_view text) {
  const std::size_t bracket = text.find('[');
  // A folder's name may have brackets, but a shape has no slash.
  return bracket != text.npos && bracket > 0 && text.ends_with(']') &&
         text.find_first_of("/]") == text.size() - 1;
}

NpyHeader raw_header(std::string_view text, const std::string& argument) {
  NpyHeader header;
  header.major = 0;
  header.minor = 1;
  const std::size_t bracket = text.find('[');
  std::string_view name = text.substr(0, bracket);
  header.descr = name;
  header.big_endian = name.starts_with('>');
  if (name.starts_with('>') || name.starts_with('<')) name.remove_prefix(1);
  set_dtype(header, name, argument);
  header.shape = extents_of(text.substr(bracket + 1, text.size() - bracket - 2), argument);
  npy::count_elements(header, argument);
  return header;
}

}  // namespace convgrad
