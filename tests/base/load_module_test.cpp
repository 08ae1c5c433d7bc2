// load_module_test.cpp - modules that are missing, damaged or of another build.
#include "base/load_module.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/temp_dir.hpp"

using namespace convgrad;

namespace {

// CONVGRAD_MODULES names a folder of its own for as long as this lives.
class ModulesFolder : public testing::TempDir {
 public:
  ModulesFolder() {
    const char* const before = std::getenv("CONVGRAD_MODULES");
    if (before != nullptr) before_ = before;
    setenv("CONVGRAD_MODULES", path().c_str(), 1);
  }
  ~ModulesFolder() { setenv("CONVGRAD_MODULES", before_.c_str(), 1); }  // empty is none

 private:
  std::string before_;
};

bool never_ours(const void*) { return false; }
bool always_ours(const void* offers) { return offers != nullptr; }

LoadedModule load(const char* symbol, bool (*is_ours)(const void*)) {
  return load_module("convgrad_test.so", symbol, RTLD_NOW | RTLD_LOCAL, is_ours);
}

// Some shared object that every system has, and a function of it that takes no arguments.
constexpr const char* kLibrary = "libm.so.6";

std::filesystem::path file_of_library() {
  void* const library = dlopen(kLibrary, RTLD_NOW);
  REQUIRE(library != nullptr);
  Dl_info found{};
  REQUIRE(dladdr(dlsym(library, "cos"), &found) != 0);
  return found.dli_fname;
}

}  // namespace

TEST_CASE("a module that is not there") {
  const ModulesFolder folder;
  const LoadedModule none = load("convgrad_module", always_ours);
  CHECK(none.offers == nullptr);
  CHECK(none.why_none == "convgrad_test.so is not installed with this convgrad");
}

TEST_CASE("a module that is no shared object") {
  const ModulesFolder folder;
  folder.write("convgrad_test.so", "text\n");
  const LoadedModule none = load("convgrad_module", always_ours);
  CHECK(none.offers == nullptr);
  CHECK(none.why_none.starts_with("convgrad_test.so cannot be loaded: "));
  CHECK(none.why_none.find('\n') == std::string::npos);
}

TEST_CASE("a module without the symbol, or that offers something else") {
  const ModulesFolder folder;
  const std::string path = folder.file("convgrad_test.so");
  std::filesystem::create_symlink(file_of_library(), path);
  // fegetround() takes nothing; what it returns is looked at by is_ours alone.
  for (const LoadedModule& none :
       {load("convgrad_module", always_ours), load("fegetround", never_ours)}) {
    CHECK(none.offers == nullptr);
    CHECK(none.why_none == path + " is of another build");
  }
}
