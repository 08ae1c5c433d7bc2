// memory_file.hpp - a file in memory that is opened by its name, for readers that want a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "fuzz.hpp"

namespace convgrad::fuzz {

// One for the whole run: its contents are replaced.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) { require(fd_ >= 0, "memfd_create"); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  std::string path() const { return cat("/proc/self/fd/", fd_); }
  void set(std::string_view bytes) const {
    require(::ftruncate(fd_, 0) == 0, "ftruncate");
    require(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
            "pwrite");
  }

 private:
  int fd_;
};

}  // namespace convgrad::fuzz
