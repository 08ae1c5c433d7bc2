// validators.cpp - see validators.hpp.
#include "options/validators.hpp"

#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "convgrad/error.hpp"
#include "files/tensor_name.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {

std::string not_a_flag(std::string& word) {
  if (word.empty()) return "'' is empty, expected a value; leave the flag out for the default";
  if (word.size() < 2 || word.front() != '-' || is_standard_input(word)) return "";
  return cat("its value is missing, found '", word, "' (a file of that name is ./", word, ")");
}

std::string truth(std::string& word) {
  const Words known = {"true", "false", "1", "0", "on", "off", "yes", "no"};
  if (std::ranges::count(known, CLI::detail::to_lower(word)) > 0) return "";
  return cat("'", word, "', expected true or false");
}

std::string whole_number(const std::string& word, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> value = parse_whole(word);
  if (value && *value >= low && *value <= high) return "";
  return cat("'", word, "', expected a whole number from ", low, " to ", high);
}

std::string tolerance(std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (!word.empty() && *end == '\0' && std::isfinite(value) && value >= 0) return "";
  return cat("'", word, "', expected a number of at least 0, e.g. 1e-5");
}

std::string tag(std::string& word) {
  const std::size_t end =
      word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
  if (end != word.npos && end > 0 && word[end] == '=') return "";
  return cat("'", word, "', expected KEY=VALUE, e.g. commit=1a2b3c4, with a KEY of ",
             "A-Z, a-z, 0-9, '_', '-' and '.'");
}

std::string memory_size(std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  std::string unit = CLI::detail::to_lower(end);
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  const std::size_t power = unit.empty() || unit == "b" ? 0
                            : unit.size() == 1          ? std::string("bkmgt").find(unit)
                                                        : std::string::npos;
  const double bytes =
      power == std::string::npos ? 0 : std::ldexp(value, 10 * static_cast<int>(power));
  if (end == word.c_str() || !(bytes >= 1) || !(bytes <= 0x1p62)) {
    return cat("'", word,
               "', expected a size from 1 byte to 4EiB, e.g. 512MiB or 2GiB (units of 1024)");
  }
  word = std::to_string(static_cast<std::int64_t>(bytes));
  return "";
}

}  // namespace convgrad::cli
