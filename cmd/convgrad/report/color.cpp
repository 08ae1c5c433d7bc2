// color.cpp - see report.hpp.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "report/report.hpp"

namespace convgrad::cli {
namespace {

constexpr const char* kRed = "\033[1;31m";
constexpr const char* kGreen = "\033[1;32m";
constexpr const char* kYellow = "\033[1;33m";
constexpr const char* kPlain = "\033[0m";

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

bool is_colored(const Options& options, int stream) {
  if (options.color == "always") return true;
  if (options.color == "never" || is_set("NO_COLOR")) return false;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::strcmp(terminal, "dumb") == 0;
  return !dumb && isatty(stream) == 1;
}

std::string colored_verdict(const Options& options, const std::string& text) {
  const std::size_t end = text.find_first_of(": \n");
  const std::string word = text.substr(0, end);
  const char* color = word == "MATCH" ? kGreen : word == "MISMATCH" ? kRed : nullptr;
  if (color == nullptr || !is_colored(options, STDOUT_FILENO)) return text;
  return color + word + kPlain + text.substr(word.size());
}

void say(const Options& options, const std::string& kind, const std::string& message) {
  if (options.quiet && kind != "error") return;
  std::string label = kind + ":";
  if (is_colored(options, STDERR_FILENO)) {
    label = (kind == "error" ? kRed : kYellow) + label + kPlain;
  }
  std::fprintf(stderr, "convgrad: %s %s\n", label.c_str(), message.c_str());
}

}  // namespace convgrad::cli
