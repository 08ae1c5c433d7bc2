// refuse.cpp - see refuse.hpp.
#include "options/refuse.hpp"

#include <algorithm>

#include "base/suggest.hpp"

namespace convgrad::cli {

void check_known(const std::string& what, const std::string& word,
                 const std::vector<std::string>& known, ErrorKind kind) {
  if (std::ranges::find(known, word) != known.end()) return;
  throw Error(kind, cat(what, ": '", word, "' is unknown, expected ", join_or(known),
                        did_you_mean(word, known)));
}

}  // namespace convgrad::cli
