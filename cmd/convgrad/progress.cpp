// progress.cpp - see progress.hpp.
#include "progress.hpp"

#include <unistd.h>

#include <cstdio>

namespace convgrad::cli {

Progress::Progress(std::string label)
    : label_(std::move(label)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (shown_) std::fprintf(stderr, "\r%*s\r", 60, "");
}

void Progress::show(double fraction) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (elapsed < 1 || std::chrono::duration<double>(now - last_).count() < 0.1) return;
  last_ = now;
  shown_ = true;
  const double left = fraction > 0 ? elapsed / fraction - elapsed : 0;
  std::fprintf(stderr, "\r%s: %3.0f %%, %.0f s left   ", label_.c_str(), 100 * fraction, left);
  std::fflush(stderr);
}

}  // namespace convgrad::cli
