// arguments.cpp - see arguments.hpp.
#include "options/arguments.hpp"

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

// Put in front of each list's words, so that of a flag that is given twice the last one counts, as
// for other flags.
constexpr char kListMark = '\x1e';

}  // namespace

Words last_list(const Words& words) {
  Words result;
  for (const std::string& word : words) {
    const std::size_t mark = word.rfind(kListMark);
    if (mark != std::string::npos) result.clear();
    const std::string rest = mark == std::string::npos ? word : word.substr(mark + 1);
    if (!rest.empty()) result.push_back(rest);
  }
  return result;
}

bool looks_like_a_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

std::vector<std::string> prepared(const std::vector<std::string>& arguments) {
  static const std::set<std::string> kLists = {"-k",
                                               "--kernel",
                                               "-s",
                                               "--strides",
                                               "-d",
                                               "--dilations",
                                               "--filter-sizes",
                                               "--input-shape",
                                               "--shape",
                                               "--explicit-paddings"};
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string word = with_hyphens(arguments[i]);
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos && kLists.count(word.substr(0, equals)) != 0) {
      result.push_back(word.substr(0, equals + 1) + kListMark + word.substr(equals + 1));
    } else if (word.size() > 2 && kLists.count(word.substr(0, 2)) != 0) {  // -k3
      result.push_back(word.substr(0, 2) + kListMark + word.substr(2));
    } else {
      result.push_back(word);
      const bool has_value = i + 1 < arguments.size() && !looks_like_a_flag(arguments[i + 1]);
      if (kLists.count(word) != 0 && has_value) result.emplace_back(1, kListMark);
    }
  }
  return result;
}

std::string last_value(const std::vector<std::string>& words, const std::string& option,
                       const std::string& word) {
  std::string value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(option + "=")) value = words[i].substr(option.size() + 1);
    if (words[i] != option) continue;
    value = word.empty() && i + 1 < words.size() ? words[i + 1] : word;
  }
  return value;
}

std::vector<std::int64_t> parse_numbers(const std::string& flag, const Words& words) {
  std::vector<std::int64_t> result;
  constexpr const char* kBetween = " ,[]()\t";
  for (const std::string& word : last_list(words)) {
    for (std::size_t at = 0; (at = word.find_first_not_of(kBetween, at)) != word.npos;) {
      const std::size_t end = std::min(word.find_first_of(kBetween, at), word.size());
      std::int64_t value = 0;
      const auto [rest, status] = std::from_chars(word.data() + at, word.data() + end, value);
      if (status == std::errc::result_out_of_range) {
        bad_input(flag, ": ", word.substr(at, end - at), " does not fit in 64 bits");
      }
      if (status != std::errc{} || rest != word.data() + end) {
        misuse(flag, ": '", word.substr(at, end - at), "' is not a whole number");
      }
      result.push_back(value);
      at = end;
    }
  }
  if (!words.empty() && result.empty()) misuse(flag, ": empty, expected whole numbers");
  return result;
}

std::optional<std::int64_t> parse_whole(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<std::pair<std::int64_t, std::int64_t>> parse_share(std::string_view text) {
  constexpr std::int64_t kMostParts = 1000000;
  const std::size_t at = text.find('/');
  if (at == text.npos) return std::nullopt;
  const auto part = parse_whole(text.substr(0, at)), parts = parse_whole(text.substr(at + 1));
  if (!part || !parts || *part < 1 || *part > *parts || *parts > kMostParts) return std::nullopt;
  return std::pair(*part, *parts);
}

void set_option(CLI::Option& option, const std::string& name, const Words& words) {
  try {
    for (const std::string& word : words) {
      option.add_result(option.get_expected_max() == 0 ? option.get_flag_value(name, word) : word);
    }
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    misuse(error.what());
  }
}

bool is_file_name(const Words& filter_sizes) {
  return filter_sizes.size() == 1 &&
         filter_sizes[0].find_first_not_of("0123456789+- ,[]()\t") != std::string::npos;
}

std::string with_hyphens(const std::string& argument) {
  std::string result = argument;
  if (!result.starts_with("--")) return result;
  for (char& c : result) {
    if (c == '=') break;
    if (c == '_') c = '-';
  }
  return result;
}

std::string joined(const Words& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string shell_quoted(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace convgrad::cli
