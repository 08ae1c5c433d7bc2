// validators.hpp - checks of one word: what was expected instead, or "". CLI11's own print ranges
// with 300 digits.
#pragma once

#include <cstdint>
#include <string>

namespace convgrad::cli {

// Not "--dry-run": "-o --dry-run" must not write a file of that name.
std::string not_a_flag(std::string& word);
// true, false, 1, 0, on, off, yes, no.
std::string truth(std::string& word);
std::string whole_number(const std::string& word, std::int64_t low, std::int64_t high);
// A number of at least 0.
std::string tolerance(std::string& word);
// "512MiB" becomes "536870912". Units are powers of 1024, with or without i and B.
std::string memory_size(std::string& word);
// KEY=VALUE, with a key of letters, digits, '_', '-' and '.'.
std::string tag(std::string& word);

}  // namespace convgrad::cli
