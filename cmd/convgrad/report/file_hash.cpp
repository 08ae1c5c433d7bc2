// file_hash.cpp - see file_hash.hpp.
#include "report/file_hash.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/failure.hpp"
#include "convgrad/error.hpp"
#include "report/tensor_hash.hpp"

namespace convgrad::cli {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;
// The coarsest times of change are FAT's, 2 s.
constexpr std::time_t kClockStep_s = 3;

struct Descriptor {
  int fd;
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// Opening a FIFO would wait for its writer.
int open_now(const std::string& path) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) return fd;
    const int error = errno;
    if (error == EINTR) continue;
    throw Error(kind_of_failure(error), cat(path, ": cannot open: ", std::strerror(error)));
  }
}

}  // namespace

std::string hash_of_text(std::string_view text) {
  TensorHash sum;
  sum.add(text.data(), text.size());
  return sum.text();
}

std::string hash_of_file(const std::string& path) {
  const Descriptor file(open_now(path));
  struct stat status {};
  if (::fstat(file.fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::input, cat(path, ": has no hash, expected a regular file"));
  }
  TensorHash sum;
  std::vector<char> piece(kPieceBytes);
  for (;;) {
    const ssize_t count = ::read(file.fd, piece.data(), piece.size());
    if (count == 0) return sum.text();
    if (count > 0) {
      sum.add(piece.data(), static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      throw Error(ErrorKind::runtime, cat(path, ": cannot read: ", std::strerror(errno)));
    }
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
