// own_fields.hpp - the fields of a job that are no options: its name and command, hashes, and those
// of a report's attrs.
#pragma once

#include <string_view>
#include <vector>

#include "batch/batch.hpp"
#include "batch/manifest_fields.hpp"

namespace convgrad::cli {

std::vector<std::string> own_field_names();

// Null if there is none.
const Field* find(const Fields& fields, std::string_view name);

// Moves the own fields of a line to its job; the fields that are left are options of its command.
void take_own_fields(Fields& fields, BatchJob& job);

}  // namespace convgrad::cli
