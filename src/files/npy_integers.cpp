// npy_integers.cpp - reads TensorFlow's filter_sizes tensor.
#include <bit>
#include <cstring>
#include <limits>

#include "base/messages.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"

namespace convgrad {

std::vector<std::int64_t> read_npy_integers(const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "values are converted in place");
  constexpr std::int64_t kMaxCount = 16;
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  const bool integer = header.kind == 'i' || header.kind == 'u';
  if (!integer || header.shape.size() != 1 || header.element_count > kMaxCount) {
    bad_input(reader.name(), ": is an array of rank ", header.shape.size(), ", ",
              header.element_count, " elements and dtype '", header.descr,
              "', expected a 1-D integer array of at most ", kMaxCount, " entries");
  }
  const std::int64_t begin = 0;
  const std::size_t item = static_cast<std::size_t>(header.item_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.payload_bytes));
  reader.read_box({&begin, 1}, header.shape, bytes.data());
  reader.finish();
  std::vector<std::int64_t> values;
  for (std::size_t at = 0; at < bytes.size(); at += item) {
    const bool negative =
        header.kind == 'i' && (bytes[at + item - 1] & std::byte{0x80}) != std::byte{0};
    // The bytes that the file does not have extend the sign.
    std::uint64_t value = negative ? std::numeric_limits<std::uint64_t>::max() : 0;
    std::memcpy(&value, bytes.data() + at, item);
    if (header.kind == 'u' && value >> 63 != 0) {
      bad_input(reader.name(), ": entry ", values.size(), " is ", value,
                ", expected at most 2^63 - 1");
    }
    values.push_back(static_cast<std::int64_t>(value));
  }
  return values;
}

}  // namespace convgrad
