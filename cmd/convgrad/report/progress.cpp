// progress.cpp - see progress.hpp.
#include "report/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace convgrad::cli {

namespace {

bool is_off = false;

// Returns "59 s", "12 min", "3 h 20 min": as exact as a guess deserves.
std::string time_text(double seconds) {
  const long long whole = std::llround(std::min(seconds, 1e9));
  if (whole < 120) return std::to_string(whole) + " s";
  if (whole < 7200) return std::to_string((whole + 30) / 60) + " min";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)),
      terminal_(!is_off && isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() { wipe(); }

void Progress::turn_off() { is_off = true; }

void Progress::wipe() {
  const std::lock_guard lock(mutex_);
  if (shown_ > 0) std::fprintf(stderr, "\r%*s\r", static_cast<int>(shown_), "");
  shown_ = 0;
}

void Progress::show(double fraction) { show(fraction, label_); }

void Progress::show(double fraction, const std::string& label) {
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const bool soon = std::chrono::duration<double>(now - last_).count() < 0.1;
  if (elapsed < 1 || (soon && shown_ > 0)) return;
  last_ = now;
  constexpr int kCells = 20;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kCells);
  const double left = fraction > 0 ? elapsed / fraction - elapsed : 0;
  const int columns = std::fprintf(stderr, "\r%s: [%.*s%*s] %3.0f %%, %s left ", label.c_str(),
                                   full, "####################", kCells - full, "", 100 * fraction,
                                   time_text(left).c_str());
  // Blanks replace what is left of a longer line.
  const std::size_t now_shown = columns > 1 ? static_cast<std::size_t>(columns - 1) : 0;
  if (shown_ > now_shown) std::fprintf(stderr, "%*s", static_cast<int>(shown_ - now_shown), "");
  shown_ = std::max(shown_, now_shown);
  std::fflush(stderr);
}

}  // namespace convgrad::cli
