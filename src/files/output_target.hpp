// output_target.hpp - finds the place where the bytes of an output go, and whether they may.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "convgrad/error.hpp"
#include "files/output_file.hpp"

namespace convgrad::output {

struct Target {
  int descriptor = -1;                  // an open one: standard output, /dev/fd/N
  bool direct = false;                  // a device or FIFO: open it and write
  std::string folder;                   // absolute, without links
  std::string base;                     // the file's name in it
  std::optional<struct stat> existing;  // a regular file to be replaced

  std::string path() const { return sibling(base); }
  std::string sibling(const std::string& name) const {
    return folder == "/" ? folder + name : cat(folder, "/", name);
  }
};

// Links are followed, also a last one that leads to nothing yet. Error where it can be seen that
// nothing can be written.
Target checked_target(const std::string& name, const OutputOptions& options);

std::string reason(int error);  // of an errno
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const std::string& name, const Parts&... parts) {
  throw Error(kind, name, ": ", parts...);
}

[[noreturn]] void fail_existing(const std::string& name);

}  // namespace convgrad::output
