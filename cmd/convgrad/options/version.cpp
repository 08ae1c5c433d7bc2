#include "version.hpp"

#include "base/load_module.hpp"
#include "convgrad/error.hpp"
#include "engine/machine.hpp"
#include "options/help.hpp"

namespace convgrad::cli {
namespace {

// Returns the first two words of "OpenBLAS 0.3.21 NO_AFFINITY ...". OpenBLAS is loaded to say them,
// since another may be installed than this was built with.
std::string blas_version() {
  try {
    const BlasInfo blas = blas_info();
    return cat(blas.config.substr(0, blas.config.find(' ', blas.config.find(' ') + 1)),
               ", kernels for ", blas.core);
  } catch (const Error& error) {
    return cat("none: ", error.what());
  }
}

// Returns the build's version, since loading a module to ask it takes longer than all else.
std::string module_version(const char* file, const std::string& built_with) {
  if (built_with.empty()) return "none";
  return has_module(file) ? built_with : cat("none: ", file, " is not installed");
}

}  // namespace

std::string version_text() {
  return cat("convgrad ", kVersion, " (", kGitRevision, ", ", kCompiler, ", ", kBuildType, ")");
}

std::string version_and_libraries() {
  const std::string cuda = kCudaToolkit;
  return cat(version_text(), "\nBLAS  ", blas_version(), "\nCUDA  ",
             module_version("convgrad_cuda.so", cuda.empty() ? "" : "toolkit " + cuda), "\nMPI   ",
             module_version("convgrad_mpi.so", kMpi));
}

}  // namespace convgrad::cli
