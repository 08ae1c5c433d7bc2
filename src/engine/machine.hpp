// machine.hpp - what the program may use of this machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace convgrad {

struct Machine {
  std::string processor;
  int threads = 1;                // that this process may run on
  std::int64_t memory_bytes = 0;  // physical, or the control group's limit if lower
  // avx2, amx_bf16, neon, ...: the processor has them and the system lets us use them. The first
  // call of this_machine() asks Linux for the AMX tiles.
  std::vector<std::string> instruction_sets;
};
const Machine& this_machine();
std::vector<std::string> known_instruction_sets();

// Returns "the processor has no avx2" for the first of the sets that it lacks, or "".
std::string lacks(const Machine& machine, std::initializer_list<const char*> sets);

struct BlasInfo {
  std::string config;    // name, version and build options
  std::string core;      // the kernels it chose when it was loaded, e.g. SkylakeX
  std::string parallel;  // serial, pthread or openmp
};
// Loads OpenBLAS, as the first product of the algorithm im2col_gemm does, if nothing has yet: its
// worker threads, which nothing here uses, are ended at once. Throws an Error if there is no
// OpenBLAS.
BlasInfo blas_info();
bool blas_is_loaded();

}  // namespace convgrad
