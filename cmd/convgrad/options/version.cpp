#include "version.hpp"

#include "convgrad/error.hpp"
#include "options/help.hpp"

namespace convgrad::cli {

std::string version_text() {
  return cat("convgrad ", kVersion, " (", kGitRevision, ", ", kCompiler, ", ", kBuildType, ")");
}

}  // namespace convgrad::cli
