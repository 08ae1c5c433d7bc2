#include "report/values.hpp"

#include <nettle/base16.h>

#include <array>
#include <bit>
#include <vector>

#include "files/tensor_source.hpp"

namespace convgrad::cli {

static_assert(std::endian::native == std::endian::little,
              "values are hashed as they are in memory");

TensorHash::TensorHash() : state_{} { sha256_init(&state_); }

void TensorHash::add(const void* bytes, std::size_t count) {
  sha256_update(&state_, count, static_cast<const std::uint8_t*>(bytes));
}

std::string TensorHash::text() {
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&state_, digest.size(), digest.data());
  std::array<char, BASE16_ENCODE_LENGTH(SHA256_DIGEST_SIZE)> digits{};
  base16_encode_update(digits.data(), digest.size(), digest.data());
  return "sha256:" + std::string(digits.begin(), digits.end());
}

std::string hash_of_values(NpyReader reader) {
  const std::int64_t item = reader.header().item_bytes;
  TensorHash hash;
  read_parts(reader, [&](const std::byte* bytes, const ArrayPart& part) {
    hash.add(bytes, static_cast<std::size_t>(part.count * item));
  });
  return hash.text();
}

std::string hash_of_file(const std::string& path) {
  constexpr std::int64_t kPieceBytes = std::int64_t{1} << 18;
  FileSource file(path);
  TensorHash sum;
  std::vector<std::byte> piece(kPieceBytes);
  for (std::int64_t at = 0;;) {
    const std::int64_t count = file.read(piece.data(), kPieceBytes, at);
    if (count == 0) return sum.text();
    sum.add(piece.data(), static_cast<std::size_t>(count));
    at += count;
  }
}

}  // namespace convgrad::cli
