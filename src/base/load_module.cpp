#include "base/load_module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "convgrad/error.hpp"

namespace convgrad {
namespace {

// Returns the paths at which a file of this name exists, in the order in which folders are asked.
std::vector<std::filesystem::path> files_called(const char* file) {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> result = {program, program / CONVGRAD_MODULES_FROM_PROGRAM,
                                               CONVGRAD_MODULES_FOLDER};
  const char* const named = std::getenv("CONVGRAD_MODULES");
  if (named != nullptr && *named != '\0') result.insert(result.begin(), named);
  for (std::filesystem::path& folder : result) folder /= file;
  std::erase_if(result, [&](const auto& path) { return !std::filesystem::exists(path, ignored); });
  return result;
}

}  // namespace

LoadedModule load_module(const char* file, const char* symbol, int flags,
                         bool (*is_ours)(const void* offers)) {
  LoadedModule loaded{nullptr, cat(file, " is not installed with this convgrad")};
  for (const std::filesystem::path& path : files_called(file)) {
    void* const library = dlopen(path.c_str(), flags);
    if (library == nullptr) {
      loaded.why_none = cat(file, " cannot be loaded: ", one_line(dlerror()));
      continue;
    }
    using Entry = const void* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, symbol));
    if (entry != nullptr && is_ours(entry())) return {entry(), ""};
    loaded.why_none = cat(one_line(path.string()), " is of another build");
  }
  return loaded;
}

}  // namespace convgrad
