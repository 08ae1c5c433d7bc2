// raw_tensor.hpp - files of elements alone, whose dtype and shape the argument gives:
// x.bin:bfloat16[16,56,56,64], and x.bin:>float32[3,4] for big endian.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "convgrad/npy.hpp"

namespace convgrad {

// text has the form WORD[...], as no name of a file or of an array in an archive is expected to.
bool looks_like_raw(std::string_view text);

// The header that the array would have as .npy, with its payload at byte 0, from "DTYPE[EXTENTS]":
// names as --out-dtype takes them, 8-bit floats, and numpy's names of integers and booleans.
// Error(usage) that starts with argument for a dtype that is unknown, or extents that are none.
NpyHeader raw_header(std::string_view text, const std::string& argument);

}  // namespace convgrad
