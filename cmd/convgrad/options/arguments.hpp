// arguments.hpp - the words of a command line: hyphens, lists of numbers, quotes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

bool is_digit(char c);  // '0' to '9'

// "3,3", "3 3", "3x3" and "[3,3]" as numbers; Error(usage) that names the flag otherwise.
std::vector<std::int64_t> parse_numbers(const std::string& flag, const Words& words);

// A whole number of at least 0, and "K/R", the K-th of R parts, 1 <= K <= R; nullopt otherwise.
std::optional<std::int64_t> parse_whole(std::string_view word);
std::optional<std::pair<std::int64_t, std::int64_t>> parse_share(std::string_view text);

// A name, or numbers: one for both sides of all spatial axes or of each, as PyTorch has them, or
// TensorFlow's pairs. Error(usage) if attributes have explicit paddings already.
void read_padding(const std::string& flag, const std::string& word, WgradAttributes& attributes);

// True if --filter-sizes names a file instead of giving numbers, if with a slip among them.
bool is_file_name(const Words& filter_sizes);

// "--filter_sizes=..." as "--filter-sizes=...": hyphens and underscores mean the same.
std::string with_hyphens(const std::string& argument);
// The last value that words give to a long option; word is what it means without one. For what has
// to be known although the command line cannot be parsed.
std::string last_value(const std::vector<std::string>& words, const std::string& option,
                       const std::string& word = "");
// "-v" and "--dry-run", but not "-" or "-1".
bool looks_like_a_flag(const std::string& word);

std::string joined(const Words& words, const char* separator = " ");

// The words between spaces and tabs.
Words words_of_line(const std::string& line);

// A word as a shell takes it, in quotes if it must be.
std::string shell_quoted(const std::string& word);

}  // namespace convgrad::cli
