#include "files/output_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

// Holds the temporary files of this process, where a signal handler can find them: absolute paths
// in fixed buffers, each guarded by one lock-free word. A slot goes
//   vacant -> creating -> armed -> vacant    by its owner, and
//   armed -> removing -> vacant              by a signal handler, in whatever thread.
// Whoever takes a slot out of armed owns the path in it, so a handler never reads a name that is
// being rewritten. It only ever knows temporary names: a file that got its final name is safe.
// A thread takes no signals while it creates a file, so a handler can wait for those of others.
class Temporaries {
 public:
  enum State : int { kVacant, kCreating, kArmed, kRemoving };
  struct Slot {
    std::atomic<int> state{kVacant};
    pid_t owner = 0;
    char path[PATH_MAX] = {};
  };

  // Covers path, which may be created now; armed() must follow. Null if all slots are taken.
  // Signals must be blocked in this thread from before it until armed().
  Slot* arm(const std::string& path) noexcept {
    if (path.size() >= sizeof(Slot::path)) return nullptr;
    for (Slot& slot : slots_) {
      int expected = kVacant;
      if (!slot.state.compare_exchange_strong(expected, kCreating)) continue;
      if (ended_.load()) {
        slot.state.store(kVacant);
        wait_if_ended();
      }
      std::memcpy(slot.path, path.c_str(), path.size() + 1);
      slot.owner = ::getpid();
      return &slot;
    }
    return nullptr;
  }

  // The file is there, or could not be created.
  static void armed(Slot* slot) noexcept {
    if (slot != nullptr) slot->state.store(kArmed);
  }

  static void disarm(Slot* slot) noexcept {
    int expected = kArmed;  // else a handler has it, and the process is about to end
    if (slot != nullptr) slot->state.compare_exchange_strong(expected, kVacant);
  }

  // Is async-signal-safe. A forked child leaves its parent's files alone. Files that other threads
  // are creating, or removing for a signal of their own, are waited for, though not for ever: a
  // dead network disk must not keep the process. None is created from now on.
  void end() noexcept {
    ended_.store(true);
    const int saved_errno = errno;
    int waits = 2000;
    for (Slot& slot : slots_) {
      while (is_busy(slot.state.load()) && waits-- > 0) {
        const timespec millisecond{0, 1000000};
        ::nanosleep(&millisecond, nullptr);
      }
      int expected = kArmed;
      if (!slot.state.compare_exchange_strong(expected, kRemoving)) continue;
      if (slot.owner == ::getpid()) ::unlink(slot.path);
      slot.state.store(kVacant);
    }
    errno = saved_errno;
  }

  // After end() the process is about to end, and what fails now fails because of it.
  void wait_if_ended() const noexcept {
    while (ended_.load()) ::pause();
  }

 private:
  static bool is_busy(int state) noexcept { return state == kCreating || state == kRemoving; }
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

  std::array<Slot, kCoveredOutputFiles> slots_;
  std::atomic<bool> ended_{false};
};

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

// Error where it can be seen that nothing can be written.
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
  Temporaries::Slot* slot = nullptr;
  int fd = -1;

  ~State() {
    if (fd >= 0) ::close(fd);
    discard();
  }

  // Writes all of it, by calls of write_some(from, count), which return what they have written.
  template <typename WriteSome>
  void write_all(const void* bytes, std::size_t count, const WriteSome& write_some) const {
    const char* from = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = write_some(from, std::min(count, kMaxWriteBytes));
      if (written >= 0) {
        from += written;
        count -= static_cast<std::size_t>(written);
      } else if (errno == EAGAIN) {  // a pipe made non-blocking elsewhere
        pollfd waiting{fd, POLLOUT, 0};
        ::poll(&waiting, 1, -1);
      } else if (errno != EINTR) {
        fail_writing(errno);
      }
    }
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
      sigset_t all, before;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
      slot = temporaries.arm(temporary);
      fd = ::open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
      const int error = errno;
      Temporaries::armed(slot);
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    if (errno == EPERM || errno == ENOTSUP || errno == ENOSYS) return;  // vfat, some network disks
    fail_writing(errno);
  }

  void rename_without_clobber() {
    const std::string path = target.path();
    // A test before rename() would miss a file that appears in between.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      return released();
    }
    // Older file systems have link(), which is as race-free.
    const bool unknown = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
    if (unknown && ::link(temporary.c_str(), path.c_str()) == 0) return discard();
    if (errno == EEXIST) fail_existing(name);
    fail_writing(errno);
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
    Temporaries::disarm(slot);
    slot = nullptr;
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
  state_->write_all(bytes, count, [&](const char* from, std::size_t some) {
    return ::write(state_->fd, from, some);
  });
}

void OutputFile::overwrite(std::int64_t offset, const void* bytes, std::size_t count) {
  state_->write_all(bytes, count, [&](const char* from, std::size_t some) {
    return ::pwrite(state_->fd, from, some, offset + (from - static_cast<const char*>(bytes)));
  });
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
