// file_hash.cpp - see file_hash.hpp.
#include "report/file_hash.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <vector>

#include "files/byte_source.hpp"
#include "options/refuse.hpp"
#include "report/tensor_hash.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 18;
// The coarsest times of change are FAT's, 2 s.
constexpr std::time_t kClockStep_s = 3;

}  // namespace

std::string hash_of_text(std::string_view text) {
  TensorHash sum;
  sum.add(text.data(), text.size());
  return sum.text();
}

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

HashedFile::HashedFile(const std::string& path)
    : path_(path), stamp_(stamp_of(path)), taken_(std::time(nullptr)), hash_(hash_of_file(path)) {}

HashedFile::Stamp HashedFile::stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev,         status.st_ino,          status.st_size,
          status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

bool HashedFile::unchanged() const {
  if (stamp_.size < 0 || stamp_of(path_) != stamp_) return false;
  if (stamp_.changed_s + kClockStep_s < taken_ && stamp_.modified_s + kClockStep_s < taken_) {
    return true;
  }
  try {
    return hash_of_file(path_) == hash_;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace convgrad::cli
