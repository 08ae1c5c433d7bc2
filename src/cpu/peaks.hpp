// peaks.hpp - measures what this machine can do at best, with which kernels' speeds are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace convgrad {

struct PeakRequest {
  int threads = 0;  // 0: all that the machine lets this process run on
  bool f32 = true, f64 = true, bf16 = true, read = true;
  std::int64_t memory_limit_bytes = 0;  // 0: what the machine has
};

// GFLOP/s count a multiply-add as 2; a GB is 10^9 bytes. What is not asked for or known is empty.
struct Peaks {
  int threads = 1;
  std::string instruction_set;             // of the multiply-adds: avx512, avx2, neon or portable
  std::optional<double> fma_f32, fma_f64;  // independent multiply-adds in registers
  std::optional<double> amx_bf16, avx512_bf16;  // tdpbf16ps in tiles; without AMX vdpbf16ps
  std::optional<double> read_gbytes_per_s;  // a buffer that no cache holds, each thread its part
  std::int64_t read_bytes = 0;              // that buffer
};
// Each figure is the best of several short runs on all the threads, about 0.15 s in all.
Peaks measure_peaks(const PeakRequest& request = {});

}  // namespace convgrad
