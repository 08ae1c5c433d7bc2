// npy_header.cpp - the header of a .npy file: magic, version, length, dictionary.

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/array_names.hpp"
#include "files/little_endian.hpp"
#include "files/npy_dtype.hpp"
#include "files/npy_literal.hpp"
#include "files/npy_parse.hpp"

namespace convgrad {
namespace {

using npy::ElementType;
using npy::Literal;
using npy::printable;
using npy::refuse;
using Type = Literal::Type;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxRank = 64;  // numpy 2's limit
constexpr std::string_view kExpectedTypes = "float16, bfloat16, float32, float64 or an 8-bit float";

unsigned byte_at(std::span<const std::byte> bytes, std::size_t index) {
  return std::to_integer<unsigned>(bytes[index]);
}

std::string_view other_format(std::string_view start) {
  static constexpr std::pair<std::string_view, std::string_view> kStarts[] = {
      {"PK\x03\x04", "a zip archive (save it to a file and name one of its arrays, FILE.npz:NAME)"},
      {"\x1f\x8b", "compressed with gzip (pipe it through gunzip)"},
      {"\x28\xb5\x2f\xfd", "compressed with zstd (pipe it through zstdcat)"},
      {"\x89HDF", "an HDF5 file (save the data set with numpy.save)"},
      {"\x80\x02\x8a\x0al\xfc", kTorchFile},  // a pickle of its magic number comes first
      {"\x80", "a Python pickle (save the array with numpy.save)"},
  };
  for (const auto& [prefix, what] : kStarts) {
    if (start.starts_with(prefix)) return what;
  }
  return "not a .npy file (expected one from numpy.save; for elements alone add dtype and shape, "
         "FILE:float32[8,56,56,64])";
}

void check_magic(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.empty()) refuse(name, "is empty, expected a .npy file");
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kMagic.size()));
  if (!kMagic.starts_with(start)) {
    refuse(name, "starts with \"", printable(start), "\", so it is ", other_format(start));
  }
}

struct Entries {
  const Literal* descr = nullptr;
  const Literal* fortran_order = nullptr;
  const Literal* shape = nullptr;
};

Entries find_entries(const Literal& dict, std::string_view source, std::string_view name) {
  if (dict.type != Type::dict) {
    refuse(name, "damaged header: \"", printable(source), "\" is not a dictionary");
  }
  constexpr std::string_view kExpected = "expected the keys descr, fortran_order and shape";
  Entries found;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {  // the last of equal keys counts
    const Literal& key = dict.items[i];
    const std::string_view text = key.type == Type::string ? key.text : std::string_view();
    const Literal** entry = text == "descr"           ? &found.descr
                            : text == "fortran_order" ? &found.fortran_order
                            : text == "shape"         ? &found.shape
                                                      : nullptr;
    if (entry == nullptr) {
      refuse(name, "damaged header: unknown key ",
             printable(source.substr(key.begin, key.end - key.begin)), ", ", kExpected);
    }
    *entry = &dict.items[i + 1];
  }
  const std::string_view missing = found.descr == nullptr           ? "descr"
                                   : found.fortran_order == nullptr ? "fortran_order"
                                   : found.shape == nullptr         ? "shape"
                                                                    : "";
  if (!missing.empty()) refuse(name, "damaged header: no key '", missing, "', ", kExpected);
  return found;
}

std::vector<std::int64_t> shape_from(const Literal& shape, std::string_view source,
                                     std::string_view name) {
  const std::string text = printable(source.substr(shape.begin, shape.end - shape.begin));
  if (shape.type != Type::tuple) {
    refuse(name, "shape is ", text, ", expected a tuple such as (3,) or (2, 3)");
  }
  if (shape.items.size() > kMaxRank) {
    refuse(name, "shape has ", shape.items.size(), " axes, expected at most ", kMaxRank);
  }
  std::vector<std::int64_t> result;
  for (std::size_t axis = 0; axis < shape.items.size(); ++axis) {
    const Literal& extent = shape.items[axis];
    if (extent.type != Type::integer || !extent.fits || extent.integer < 0) {
      refuse(name, "shape is ", text, ", expected integers from 0 to 2^63 - 1; axis ", axis, " is ",
             printable(source.substr(extent.begin, extent.end - extent.begin), 30));
    }
    result.push_back(extent.integer);
  }
  return result;
}

// Latin-1 has no invalid bytes; UTF-8 (format 3.0) has: stray or missing continuation bytes.
bool is_utf8(std::string_view text) {
  int continuation = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) {
      if (--continuation < 0) return false;
      continue;
    }
    if (continuation > 0 || byte == 0xc0 || byte == 0xc1 || byte > 0xf4) return false;
    continuation = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
  }
  return continuation == 0;
}

}  // namespace

namespace npy {

std::int64_t dictionary_offset(std::span<const std::byte> bytes, std::string_view name) {
  check_magic(bytes, name);
  if (bytes.size() < static_cast<std::size_t>(kVersionBytes)) {
    refuse(name, "ends after ", bytes.size(), " bytes, within the .npy header; it is truncated");
  }
  const unsigned major = byte_at(bytes, 6);
  const unsigned minor = byte_at(bytes, 7);
  if (major < 1 || major > 3 || minor != 0) {
    refuse(name, "is .npy format ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  }
  return major == 1 ? 10 : 12;
}

std::int64_t payload_offset(std::span<const std::byte> bytes, std::string_view name) {
  const std::int64_t begin = dictionary_offset(bytes, name);
  if (bytes.size() < static_cast<std::size_t>(begin)) {
    refuse(name, "ends after ", bytes.size(), " bytes, within the .npy header; it is truncated");
  }
  const auto length = static_cast<std::int64_t>(
      little_endian(bytes.first(static_cast<std::size_t>(begin)).subspan(kVersionBytes)));
  if (length > kMaxNpyHeaderBytes) {
    refuse(name, "has a header of ", length, " bytes, expected at most ", kMaxNpyHeaderBytes,
           "; the file is damaged, or a structured array");
  }
  return begin + length;
}

void count_elements(NpyHeader& header, std::string_view name) {
  const std::optional<std::int64_t> count = checked_product(header.shape);
  const auto bytes = count ? checked_multiply(*count, header.item_bytes) : count;
  if (!bytes || !checked_add(*bytes, header.data_offset)) {
    std::string shape;
    for (const std::int64_t extent : header.shape) shape += cat(shape.empty() ? "" : ", ", extent);
    refuse(
        name, "shape (", printable(shape, 100), ") with ", header.item_bytes,
        " bytes per element is more than 2^63 - 1 bytes; ",
        format_name(header) == "raw" ? "correct the shape in the name" : "the header is damaged");
  }
  header.element_count = *count;
  header.payload_bytes = *bytes;
}

void refuse_dtype(const NpyHeader& header, std::string_view name, std::string_view flag) {
  refuse(name, "dtype '", printable(header.descr), "' is ", type_description(header), ", expected ",
         kExpectedTypes, " (", type_advice(header, flag), ")");
}

}  // namespace npy

NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view name) {
  NpyHeader header;
  header.data_offset = npy::payload_offset(bytes, name);
  const auto begin = static_cast<std::size_t>(npy::dictionary_offset(bytes, name));
  const auto end = static_cast<std::size_t>(header.data_offset);
  if (bytes.size() < end) {
    refuse(name, "ends after ", bytes.size(), " bytes, within its header of ", end,
           " bytes; it is truncated");
  }
  header.major = static_cast<int>(byte_at(bytes, 6));
  const std::string_view source(reinterpret_cast<const char*>(bytes.data()) + begin, end - begin);
  if (source.find('\0') != source.npos || (header.major == 3 && !is_utf8(source))) {
    refuse(name, "damaged header: it has bytes that are no text, expected a Python dictionary");
  }
  const Literal dict = npy::parse_literal(source, name, header.major < 3);
  const Entries entries = find_entries(dict, source, name);
  const Literal& descr = *entries.descr;
  const ElementType type = npy::type_from(descr, source, name);
  header.descr = source.substr(descr.begin, descr.end - descr.begin);
  if (descr.type == Type::string) header.descr = descr.text;
  header.kind = type.kind;
  header.item_bytes = type.bytes;
  header.big_endian = type.big_endian;
  if (entries.fortran_order->type != Type::boolean) {
    const Literal& order = *entries.fortran_order;
    refuse(name, "fortran_order is ",
           printable(source.substr(order.begin, order.end - order.begin)),
           ", expected True or False");
  }
  header.fortran_order = entries.fortran_order->integer != 0;
  header.shape = shape_from(*entries.shape, source, name);
  npy::count_elements(header, name);
  return header;
}

std::string format_name(const NpyHeader& header) {
  if (header.major == 0) return header.minor == 0 ? "safetensors" : "raw";
  return cat(header.major, ".", header.minor);
}

DType float_dtype(const NpyHeader& header, std::string_view name, std::string_view flag) {
  if (header.dtype) return *header.dtype;
  if (header.kind == 'f' && header.item_bytes == 1) return DType::e5m2;  // ml_dtypes' '<f1'
  if (header.kind == 'V' && header.item_bytes == 2) return DType::bf16;
  if (header.kind == 'f' && header.item_bytes == 2) return DType::f16;
  if (header.kind == 'f' && header.item_bytes == 4) return DType::f32;
  if (header.kind == 'f' && header.item_bytes == 8) return DType::f64;
  npy::refuse_dtype(header, name, flag);
}

std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape) {
  constexpr std::array<std::string_view, 4> kDescr = {"<f2", "<V2", "<f4", "<f8"};
  return npy_header_text(kDescr[static_cast<std::size_t>(dtype)], shape);
}

std::string npy_header_text(std::string_view descr, std::span<const std::int64_t> shape) {
  constexpr std::size_t kGrowthDigits = 21;  // room for the first axis to grow, numpy >= 1.23
  constexpr std::size_t kAlignment = 64;
  std::string dict = cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (");
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    dict += cat(axis > 0 ? ", " : "", shape[axis]);
  }
  dict += shape.size() == 1 ? ",), }" : "), }";
  if (!shape.empty()) dict.append(kGrowthDigits - cat(shape[0]).size(), ' ');
  const std::size_t used = kMagic.size() + 4 + dict.size() + 1;  // version, length, newline
  dict.append(kAlignment - used % kAlignment, ' ');
  dict += '\n';
  const std::size_t length = dict.size();
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return text + dict;
}

}  // namespace convgrad
