// format_bytes.hpp - sizes as people read them.
#pragma once

#include <iomanip>
#include <string>

#include "convgrad/error.hpp"

namespace convgrad {

// format_bytes(1536) is "1.5 KiB".
inline std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  TextWriter text;
  text << std::fixed << std::setprecision(unit == 0 || bytes >= 100 ? 0 : 1) << bytes << " "
       << kUnits[unit];
  return text.str();
}

}  // namespace convgrad
