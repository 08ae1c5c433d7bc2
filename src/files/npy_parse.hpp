// npy_parse.hpp - the parts of a .npy header, for a reader that must not read past it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/messages.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"

namespace convgrad::npy {

inline constexpr std::int64_t kVersionBytes = 8;  // magic, major, minor

// Finds from the first kVersionBytes where the dictionary starts: 10 (format 1.0) or 12 (2.0, 3.0).
// Error(input) for anything that is not the start of a .npy file, a shorter span included.
std::int64_t dictionary_offset(std::span<const std::byte> bytes, std::string_view name);

// Finds from the first dictionary_offset() bytes where the dictionary ends and the payload starts.
// Error(input) for headers past kMaxNpyHeaderBytes.
std::int64_t payload_offset(std::span<const std::byte> bytes, std::string_view name);

// Sets element_count and payload_bytes. A zero anywhere makes an empty array, as in numpy.
void count_elements(NpyHeader& header, std::string_view name);

template <typename... Parts>
[[noreturn]] void refuse(std::string_view name, const Parts&... parts) {
  bad_input(name, ": ", parts...);
}

}  // namespace convgrad::npy
