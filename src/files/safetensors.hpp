// safetensors.hpp - the header of a .safetensors file.
//
// Format: https://github.com/huggingface/safetensors#format. 8 bytes with the length of the header,
// the header as JSON, the payloads side by side in C order and little endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/npy.hpp"
#include "files/byte_source.hpp"

namespace convgrad {

struct SafeTensor {
  std::string name;
  std::string dtype;  // as spelled in the file: "F32", "BF16"
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // of its payload, in bytes from the end of the header
};

// Takes the JSON text of a header and the number of bytes that follow it in the file. Throws an
// Error(input) that starts with name for anything that the format forbids: names that come twice,
// payloads that overlap, leave holes, lie outside the file, or whose size is not that of shape and
// dtype.
std::vector<SafeTensor> parse_safetensors_header(std::string_view json, std::int64_t payload_bytes,
                                                 std::string_view name);

struct Safetensors {
  std::vector<SafeTensor> tensors;
  std::int64_t data_offset = 0;  // where the payloads begin in the file
};

// Tells from its first bytes whether a file may be one: a length that can be, then '{'.
bool looks_like_safetensors(std::span<const std::byte> start, std::int64_t file_bytes);

Safetensors read_safetensors(FileSource& file);

// Returns the format's name: "F32".
std::string_view safetensors_dtype(DType dtype);

// Returns a .npy header (format 0.0) whose data_offset is that in the file. float_dtype() judges
// the dtype; Error(input) that starts with name for one that is not known here.
NpyHeader npy_header_of(const SafeTensor& tensor, std::int64_t data_offset, std::string_view name);

}  // namespace convgrad
