// values.hpp - the values of an array: from front to back in C order, a few MiB at a time;
// integers; a name by which two runs can tell whether they had the same data.
#pragma once

#include <nettle/sha2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/buffer.hpp"
#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/array.hpp"

namespace convgrad::cli {

// Calls use(bytes, part) for each part; bytes are its values in native byte order, valid during the
// call. Then the file must be at its end. The items must have at least a byte.
template <typename Use>
void read_parts(NpyReader& reader, const Use& use) {
  constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;
  const NpyHeader& header = reader.header();
  const Buffer buffer(std::min(kPartBytes, header.payload_bytes), "a part of an array");
  for_each_part(header.shape, kPartBytes / header.item_bytes, [&](const ArrayPart& part) {
    reader.read_box(part.begin, part.end, buffer.data());
    use(buffer.data(), part);
  });
  reader.finish();
}

inline bool is_integer(const NpyHeader& header) {
  return header.kind == 'i' || header.kind == 'u' || header.kind == 'b';
}

// Returns the name of a dtype of floats, integers or booleans. Throws Error(input) for others.
inline std::string dtype_text(const NpyReader& reader) {
  const NpyHeader& header = reader.header();
  if (header.kind == 'b') return "bool";
  if (!is_integer(header)) return std::string(dtype_name(float_dtype(header, reader.name())));
  return cat(header.kind == 'u' ? "uint" : "int", 8 * header.item_bytes);
}

// Computes SHA-256 of the values in C order, little-endian. The form of the file (byte order,
// Fortran order, format version) does not enter, nor do dtype and shape: in Python, for a
// little-endian array, it is hashlib.sha256(array.tobytes()).
class TensorHash {
 public:
  TensorHash();
  void add(const void* bytes, std::size_t count);
  // Returns "sha256:" and 64 hexadecimal digits. It may be called once, after the last add().
  std::string text();

 private:
  sha256_ctx state_;
};

std::string hash_of_values(NpyReader reader);

// Returns that of all bytes of a regular file, as sha256sum prints them. Throws Error(input) if it
// cannot be opened, and Error(runtime) if reading fails.
std::string hash_of_file(const std::string& path);

}  // namespace convgrad::cli
