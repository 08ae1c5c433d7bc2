// temporaries.hpp - the temporary files of this process, where a signal handler can find them.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

namespace convgrad {

// Absolute paths in fixed buffers, each guarded by one lock-free word. A slot goes
//   vacant -> filling -> armed -> vacant     by its owner, and
//   armed -> removing -> vacant              by a signal handler, in whatever thread.
// Whoever takes a slot out of armed owns the path in it, so a handler never reads a name that is
// being rewritten. It only ever knows temporary names: a file that got its final name is safe.
class Temporaries {
 public:
  static constexpr int kNone = -1;

  // Covers path from now on: call this before the file is created. kNone if all slots are taken.
  int arm(const std::string& path) noexcept {
    if (path.size() >= sizeof(Slot::path)) return kNone;
    for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
      Slot& slot = slots_[static_cast<std::size_t>(i)];
      int expected = kVacant;
      if (!slot.state.compare_exchange_strong(expected, kFilling)) continue;
      std::memcpy(slot.path, path.c_str(), path.size() + 1);
      slot.owner = ::getpid();
      slot.state.store(kArmed);
      return i;
    }
    return kNone;
  }

  void disarm(int index) noexcept {
    if (index == kNone) return;
    int expected = kArmed;  // else a handler has it, and the process is about to end
    slots_[static_cast<std::size_t>(index)].state.compare_exchange_strong(expected, kVacant);
  }

  // Async-signal-safe. A forked child leaves its parent's files alone.
  void remove_all() noexcept {
    const int saved_errno = errno;
    for (Slot& slot : slots_) {
      int expected = kArmed;
      if (!slot.state.compare_exchange_strong(expected, kRemoving)) continue;
      if (slot.owner == ::getpid()) ::unlink(slot.path);
      slot.state.store(kVacant);
    }
    errno = saved_errno;
  }

 private:
  enum State : int { kVacant, kFilling, kArmed, kRemoving };
  struct Slot {
    std::atomic<int> state{kVacant};
    pid_t owner = 0;
    char path[PATH_MAX] = {};
  };
  static_assert(std::atomic<int>::is_always_lock_free);

  std::array<Slot, 16> slots_;
};

}  // namespace convgrad
