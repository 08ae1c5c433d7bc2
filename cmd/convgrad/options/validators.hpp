// validators.hpp - checks of one word whose messages name what was expected; CLI11's own print
// ranges with 300 digits.
#pragma once

#include <CLI/Option.hpp>
#include <cstdint>

namespace convgrad::cli {

// Not "--dry-run": "-o --dry-run" must not write a file of that name.
CLI::Validator not_a_flag();
// true, false, 1, 0, on, off, yes, no.
CLI::Validator truth();
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
// A number of at least 0.
CLI::Validator tolerance();
// "512MiB" becomes "536870912". Units are powers of 1024, with or without i and B.
CLI::Validator memory_size();
// KEY=VALUE, with a key of letters, digits, '_', '-' and '.'.
CLI::Validator tag();

}  // namespace convgrad::cli
