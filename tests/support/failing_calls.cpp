#include "support/failing_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>

#include "support/sanitized.hpp"

// Sanitizers have a malloc of their own, which they need before anything of ours is there.
#define CONVGRAD_OWN_MALLOC (!CONVGRAD_SANITIZED)

namespace convgrad::testing {
namespace {

// Threads are told apart so that a thread of a test, say a reader, keeps its calls.
thread_local constinit FailingCall* armed = nullptr;
thread_local constinit SyncRecorder* recorder = nullptr;

bool fails(Call call) noexcept {
  if (armed == nullptr) return false;  // also before main(), and when threads start and end
  const int error = FailingCall::error_now(call);
  if (error != 0) errno = error;
  return error != 0;
}

}  // namespace

const bool large_allocations_can_fail = CONVGRAD_OWN_MALLOC != 0;

FailingCall::FailingCall(Call call, int error, int first, int times) noexcept
    : before_(armed), call_(call), error_(error), first_(first), times_(times) {
  armed = this;
}

FailingCall::~FailingCall() { armed = before_; }

int FailingCall::error_now(Call call) noexcept {
  for (FailingCall* each = armed; each != nullptr; each = each->before_) {
    if (each->call_ != call) continue;
    const int after = ++each->seen_ - each->first_;
    if (after < 0 || (each->times_ != kAlways && after >= each->times_)) return 0;
    ++each->failed_;
    return each->error_;
  }
  return 0;
}

SyncRecorder::SyncRecorder() noexcept { recorder = this; }
SyncRecorder::~SyncRecorder() { recorder = nullptr; }

void SyncRecorder::record(char what) {
  if (recorder != nullptr) recorder->calls_ += what;
}

}  // namespace convgrad::testing

using convgrad::testing::Call;
using convgrad::testing::fails;
using convgrad::testing::SyncRecorder;

// Finds the next function of that name: a sanitizer's, or the C library's.
#define REAL(name)                                                                          \
  ([] {                                                                                     \
    static auto* const real = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name)); \
    return real;                                                                            \
  }())

extern "C" {

// Linux frees the descriptor whatever it reports.
int close(int fd) {
  const bool failing = fails(Call::close);
  const int error = errno;
  const int result = REAL(close)(fd);
  if (!failing) return result;
  errno = error;
  return -1;
}

int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  return fails(Call::faccessat) ? -1 : REAL(faccessat)(folder, path, mode, flags);
}

int fchmod(int fd, mode_t mode) noexcept {
  return fails(Call::fchmod) ? -1 : REAL(fchmod)(fd, mode);
}

int fchown(int fd, uid_t owner, gid_t group) noexcept {
  return fails(Call::fchown) ? -1 : REAL(fchown)(fd, owner, group);
}

int fsync(int fd) {
  struct stat status {};
  ::fstat(fd, &status);
  SyncRecorder::record(S_ISDIR(status.st_mode) ? 'd' : 'f');
  return fails(Call::fsync) ? -1 : REAL(fsync)(fd);
}

int link(const char* from, const char* to) noexcept {
  SyncRecorder::record('l');
  return fails(Call::link) ? -1 : REAL(link)(from, to);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails(Call::open) ? -1 : REAL(open)(path, flags, mode);
}

long pathconf(const char* path, int name) noexcept {
  return fails(Call::pathconf) ? -1 : REAL(pathconf)(path, name);
}

ssize_t readlink(const char* path, char* text, size_t size) noexcept {
  return fails(Call::readlink) ? -1 : REAL(readlink)(path, text, size);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  SyncRecorder::record('r');
  return fails(Call::renameat2) ? -1 : REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  return fails(Call::write) ? -1 : REAL(write)(fd, bytes, count);
}

#if CONVGRAD_OWN_MALLOC
// dlsym may allocate, so these go by the names that the C library has for this.
void* __libc_malloc(size_t size);
void* __libc_realloc(void* old, size_t size);

void* malloc(size_t size) noexcept {
  const bool large = size >= size_t{1} << 20;
  return large && fails(Call::large_allocation) ? nullptr : __libc_malloc(size);
}

void* realloc(void* old, size_t size) noexcept {
  const bool large = size >= size_t{1} << 20;
  return large && fails(Call::large_allocation) ? nullptr : __libc_realloc(old, size);
}
#endif

}  // extern "C"
