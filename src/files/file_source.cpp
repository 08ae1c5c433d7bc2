// file_source.cpp - reads a regular file in any order, or a stream front to back.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/messages.hpp"
#include "files/byte_source.hpp"

namespace convgrad {
namespace {

constexpr std::int64_t kMaxReadBytes = std::int64_t{1} << 30;  // one system call
constexpr std::size_t kMaxTextMiB = 256;                       // an endless device is no text

}  // namespace

FileSource::FileSource(const std::string& path, const std::string& prefix,
                       const std::string& expected)
    : ByteSource(prefix + (path == "-" ? "standard input" : path)), owned_(path != "-") {
  // The kind says whether the file is at fault (missing, no permission) or the machine.
  const auto refuse_to_open = [&](int error) {
    throw Error(kind_of_failure(error), name(), ": cannot open: ", std::strerror(error));
  };
  if (!owned_) {
    fd_ = STDIN_FILENO;
  } else {
    do {
      // O_NOCTTY keeps a terminal from becoming the process's controlling one.
      fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    } while (fd_ < 0 && errno == EINTR);  // a FIFO waits for its writer
    if (fd_ < 0) refuse_to_open(errno);
  }
  struct stat status {};
  const int error = ::fstat(fd_, &status) == 0 ? 0 : errno;
  if (error != 0 || S_ISDIR(status.st_mode)) {
    if (owned_) ::close(fd_);
    if (error != 0) refuse_to_open(error);
    refuse("is a folder, expected ", expected);
  }
  // pread() counts from the beginning of the file, so a standard input that another program has
  // read from is a stream.
  regular_ = S_ISREG(status.st_mode) && ::lseek(fd_, 0, SEEK_CUR) == 0;
  bytes_ = regular_ ? status.st_size : 0;
  // Linux then reads twice as far ahead (posix_fadvise(2)).
  if (regular_) ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

FileSource::~FileSource() {
  if (fd_ >= 0 && owned_) ::close(fd_);
}

std::int64_t FileSource::read(std::byte* out, std::int64_t count, std::int64_t offset) {
  std::int64_t done = 0;
  while (done < count) {
    const auto size = static_cast<std::size_t>(std::min(count - done, kMaxReadBytes));
    const ssize_t got =
        regular_ ? ::pread(fd_, out + done, size, offset + done) : ::read(fd_, out + done, size);
    if (got == 0) break;
    if (got > 0) {
      done += got;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made our pipe non-blocking
      pollfd waiting{fd_, POLLIN, 0};
      ::poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      // A standard input that is closed, or open for writing, is no fault of the machine.
      const int error = errno;
      throw Error(error == EBADF ? ErrorKind::input : ErrorKind::runtime, name(),
                  ": cannot read: ", std::strerror(error));
    }
  }
  return done;
}

void FileSource::finish() {
  struct stat status {};
  if (!regular_ || ::fstat(fd_, &status) != 0 || status.st_size == bytes_) return;
  refuse("changed while it was read: it had ", bytes_, " bytes, now it has ", status.st_size);
}

std::string read_text(const std::string& path, const std::string& prefix,
                      const std::string& expected) {
  FileSource file(path, prefix, expected);
  std::string text;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  for (;;) {
    const std::int64_t count =
        file.read(piece.data(), std::ssize(piece), static_cast<std::int64_t>(text.size()));
    if (count == 0) return text;
    text.append(reinterpret_cast<const char*>(piece.data()), static_cast<std::size_t>(count));
    if (std::memchr(piece.data(), '\0', static_cast<std::size_t>(count)) != nullptr) {
      file.refuse("is not text, expected ", expected);
    }
    if (text.size() > kMaxTextMiB << 20) {
      file.refuse("is larger than ", kMaxTextMiB, " MiB, expected ", expected);
    }
  }
}

}  // namespace convgrad
