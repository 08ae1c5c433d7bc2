// refuse.hpp - refusals that commands have in common.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/suggest.hpp"
#include "convgrad/error.hpp"

namespace convgrad::cli {

template <typename... Parts>
[[noreturn]] void misuse(const Parts&... parts) {
  throw Error(ErrorKind::usage, parts...);
}

template <typename... Parts>
[[noreturn]] void bad_input(const Parts&... parts) {
  throw Error(ErrorKind::input, parts...);
}

// Throws Error(kind) "WHAT: 'WORD' is unknown, expected A or B; did you mean 'A'?" unless known.
inline void check_known(const std::string& what, const std::string& word,
                        const std::vector<std::string>& known, ErrorKind kind = ErrorKind::usage) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw Error(kind, what, ": '", word, "' is unknown, expected ", join_or(known),
              did_you_mean(word, known));
}

}  // namespace convgrad::cli
