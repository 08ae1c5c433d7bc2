#include "files/output_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "files/temporaries.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

constinit Temporaries temporaries;

// The place where the bytes of an output go.
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

std::string reason(int error) { return std::strerror(error); }
template <typename... Parts>
[[noreturn]] void fail(ErrorKind kind, const std::string& name, const Parts&... parts) {
  throw Error(kind, name, ": ", parts...);
}

[[noreturn]] void fail_existing(const std::string& name) {
  fail(ErrorKind::input, name, "exists already, and is not replaced because of --no-clobber");
}

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return {".", path};
  return {path.substr(0, std::max<std::size_t>(slash, 1)), path.substr(slash + 1)};
}

std::string absolute_folder(const std::string& folder, const std::string& name) {
  std::error_code error;
  std::string result = std::filesystem::canonical(folder, error).string();
  if (!error) return result;
  fail(kind_of_failure(error.value()), name, "cannot write: folder ", folder, ": ",
       reason(error.value()));
}

// Returns N if folder/base is /proc/self/fd/N, to which /dev/stdout and /dev/fd/N lead: a
// redirection that must be written through, not replaced.
int own_descriptor(const std::string& folder, const std::string& base) {
  if (folder != cat("/proc/", ::getpid(), "/fd")) return -1;
  const std::int64_t number = parse_whole(base).value_or(-1);
  return number <= INT_MAX ? static_cast<int>(number) : -1;
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
    std::error_code error;
    const std::string link = std::filesystem::read_symlink(target.path(), error).string();
    if (error) {
      fail(kind_of_failure(error.value()), name, "cannot read the link ", target.path(), ": ",
           reason(error.value()));
    }
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

// Links are followed, also a last one that leads to nothing yet. Error where it can be seen that
// nothing can be written.
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

constexpr std::size_t kMaxWriteBytes = std::size_t{1} << 30;  // one system call

// Returns .NAME.convgrad-XXXXXXXX.tmp, NAME cut off where the file system's limit demands it.
std::string temporary_path(const Target& target) {
  static constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
  // A name only has to be unlikely, as O_EXCL refuses one that is there.
  std::random_device random;
  std::string suffix = ".convgrad-";
  for (int i = 0; i < 8; ++i) suffix += kLetters[random() & 63];
  suffix += ".tmp";
  const long limit = ::pathconf(target.folder.c_str(), _PC_NAME_MAX);
  const std::size_t room = (limit > 64 ? static_cast<std::size_t>(limit) : 255) - suffix.size() - 1;
  return target.sibling(cat(".", cut_short(target.base, room), suffix));
}

// Blocks signals in this thread as long as it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Some file systems and pipes know no fsync; that is no failure.
bool synced(int fd) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR)
      return errno == EINVAL || errno == EROFS || errno == ENOTSUP || errno == ENOSYS;
  }
  return true;
}

}  // namespace

struct OutputFile::State {
  std::string name;
  OutputOptions options;
  Target target;
  std::string temporary;  // empty when the target is written to directly
  int slot = Temporaries::kNone;
  int fd = -1;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd >= 0) ::close(fd);
    discard();
  }

  bool direct() const { return target.direct || target.descriptor >= 0; }
  [[noreturn]] void fail_writing(int error) const {
    temporaries.wait_if_ended();
    fail(ErrorKind::runtime, name, "cannot write: ", reason(error),
         direct()          ? "; what was written so far is incomplete"
         : target.existing ? "; the old file is unchanged"
                           : "; no file was made");
  }

  void open_direct() {
    if (target.descriptor >= 0) {
      // The copy is closed in the end, the redirection itself stays open.
      fd = ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    } else {
      do {
        fd = ::open(target.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
      } while (fd < 0 && errno == EINTR);  // a FIFO waits for its reader
    }
    if (fd < 0) fail(kind_of_failure(errno), name, "cannot write: ", reason(errno));
  }

  void open_temporary() {
    for (int attempt = 0;; ++attempt) {
      temporary = temporary_path(target);
      int error = 0;
      {
        const SignalsBlocked blocked;
        slot = temporaries.arm(temporary);
        fd = ::open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        error = errno;
        temporaries.armed(slot);
      }
      if (fd >= 0) break;
      released();  // the name may be somebody else's: do not remove it
      if (error == EINTR || (error == EEXIST && attempt < 100)) continue;
      fail(kind_of_failure(error), name, "cannot create a temporary file in ", target.folder, ": ",
           reason(error));
    }
    keep_mode();
  }

  // Gives the new file owner and mode of the one that it will replace. Only root can give files
  // away; a file that keeps another owner must not keep set-user-ID.
  void keep_mode() const {
    if (!target.existing) return;
    const struct stat& old = *target.existing;
    const bool same_owner = ::fchown(fd, old.st_uid, old.st_gid) == 0;
    const mode_t mode = old.st_mode & (same_owner ? 07777 : 0777);
    if (::fchmod(fd, mode) == 0) return;
    const int error = errno;
    if (error == EPERM || error == ENOTSUP || error == ENOSYS) return;  // vfat, some network disks
    fail_writing(error);
  }

  void rename_without_clobber() {
    const std::string path = target.path();
    // A test before rename() would miss a file that appears in between.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      return released();
    }
    if (errno == EEXIST) fail_existing(name);
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) fail_writing(errno);
    if (::link(temporary.c_str(), path.c_str()) != 0) {  // as race-free, on older file systems
      if (errno == EEXIST) fail_existing(name);
      fail_writing(errno);
    }
    discard();
  }

  void sync_folder() const {
    const int folder = ::open(target.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;  // not ours to read: nothing can be done
    const bool done = synced(folder);
    const int error = errno;
    ::close(folder);
    if (done) return;
    fail(ErrorKind::runtime, name, "is complete, but its folder cannot be synced: ", reason(error));
  }

  void discard() noexcept {
    if (!temporary.empty()) ::unlink(temporary.c_str());
    released();
  }
  // The temporary is gone, removed or renamed.
  void released() noexcept {
    temporaries.disarm(slot);
    slot = Temporaries::kNone;
    temporary.clear();
  }
};

void check_output(const std::string& path, const OutputOptions& options) {
  checked_target(path, options);
}

OutputFile::OutputFile(std::string path, const OutputOptions& options)
    : state_(std::make_unique<State>()) {
  state_->target = checked_target(path, options);
  state_->options = options;
  state_->name = std::move(path);
  if (state_->name == "-") state_->name = "standard output";
  if (state_->direct()) {
    state_->open_direct();
  } else {
    state_->open_temporary();
  }
}

OutputFile::~OutputFile() = default;

void OutputFile::write(const void* bytes, std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(state_->fd, from, std::min(count, kMaxWriteBytes));
    if (written >= 0) {
      from += written;
      count -= static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {  // a pipe made non-blocking elsewhere
      pollfd waiting{state_->fd, POLLOUT, 0};
      ::poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      state_->fail_writing(errno);
    }
  }
}

void OutputFile::overwrite(std::int64_t offset, const void* bytes, std::size_t count) {
  const char* const from = static_cast<const char*>(bytes);
  std::size_t done = 0;
  while (done < count) {
    const ssize_t written =
        ::pwrite(state_->fd, from + done, count - done, offset + static_cast<off_t>(done));
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      state_->fail_writing(errno);
    }
  }
}

void OutputFile::commit() {
  State& state = *state_;
  if (!synced(state.fd)) state.fail_writing(errno);
  // Network disks report some failed writes at close() only, so that comes before the rename. An
  // interrupted close() has closed the file.
  const int fd = std::exchange(state.fd, -1);
  if (::close(fd) != 0 && errno != EINTR) state.fail_writing(errno);
  if (state.direct()) return;
  if (state.options.no_clobber) {
    state.rename_without_clobber();
  } else {
    if (::rename(state.temporary.c_str(), state.target.path().c_str()) != 0) {
      state.fail_writing(errno);
    }
    state.released();
  }
  state.sync_folder();
}

void end_temporaries_in_signal_handler() noexcept { temporaries.end(); }

}  // namespace convgrad
