// npy_header.cpp - the parser of .npy headers, on whole headers and on dictionaries in a right one.
#include <span>

#include "convgrad/npy.hpp"
#include "fuzz.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;

namespace {

constexpr std::string_view kName = "x.npy";
constexpr int kInput = static_cast<int>(ErrorKind::input);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The dictionary in a header of that format, whose length is right.
std::string with_prefix(int major, std::string_view dict) {
  std::string header = "\x93NUMPY";
  header += {static_cast<char>(major), '\0'};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    header += static_cast<char>(dict.size() >> (8 * i) & 0xff);
  }
  return header += dict;
}

// What is parsed must hang together.
void check(const NpyHeader& header, std::size_t size) {
  __extension__ typedef __int128 Wide;
  require(header.data_offset >= 10 && header.data_offset <= static_cast<std::int64_t>(size),
          "data_offset");
  require(header.item_bytes >= 0, "item_bytes");
  require(header.shape.size() <= 64, "rank");
  Wide count = 1;
  bool empty = false;
  for (const std::int64_t extent : header.shape) {
    require(extent >= 0, "an extent below 0");
    empty = empty || extent == 0;
  }
  for (const std::int64_t extent : header.shape) {
    if (!empty) count *= extent;
    require(empty || count <= INT64_MAX, "a product that overflows");
  }
  if (empty) count = 0;
  require(header.element_count == count, "element_count");
  require(header.payload_bytes == count * header.item_bytes, "payload_bytes");
}

// A float array in C order must come back from the header that is written for it.
void check_round_trip(const NpyHeader& header) {
  DType dtype{};
  if (refused(kInput, kName, [&] { dtype = float_dtype(header, kName); })) return;
  require(header.item_bytes == dtype_bytes(dtype), "bytes of a dtype");
  if (is_float8(dtype)) return;  // is never written
  const std::string text = npy_header_text(dtype, header.shape);
  require(text.size() % 64 == 0, "alignment of a written header");
  const NpyHeader again = parse_npy_header(bytes_of(text), kName);
  require(again.shape == header.shape && !again.fortran_order && !again.big_endian,
          "what comes back from a written header", text);
  require(float_dtype(again, kName) == dtype, "the dtype of a written header", text);
}

void parse(std::string_view text) {
  refused(kInput, kName, [&] {
    const NpyHeader header = parse_npy_header(bytes_of(text), kName);
    check(header, text.size());
    check_round_trip(header);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A digit in front of a dictionary stands for magic, version and length.
  if (size > 0 && data[0] >= '1' && data[0] <= '3' && size < 0x10000) {
    parse(with_prefix(data[0] - '0', text.substr(1)));
  } else {
    parse(text);
  }
  return 0;
}
