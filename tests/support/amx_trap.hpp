// amx_trap.hpp - runs AMX's tile instructions on a processor that has none: each raises SIGILL, and
// the handler decodes it and does what Intel's manual says. It is slow, for tests alone.
#pragma once

#include <signal.h>

namespace convgrad::testing {

// Works in all threads while it lives. Instructions that it does not know end the program as usual.
class AmxTrap {
 public:
  AmxTrap();
  ~AmxTrap();
  AmxTrap(const AmxTrap&) = delete;
  AmxTrap& operator=(const AmxTrap&) = delete;

  static long multiplications();  // by all threads so far
  static bool released();         // whether this thread's tiles are in their initial state

 private:
  struct sigaction before_ = {};
};

}  // namespace convgrad::testing
