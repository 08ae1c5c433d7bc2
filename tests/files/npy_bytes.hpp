// npy_bytes.hpp - .npy files put together by hand, right and wrong ones, and what became of them.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/integers.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "support/errors.hpp"

namespace convgrad::testing {

using Extents = std::vector<std::int64_t>;

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (; bytes > 0; --bytes, value >>= 8) text += static_cast<char>(value & 0xff);
  return text;
}

// Magic, version, length, then the dictionary exactly as given: no padding.
inline std::string header_bytes(std::string_view dict, int major = 1,
                                std::optional<std::size_t> length = std::nullopt) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(major), '\0'};
  bytes += little_endian(length.value_or(dict.size()), major == 1 ? 2 : 4);
  return bytes + std::string(dict);
}

inline std::string dict_text(std::string_view descr, std::string_view shape,
                             std::string_view fortran_order = "False") {
  return cat("{'descr': ", descr, ", 'fortran_order': ", fortran_order, ", 'shape': ", shape,
             ", }\n");
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline NpyHeader parse(std::string_view bytes) {
  return parse_npy_header(as_bytes(bytes), "x.npy");
}

// Stores the element whose position in C order is index: its number, cut to item bytes. So every
// element of an array says where it belongs.
inline void store_element(std::int64_t index, std::size_t item, bool big_endian, char* out) {
  for (std::size_t i = 0; i < item; ++i) {
    const auto byte = i < 8 ? static_cast<char>((index >> (8 * i)) & 0xff) : '\0';
    out[big_endian ? item - 1 - i : i] = byte;
  }
}

struct ArraySpec {
  Extents shape;
  std::size_t item = 4;
  bool fortran_order = false;
  bool big_endian = false;
  char kind = 'f';
};

inline std::string spec_header(const ArraySpec& spec, int major = 1) {
  std::string shape = "(";
  for (const std::int64_t extent : spec.shape) shape += cat(extent, ", ");
  const std::string descr = cat("'", spec.big_endian ? '>' : '<', spec.kind, spec.item, "'");
  return header_bytes(dict_text(descr, shape + ")", spec.fortran_order ? "True" : "False"), major);
}

// The elements in the order of the file.
inline std::string spec_payload(const ArraySpec& spec) {
  const std::int64_t count = checked_product(spec.shape).value();
  std::string bytes(static_cast<std::size_t>(count) * spec.item, '\0');
  for (std::int64_t position = 0; position < count; ++position) {
    std::int64_t index = position;
    if (spec.fortran_order) {  // position counts the first axis fastest
      index = 0;
      std::int64_t rest = position;
      std::int64_t stride = count;
      for (const std::int64_t extent : spec.shape) {
        stride /= extent;
        index += rest % extent * stride;
        rest /= extent;
      }
    }
    store_element(index, spec.item, spec.big_endian,
                  bytes.data() + static_cast<std::size_t>(position) * spec.item);
  }
  return bytes;
}

inline std::string spec_file(const ArraySpec& spec) {
  return spec_header(spec) + spec_payload(spec);
}

// What read_box() must give, element by element.
inline std::string expected_box(const ArraySpec& spec, const Extents& begin, const Extents& end) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < begin.size(); ++i) count *= end[i] - begin[i];
  std::string bytes(static_cast<std::size_t>(count) * spec.item, '\0');
  Extents at = begin;
  for (std::size_t done = 0; done < bytes.size(); done += spec.item) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < at.size(); ++i) index = index * spec.shape[i] + at[i];
    store_element(index, spec.item, false, bytes.data() + done);
    for (std::size_t axis = at.size(); axis > 0 && ++at[axis - 1] == end[axis - 1]; --axis) {
      at[axis - 1] = begin[axis - 1];
    }
  }
  return bytes;
}

// read_box() into a buffer of exactly the right size, so that a sanitizer sees a byte too many.
inline std::string read_box(NpyReader& reader, const Extents& begin, const Extents& end) {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < begin.size(); ++i) count *= end[i] - begin[i];
  std::vector<char> bytes(static_cast<std::size_t>(count * reader.header().item_bytes), '\x5a');
  reader.read_box(begin, end, bytes.data());
  return {bytes.data(), bytes.size()};
}

inline std::string read_all(NpyReader& reader) {
  return read_box(reader, Extents(reader.header().shape.size(), 0), reader.header().shape);
}

inline const std::string kPayload = "abcdefghijklmnopqrstuvwx";  // 2 x 3 x 4 bytes

// Opens, reads everything and finishes, as a command would.
inline std::string read_completely(const std::string& argument) {
  NpyReader reader(argument);
  std::string payload = read_all(reader);
  reader.finish();
  return payload;
}

// A file, or an array of one, that cannot be opened to be read; what is named may be the file.
inline void check_unreadable(const std::string& argument, std::string_view text,
                             const std::string& named = "") {
  check_error(ErrorKind::input, named.empty() ? argument : named, text,
              [&] { NpyReader reader(argument); });
}

// Counts what came of files that were cut or changed: the array, or one Error of the input.
struct Mutants {
  int right = 0, refused = 0, wrong = 0;

  void read(const std::string& argument, std::string_view want) {
    std::string payload;
    const auto error = error_of([&] { payload = read_completely(argument); });
    if (error) {
      ++refused;
      CHECK(error->kind() == ErrorKind::input);
    } else {
      ++(payload == want ? right : wrong);
    }
  }
};

// Writes bytes to a FIFO from a thread of its own.
class FifoWriter {
 public:
  FifoWriter(std::string path, std::string bytes) : path_(std::move(path)) {
    ::unlink(path_.c_str());
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      std::ofstream(path_, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    });
  }
  ~FifoWriter() { thread_.join(); }

 private:
  std::string path_;
  std::thread thread_;
};

// A standard stream leads to a descriptor, or is closed (-1), while this lives.
class Redirected {
 public:
  Redirected(int stream, int to) : stream_(stream), saved_(::dup(stream)) {
    std::fflush(stdout);
    REQUIRE((to < 0 ? ::close(stream) == 0 : ::dup2(to, stream) == stream));
  }
  ~Redirected() {
    ::dup2(saved_, stream_);
    ::close(saved_);
  }

 private:
  int stream_, saved_;
};

// Calls f(begin, end) for every sub-box, empty ones included.
template <typename Function>
void for_every_box(const Extents& shape, Function&& f, Extents begin = {}, Extents end = {}) {
  const std::size_t axis = begin.size();
  if (axis == shape.size()) return f(begin, end);
  begin.push_back(0);
  end.push_back(0);
  for (begin[axis] = 0; begin[axis] <= shape[axis]; ++begin[axis]) {
    for (end[axis] = begin[axis]; end[axis] <= shape[axis]; ++end[axis]) {
      for_every_box(shape, f, begin, end);
    }
  }
}

inline bool is_right_box(NpyReader& reader, const ArraySpec& spec, const Extents& begin,
                         const Extents& end) {
  return read_box(reader, begin, end) == expected_box(spec, begin, end);
}

// How many sub-boxes are not as they must be.
inline int wrong_boxes(NpyReader& reader, const ArraySpec& spec) {
  int wrong = 0;
  for_every_box(spec.shape, [&](const Extents& begin, const Extents& end) {
    wrong += !is_right_box(reader, spec, begin, end);
  });
  return wrong;
}

}  // namespace convgrad::testing
