// manifest_fields.hpp - the text of a manifest, JSON Lines or an array, as fields of jobs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options/options.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {

struct Field {
  std::string name;  // with underscores
  Words words;       // none: not given
};
using Fields = std::vector<Field>;  // in the order of the line

struct ManifestLine {
  std::int64_t number = 1;
  Fields fields;
  std::string error;  // what is wrong with the line, or ""
};

// Every line that is not empty. Of a text that begins with "[", every element of that array, by the
// line on which it begins; an array that is no JSON is one malformed line.
std::vector<ManifestLine> manifest_lines(std::string_view text);

template <typename... Parts>
[[noreturn]] void refuse_field(const std::string& field, const Parts&... parts) {
  bad_input(field, ": ", parts...);
}

std::string with_underscores(std::string name);

}  // namespace convgrad::cli
