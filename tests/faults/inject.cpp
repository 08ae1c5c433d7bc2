// inject.cpp - an LD_PRELOAD library that makes one system call or allocation of a program fail.
//
//   CONVGRAD_FAULT=CLASS:N:HOW   the N-th call of a class fails; N+ : that and all after it
//   CONVGRAD_FAULT_BYTES=BYTES   smaller allocations are not counted and do not fail
//   CONVGRAD_FAULT_EXIT_MS=MS    _exit() takes that long
//   CONVGRAD_FAULT_COUNTS=FILE   where the calls of each class are counted, as kClasses int64s
//
// Calls count from the program's own first instruction on, its static objects included; what the
// libraries do while they are loaded, before that or by dlopen, is theirs.
// CLASS is one of kNames, HOW is ENOSPC, EIO, EINTR, ENOMEM, or `short`: a read or write of fewer
// bytes than asked for, without an error. Calls that glibc makes for itself (stdio's writes, the
// stacks of threads) do not come by here.
//
// Nothing here may allocate: malloc is among what it replaces.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// glibc's own, which malloc and its kin are names of.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

enum Class : int { kOpen, kRead, kWrite, kSync, kClose, kRename, kMalloc, kClasses };
constexpr const char* kNames[kClasses] = {"open",  "read",   "write", "fsync",
                                          "close", "rename", "malloc"};
constexpr int kShort = -1;  // in the place of an errno

struct Plan {
  int chosen = -1;  // class
  std::int64_t at = 0;
  bool from_there_on = false;
  int how = EIO;
  std::size_t least_bytes = 0;                  // of an allocation
  std::atomic<std::int64_t>* counts = nullptr;  // in a file, for the one who started the program
};

void read_fault(const char* text, Plan& plan) {
  const char* const colon = std::strchr(text, ':');
  if (colon == nullptr) return;
  for (int i = 0; i < kClasses; ++i) {
    const auto length = static_cast<std::size_t>(colon - text);
    if (std::strlen(kNames[i]) == length && std::strncmp(text, kNames[i], length) == 0) {
      plan.chosen = i;
    }
  }
  char* end = nullptr;
  plan.at = std::strtoll(colon + 1, &end, 10);
  plan.from_there_on = *end == '+';
  const char* const how = std::strchr(end, ':');
  constexpr struct {
    const char* name;
    int value;
  } kHows[] = {{":ENOSPC", ENOSPC},
               {":EIO", EIO},
               {":EINTR", EINTR},
               {":ENOMEM", ENOMEM},
               {":short", kShort}};
  for (const auto& known : kHows) {
    if (how != nullptr && std::strcmp(how, known.name) == 0) plan.how = known.value;
  }
}

Plan& plan() {
  static constinit Plan plan;
  static std::atomic<int> state{0};  // 0 new, 1 being read, 2 ready; constant initialisation
  int expected = 0;
  if (state.load(std::memory_order_acquire) == 2) return plan;
  if (!state.compare_exchange_strong(expected, 1)) return plan;
  if (const char* path = std::getenv("CONVGRAD_FAULT_COUNTS")) {
    const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
    const long memory = syscall(SYS_mmap, nullptr, kClasses * sizeof(std::int64_t),
                                PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (memory > 0) plan.counts = reinterpret_cast<std::atomic<std::int64_t>*>(memory);
  }
  if (const char* text = std::getenv("CONVGRAD_FAULT")) read_fault(text, plan);
  if (const char* text = std::getenv("CONVGRAD_FAULT_BYTES")) {
    plan.least_bytes = std::strtoull(text, nullptr, 10);
  }
  state.store(2, std::memory_order_release);
  return plan;
}

std::atomic<bool> started{false};  // libraries are loaded
// By this thread, with dlopen; nothing is allocated for initial-exec.
__attribute__((tls_model("initial-exec"))) thread_local int loading = 0;

// How this call fails: 0 (it does not), an errno, or kShort.
int fault(Class kind, std::size_t bytes = SIZE_MAX) {
  static std::atomic<std::int64_t> own[kClasses];
  if (!started.load() || loading > 0) return 0;
  const int saved_errno = errno;
  Plan& p = plan();
  errno = saved_errno;
  if (bytes < p.least_bytes) return 0;
  auto& counter = p.counts != nullptr ? p.counts[kind] : own[kind];
  const std::int64_t number = counter.fetch_add(1) + 1;
  if (p.chosen != kind) return 0;
  return number == p.at || (p.from_there_on && number > p.at) ? p.how : 0;
}

// True and errno set if the call fails at once.
bool fails(Class kind, std::size_t bytes = SIZE_MAX) {
  const int how = fault(kind, bytes);
  if (how == 0 || how == kShort) return false;
  errno = how;
  return true;
}

// The next function of that name. dlsym may allocate, which is why only file calls use it, at
// their first use.
template <typename Function>
Function* next(const char* name, std::atomic<void*>& kept) {
  if (kept.load() == nullptr) kept.store(dlsym(RTLD_NEXT, name));
  return reinterpret_cast<Function*>(kept.load());
}
#define NEXT(name)                              \
  ([] {                                         \
    static std::atomic<void*> kept;             \
    return next<decltype(::name)>(#name, kept); \
  }())

std::size_t shortened(std::size_t count) { return count > 1 ? (count + 1) / 2 : count; }

mode_t mode_of(int flags, va_list list) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

extern "C" {

// What a program's _start calls: its objects are made in there, and then main() is called.
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end);
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(),
                      void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  auto* const start = NEXT(__libc_start_main);
  started.store(true);
  return start(main, argc, argv, init, fini, rtld_fini, stack_end);
}

#define OPEN(name)                                            \
  int name(const char* path, int flags, ...) {                \
    va_list list;                                             \
    va_start(list, flags);                                    \
    const mode_t mode = mode_of(flags, list);                 \
    va_end(list);                                             \
    return fails(kOpen) ? -1 : NEXT(name)(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                  \
  int name(int folder, const char* path, int flags, ...) {            \
    va_list list;                                                     \
    va_start(list, flags);                                            \
    const mode_t mode = mode_of(flags, list);                         \
    va_end(list);                                                     \
    return fails(kOpen) ? -1 : NEXT(name)(folder, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)
FILE* fopen(const char* path, const char* mode) {
  return fails(kOpen) ? nullptr : NEXT(fopen)(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return fails(kOpen) ? nullptr : NEXT(fopen64)(path, mode);
}

ssize_t read(int fd, void* bytes, size_t count) {
  const int how = fault(kRead);
  if (how > 0) return errno = how, -1;
  return NEXT(read)(fd, bytes, how == kShort ? shortened(count) : count);
}
#define PREAD(name, offset_type)                                                    \
  ssize_t name(int fd, void* bytes, size_t count, offset_type offset) {             \
    const int how = fault(kRead);                                                   \
    if (how > 0) return errno = how, -1;                                            \
    return NEXT(name)(fd, bytes, how == kShort ? shortened(count) : count, offset); \
  }
PREAD(pread, off_t)
PREAD(pread64, off64_t)
size_t fread(void* bytes, size_t size, size_t count, FILE* file) {
  constexpr int kErrorSeen = 0x20;  // what ferror() looks at
  if (!fails(kRead)) return NEXT(fread)(bytes, size, count, file);
  file->_flags |= kErrorSeen;
  return 0;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  const int how = fault(kWrite);
  if (how > 0) return errno = how, -1;
  return NEXT(write)(fd, bytes, how == kShort ? shortened(count) : count);
}
#define PWRITE(name, offset_type)                                                   \
  ssize_t name(int fd, const void* bytes, size_t count, offset_type offset) {       \
    const int how = fault(kWrite);                                                  \
    if (how > 0) return errno = how, -1;                                            \
    return NEXT(name)(fd, bytes, how == kShort ? shortened(count) : count, offset); \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

int fsync(int fd) { return fails(kSync) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails(kSync) ? -1 : NEXT(fdatasync)(fd); }

// Linux frees the descriptor whatever it reports.
int close(int fd) {
  const int how = fault(kClose);
  const int result = NEXT(close)(fd);
  if (how <= 0) return result;
  errno = how;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  return fails(kRename) ? -1 : NEXT(rename)(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return fails(kRename) ? -1 : NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}

void* dlopen(const char* file, int mode) {
  ++loading;
  void* const library = NEXT(dlopen)(file, mode);
  --loading;
  return library;
}

void* malloc(size_t size) { return fails(kMalloc, size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return fails(kMalloc, count * size) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return fails(kMalloc, size) ? nullptr : __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  return fails(kMalloc, size) ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return fails(kMalloc, size) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (fails(kMalloc, size)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
#define MMAP(name, offset_type)                                                                 \
  void* name(void* at, size_t size, int protection, int flags, int fd, offset_type offset) {    \
    if (fails(kMalloc, size)) return MAP_FAILED;                                                \
    return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, fd, offset)); \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

void _exit(int status) {
  if (const char* ms = std::getenv("CONVGRAD_FAULT_EXIT_MS")) usleep(1000 * std::atoi(ms));
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

}  // extern "C"
