// file_hash.cpp - see file_hash.hpp.
#include "report/file_hash.hpp"

#include <filesystem>
#include <vector>

#include "files/byte_source.hpp"
#include "options/refuse.hpp"
#include "report/tensor_hash.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 18;

}  // namespace

std::string hash_of_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  // Opening a FIFO would wait for its writer.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    bad_input(path, ": has no hash, expected a regular file");
  }
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
