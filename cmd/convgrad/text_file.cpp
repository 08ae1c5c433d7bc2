// text_file.cpp - see text_file.hpp. std::ifstream would take a failed read for the file's end.
#include "text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/failure.hpp"

namespace convgrad::cli {
namespace {

std::string read_all(int fd, const std::string& name, const TextFile& kind) {
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(ErrorKind::runtime, cat(name, ": cannot read: ", std::strerror(errno)));
    }
    text.append(piece.data(), static_cast<std::size_t>(count));
    if (std::memchr(piece.data(), '\0', static_cast<std::size_t>(count)) != nullptr) {
      throw Error(ErrorKind::input, cat(name, ": is not text, expected ", kind.expected));
    }
    if (text.size() > kind.most_bytes) {
      throw Error(ErrorKind::input, cat(name, ": is larger than ", kind.most_bytes >> 20,
                                        " MiB, expected ", kind.expected));
    }
  }
}

}  // namespace

std::string read_text(const std::string& path, const TextFile& kind) {
  if (path == "-") return read_all(STDIN_FILENO, cat(kind.prefix, "standard input"), kind);
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int error = errno;
    throw Error(kind_of_failure(error),
                cat(kind.prefix, "cannot open ", path, ": ", std::strerror(error)));
  }
  const std::shared_ptr<void> closer(nullptr, [fd](void*) { ::close(fd); });
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    throw Error(ErrorKind::input, cat(kind.prefix, path, " is a folder, expected ", kind.expected));
  }
  return read_all(fd, kind.prefix + path, kind);
}

}  // namespace convgrad::cli
