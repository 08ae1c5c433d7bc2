// arguments.hpp - the words of a command line: hyphens, lists of numbers, quotes, refusals.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

bool is_digit(char c);  // '0' to '9'

// Returns the numbers of "3,3", "3 3", "3x3" or "[3,3]". Throws Error(usage) that names the flag.
std::vector<std::int64_t> parse_numbers(const std::string& flag, const Words& words);

// Reads "K/R", the K-th of R parts, 1 <= K <= R. Returns nullopt for anything else.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_share(std::string_view text);

// Reads a name, or numbers: one for both sides of all spatial axes or of each, as PyTorch has them,
// or TensorFlow's pairs. Throws Error(usage) if attributes have explicit paddings already.
void read_padding(const std::string& flag, const std::string& word, WgradAttributes& attributes);

// Returns true if --filter-sizes names a file. Numbers with a slip among them are no file's name.
bool is_file_name(const Words& filter_sizes);

// Returns "--filter-sizes=..." for "--filter_sizes=...": hyphens and underscores mean the same.
std::string with_hyphens(std::string argument);
// Returns the last value that words give to a long option; `word` is what it means without one. It
// tells what has to be known although the command line cannot be parsed.
std::string last_value(const std::vector<std::string>& words, const std::string& option,
                       const std::string& word = "");
// Returns true for "-v" and "--dry-run", but not for "-" or "-1".
bool looks_like_a_flag(const std::string& word);

std::string joined(const Words& words, const char* separator = " ");

// Returns the words between spaces and tabs.
Words words_of_line(const std::string& line);
// Returns the words between such characters, "a" and "b" of "a,b".
Words pieces_of(const std::string& text, char between);

// Returns the text with blanks behind it, or in front with a negative width, for columns.
std::string padded(std::string_view text, int width);

// Returns a word as a shell takes it, in quotes if it must be.
std::string shell_quoted(const std::string& word);

}  // namespace convgrad::cli
