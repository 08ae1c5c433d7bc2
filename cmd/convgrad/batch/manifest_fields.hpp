// manifest_fields.hpp - the text of a manifest, JSON Lines or an array, as fields of jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "options/arguments.hpp"
#include "options/table.hpp"

namespace convgrad::cli {

struct BatchJob;

struct Field {
  std::string name;  // with underscores
  Words words;       // none: not given
};
using Fields = std::vector<Field>;  // in the order of the line

struct ManifestLine {
  std::int64_t number = 1;
  Fields fields;
  std::optional<Error> error;  // what is wrong with the line
};

// Returns every line that is not empty. If the text begins with "[", returns every element of that
// array, by the line on which it begins; an array that is no JSON is one malformed line.
std::vector<ManifestLine> manifest_lines(std::string_view text);

template <typename... Parts>
[[noreturn]] void refuse_field(const std::string& field, const Parts&... parts) {
  bad_input(field, ": ", parts...);
}

std::string with_underscores(std::string name);

// Returns null if there is none.
const Field* find(const Fields& fields, std::string_view name);

// Returns the fields of a job that are no options: its name, command and notes, the hashes of its
// files, and the dtype that its tensors must give.
std::vector<std::string> own_field_names(const std::vector<Command>& commands);
// Moves them from a line's fields to its job; those that are left are options of its command.
void take_own_fields(Fields& fields, BatchJob& job);

}  // namespace convgrad::cli
