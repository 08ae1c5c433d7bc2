#include "files/output_target.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/messages.hpp"
#include "files/tensor_name.hpp"

namespace convgrad::output {
namespace {

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {path.substr(0, std::max<std::size_t>(slash, 1)), path.substr(slash + 1)};
}

std::string absolute_folder(const std::string& folder, const std::string& name) {
  char* const resolved = ::realpath(folder.c_str(), nullptr);
  if (resolved == nullptr) {
    fail(kind_of_failure(errno), name, "cannot write: folder ", folder, ": ", reason(errno));
  }
  std::string result(resolved);
  std::free(resolved);
  return result;
}

// Returns N if folder/base is /proc/self/fd/N, to which /dev/stdout and /dev/fd/N lead: a
// redirection that must be written through, not replaced.
int own_descriptor(const std::string& folder, const std::string& base) {
  int number = -1;
  if (folder != cat("/proc/", ::getpid(), "/fd")) return -1;
  const auto [end, error] = std::from_chars(base.data(), base.data() + base.size(), number);
  return error == std::errc() && end == base.data() + base.size() ? number : -1;
}

std::string read_link(const std::string& path, const std::string& name) {
  std::string text(PATH_MAX, '\0');
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  if (size < 0)
    fail(kind_of_failure(errno), name, "cannot read the link ", path, ": ", reason(errno));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

Target resolve(const std::string& name) {
  constexpr int kMaxLinks = 40;  // Linux has the same limit
  if (name.empty()) fail(ErrorKind::input, name, "the name of the output file is empty");
  const TensorName tensor = split_tensor_name(name);
  if (tensor.member && is_archive_name(tensor.file)) {
    fail(ErrorKind::input, name, "is an array in the archive ", tensor.file,
         ", expected a file of its own");
  }
  Target target;
  if (name == "-") {
    target.descriptor = STDOUT_FILENO;
    return target;
  }
  // realpath() would fail for a last link that leads to nothing yet: links are followed one by one.
  std::string path = name;
  for (int links = 0; links < kMaxLinks; ++links) {
    auto [folder, base] = split(path);
    target.folder = absolute_folder(folder, name);
    target.base = std::move(base);
    target.descriptor = own_descriptor(target.folder, target.base);
    if (target.descriptor >= 0) return target;
    struct stat status {};
    if (::lstat(target.path().c_str(), &status) != 0) {
      if (errno == ENOENT) return target;
      fail(kind_of_failure(errno), name, "cannot write: ", reason(errno));
    }
    if (S_ISDIR(status.st_mode)) fail(ErrorKind::input, name, "is a folder, expected a file name");
    if (!S_ISLNK(status.st_mode)) {
      target.direct = !S_ISREG(status.st_mode);
      if (!target.direct) target.existing = status;
      return target;
    }
    const std::string link = read_link(target.path(), name);
    path = link.starts_with('/') ? link : cat(target.folder, "/", link);
  }
  fail(ErrorKind::input, name, "cannot write: ", reason(ELOOP));
}

void require_access(const std::string& path, int mode, const std::string& name,
                    std::string_view what) {
  // access() would ask for the real user, but files are opened by the effective one.
  if (::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0) return;
  fail(ErrorKind::input, name, "cannot write: ", what, ": ", reason(errno));
}

}  // namespace

std::string reason(int error) { return std::strerror(error); }

void fail_existing(const std::string& name) {
  fail(ErrorKind::input, name, "exists already, and is not replaced because of --no-clobber");
}

Target checked_target(const std::string& name, const OutputOptions& options) {
  Target target = resolve(name);
  if (target.descriptor >= 0) return target;
  if (target.direct) {
    require_access(target.path(), W_OK, name, "the device or FIFO");
    return target;
  }
  if (target.existing && options.no_clobber) fail_existing(name);
  require_access(target.folder, W_OK | X_OK, name, cat("folder ", target.folder));
  // rename() would replace a write-protected file without a word.
  if (target.existing) require_access(target.path(), W_OK, name, "the file is write-protected");
  return target;
}

}  // namespace convgrad::output
