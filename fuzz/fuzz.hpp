// fuzz.hpp - what the fuzz targets share: choices made from bytes, and what every target demands.
//
// Nothing here needs clang, so that the corpora are also replayed by the ordinary tests
// (replay.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "convgrad/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace convgrad::fuzz {

// Says what is wrong and ends the process, which the fuzzer records with its input.
inline void require(bool holds, std::string_view what, std::string_view more = "") {
  if (holds) return;
  std::fprintf(stderr, "fuzz: wrong: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(more.size()), more.data());
  std::abort();
}

// One printable line of a sensible length.
inline void require_line(std::string_view message) {
  require(message.size() > 10 && message.size() < 4000, "length of a message", message);
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    require(byte >= 0x20 && byte != 0x7f, "a control byte in a message", message);
  }
}

// Calls f. True if it throws an Error, which must be of that kind (any if 0) and one line that
// starts with `start`; whatever else it throws ends the process.
template <typename Function>
bool refused(int kind, std::string_view start, Function&& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(kind == 0 || static_cast<int>(error.kind()) == kind, "kind of an error", message);
    require(message.starts_with(start), "beginning of a message", message);
    require_line(message);
    return true;
  }
  return false;
}

// Decisions from the front of the input: all are 0, or the lowest, when it is used up.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool at_end() const { return size_ == 0; }
  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  bool one_in(int n) { return byte() % n == n - 1; }
  // low <= result <= high, of at most 256 values.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + byte() % (high - low + 1);
  }
  std::int64_t word() {  // any 64 bits
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return static_cast<std::int64_t>(value);
  }
  template <typename T, std::size_t n>
  const T& of(const std::array<T, n>& values) {
    return values[byte() % n];
  }
  std::string text(std::size_t most) {
    const auto length = std::min<std::size_t>(byte() % (most + 1), size_);
    std::string result(reinterpret_cast<const char*>(data_), length);
    data_ += length;
    size_ -= length;
    return result;
  }
  std::string_view rest() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace convgrad::fuzz
