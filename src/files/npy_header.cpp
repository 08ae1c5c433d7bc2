// npy_header.cpp - reads and writes the header of a .npy file: magic, version, length, dictionary.

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_parse.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

using npy::refuse;

constexpr std::string_view kMagic = "\x93NUMPY";

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
    refuse(name, "shape (", printable(shape, 100), ") with ", header.item_bytes,
           " bytes per element is more than 2^63 - 1 bytes",
           Hint(format_name(header) == "raw" ? "correct the shape in the name"
                                             : "the header is damaged"));
  }
  header.element_count = *count;
  header.payload_bytes = *bytes;
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
  npy::parse_dict({reinterpret_cast<const char*>(bytes.data()) + begin, end - begin}, header, name);
  npy::parse_dtype(header, name);
  npy::count_elements(header, name);
  return header;
}

std::string format_name(const NpyHeader& header) {
  if (header.major == 0) return header.minor == 0 ? "safetensors" : "raw";
  return cat(header.major, ".", header.minor);
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
