// format_bytes.hpp - sizes as people read them.
#pragma once

#include <string>

namespace convgrad {

// 1536 -> "1.5 KiB".
std::string format_bytes(double bytes);

}  // namespace convgrad
