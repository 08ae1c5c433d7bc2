// failing_calls.hpp - functions of the C library that fail because a test says so.
//
// failing_calls.cpp has functions of these names, which stand before those of the C library where
// it is linked in: into the unit tests. They call the real ones until a test arms a failure.
#pragma once

#include <string>

namespace convgrad::testing {

enum class Call {
  close,
  faccessat,
  fchmod,
  fchown,
  fsync,
  large_allocation,  // malloc and realloc of at least 1 MiB
  link,
  open,
  pathconf,
  readlink,
  renameat2,
  write,
};

// Is false where a sanitizer hands out the memory: large_allocation never fails there.
extern const bool large_allocations_can_fail;

// While it lives, calls of this thread fail with error: the first-th and all after it, or as many
// of them as times says. Of several for one call the one made last counts.
class FailingCall {
 public:
  static constexpr int kAlways = -1;

  FailingCall(Call call, int error, int first = 1, int times = kAlways) noexcept;
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;

  // Counts calls that have failed: a test whose failure never happened has shown nothing.
  int failed() const { return failed_; }

  // Returns the errno that this call of this thread fails with now, 0 if it does not.
  static int error_now(Call call) noexcept;

 private:
  FailingCall* const before_;
  const Call call_;
  const int error_;
  const int first_;
  const int times_;
  int seen_ = 0;
  int failed_ = 0;
};

// While it lives, records what this thread syncs and renames.
class SyncRecorder {
 public:
  SyncRecorder() noexcept;
  ~SyncRecorder();
  SyncRecorder(const SyncRecorder&) = delete;
  SyncRecorder& operator=(const SyncRecorder&) = delete;

  // f is fsync of a file, d of a folder, r renameat2, l link.
  const std::string& calls() const { return calls_; }

  static void record(char what);

 private:
  std::string calls_;
};

}  // namespace convgrad::testing
