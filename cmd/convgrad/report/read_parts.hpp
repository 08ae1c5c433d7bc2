// read_parts.hpp - an array from front to back in C order, a few MiB at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "convgrad/array.hpp"
#include "convgrad/buffer.hpp"
#include "convgrad/npy.hpp"

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

}  // namespace convgrad::cli
