// output_files.hpp - what the tests of OutputFile share.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "files/output_file.hpp"
#include "support/temp_dir.hpp"

namespace convgrad::testing {

using Names = std::vector<std::string>;

inline void write_text(OutputFile& file, std::string_view text) {
  file.write(text.data(), text.size());
}

inline void write_whole(const std::string& path, std::string_view text,
                        OutputOptions options = {}) {
  OutputFile file(path, options);
  write_text(file, text);
  file.commit();
}

inline mode_t type_and_mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode;
}

inline mode_t mode_of(const std::string& path) { return type_and_mode_of(path) & 07777; }

class Umask {
 public:
  explicit Umask(mode_t mask) : saved_(::umask(mask)) {}
  ~Umask() { ::umask(saved_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t saved_;
};

// A device like /dev/full that may be renamed over without harm, or "" where none is available. As
// root that is one of our own: code that is wrong must not replace the machine's.
inline std::string device(const TempDir& dir, const std::string& name, unsigned minor) {
  const std::string path = ::geteuid() == 0 ? dir.file(name) : "/dev/" + name;
  if (::geteuid() == 0) ::mknod(path.c_str(), S_IFCHR | 0666, ::makedev(1, minor));
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    MESSAGE("skipped: no device ", path);
    return "";
  }
  ::close(fd);
  return path;
}

}  // namespace convgrad::testing
