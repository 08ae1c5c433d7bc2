// text_file.cpp - see text_file.hpp. std::ifstream would take a failed read for the file's end.
#include "files/text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/messages.hpp"

namespace convgrad {
namespace {

class OpenText {
 public:
  OpenText(const std::string& path, const std::string& prefix) : name_(prefix + path) {
    do {
      fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ >= 0) return;
    const int error = errno;
    throw Error(kind_of_failure(error), prefix, "cannot open ", path, ": ", std::strerror(error));
  }
  explicit OpenText(const std::string& prefix)
      : name_(prefix + "standard input"), fd_(STDIN_FILENO) {}
  ~OpenText() {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  OpenText(const OpenText&) = delete;
  OpenText& operator=(const OpenText&) = delete;

  const std::string& name() const { return name_; }
  bool is_folder() const {
    struct stat status {};
    return ::fstat(fd_, &status) == 0 && S_ISDIR(status.st_mode);
  }
  // Returns 0 at the end.
  std::size_t read(char* to, std::size_t most) const {
    for (;;) {
      const ssize_t count = ::read(fd_, to, most);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EINTR) continue;
      throw Error(ErrorKind::runtime, name_, ": cannot read: ", std::strerror(errno));
    }
  }

 private:
  std::string name_;
  int fd_ = -1;
};

std::string read_all(const OpenText& file, const TextFile& kind) {
  const std::string& name = file.name();
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  for (;;) {
    const std::size_t count = file.read(piece.data(), piece.size());
    if (count == 0) return text;
    text.append(piece.data(), count);
    if (std::memchr(piece.data(), '\0', count) != nullptr) {
      bad_input(name, ": is not text, expected ", kind.expected);
    }
    if (text.size() > kind.most_bytes) {
      bad_input(name, ": is larger than ", kind.most_bytes >> 20, " MiB, expected ", kind.expected);
    }
  }
}

}  // namespace

std::string read_text(const std::string& path, const TextFile& kind) {
  if (path == "-") return read_all(OpenText(kind.prefix), kind);
  const OpenText file(path, kind.prefix);
  if (file.is_folder()) {
    bad_input(kind.prefix, path, " is a folder, expected ", kind.expected);
  }
  return read_all(file, kind);
}

std::string read_start(const std::string& path, std::size_t bytes, const std::string& prefix) {
  const OpenText file(path, prefix);
  std::string start(bytes, '\0');
  std::size_t size = 0;
  while (size < bytes) {
    const std::size_t count = file.read(start.data() + size, bytes - size);
    if (count == 0) break;
    size += count;
  }
  start.resize(size);
  return start;
}

}  // namespace convgrad
