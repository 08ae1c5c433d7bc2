// progress.hpp - a line on stderr for jobs of more than a second, on a terminal only.
#pragma once

#include <mutex>
#include <string>

#include "base/clock.hpp"

namespace convgrad::cli {

class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();  // wipes the line
  // Turns lines off for good, and everywhere.
  static void turn_off();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws the line at most ten times a second. Any thread may call it; fraction is in [0, 1].
  void show(double fraction);
  void show(double fraction, const std::string& label);
  // Wipes the line before something else is written to the terminal; show() draws it again.
  void wipe();

 private:
  const std::string label_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point last_;
  std::size_t shown_ = 0;  // columns that are in use
  std::mutex mutex_;
};

}  // namespace convgrad::cli
