// suites.cpp - see suites.hpp.
#include "options/suites.hpp"

#include <algorithm>
#include <filesystem>

namespace convgrad::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".tsv";

// Looks from the program itself, so that an installation can be moved; beside it in a build tree.
fs::path folder() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path beside = program / "suites";
  return fs::is_directory(beside, ignored) ? beside : program / CONVGRAD_SUITES_FROM_PROGRAM;
}

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder(), missing)) {
    if (entry.path().extension() == kEnding) names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string suite_path(const std::string& suite) {
  const std::vector<std::string> names = suite_names();
  if (std::ranges::find(names, suite) == names.end()) return suite;
  return (folder() / (suite + kEnding)).string();
}

}  // namespace convgrad::cli
