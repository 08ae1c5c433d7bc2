// temporaries.hpp - the temporary files of this process, where a signal handler can find them.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>

#include "files/output_file.hpp"

namespace convgrad {

// Holds absolute paths in fixed buffers, each guarded by one lock-free word. A slot goes
//   vacant -> creating -> armed -> vacant    by its owner, and
//   armed -> removing -> vacant              by a signal handler, in whatever thread.
// Whoever takes a slot out of armed owns the path in it, so a handler never reads a name that is
// being rewritten. It only ever knows temporary names: a file that got its final name is safe.
// A thread takes no signals while it creates a file, so a handler can wait for those of others.
class Temporaries {
 public:
  static constexpr int kNone = -1;

  // Covers path, which may be created now; armed() must follow. kNone if all slots are taken.
  // Signals must be blocked in this thread from before it until armed().
  int arm(const std::string& path) noexcept {
    if (path.size() >= sizeof(Slot::path)) return kNone;
    for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
      Slot& slot = slots_[static_cast<std::size_t>(i)];
      int expected = kVacant;
      if (!slot.state.compare_exchange_strong(expected, kCreating)) continue;
      if (ended_.load()) {
        slot.state.store(kVacant);
        wait_if_ended();
      }
      std::memcpy(slot.path, path.c_str(), path.size() + 1);
      slot.owner = ::getpid();
      return i;
    }
    return kNone;
  }

  // The file is there, or could not be created.
  void armed(int index) noexcept {
    if (index != kNone) slots_[static_cast<std::size_t>(index)].state.store(kArmed);
  }

  void disarm(int index) noexcept {
    if (index == kNone) return;
    int expected = kArmed;  // else a handler has it, and the process is about to end
    slots_[static_cast<std::size_t>(index)].state.compare_exchange_strong(expected, kVacant);
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
  enum State : int { kVacant, kCreating, kArmed, kRemoving };
  static bool is_busy(int state) noexcept { return state == kCreating || state == kRemoving; }
  struct Slot {
    std::atomic<int> state{kVacant};
    pid_t owner = 0;
    char path[PATH_MAX] = {};
  };
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

  std::array<Slot, kCoveredOutputFiles> slots_;
  std::atomic<bool> ended_{false};
};

}  // namespace convgrad
