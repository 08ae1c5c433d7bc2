// tensor_hash.cpp - see tensor_hash.hpp.
#include "tensor_hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "convgrad/array.hpp"
#include "convgrad/buffer.hpp"
#include "convgrad/npy.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;

}  // namespace

static_assert(std::endian::native == std::endian::little,
              "values are hashed as they lie in memory");

TensorHash::TensorHash() : state_{} { sha256_init(&state_); }

void TensorHash::add(const void* bytes, std::size_t count) {
  sha256_update(&state_, count, static_cast<const std::uint8_t*>(bytes));
}

std::string TensorHash::text() {
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&state_, digest.size(), digest.data());
  std::string result = "sha256:";
  for (const std::uint8_t byte : digest) {
    result += "0123456789abcdef"[byte >> 4];
    result += "0123456789abcdef"[byte & 15];
  }
  return result;
}

std::string hash_of_values(const std::string& path) {
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  const Buffer buffer(std::min(kPartBytes, header.payload_bytes), "a part of the array");
  TensorHash hash;
  for_each_part(header.shape, kPartBytes / header.item_bytes, [&](const ArrayPart& part) {
    reader.read_box(part.begin, part.end, buffer.data());
    hash.add(buffer.data(), static_cast<std::size_t>(part.count * header.item_bytes));
  });
  reader.finish();
  return hash.text();
}

}  // namespace convgrad::cli
