// peaks.hpp - what this machine can do at best, measured: arithmetic, OpenBLAS, memory.
//
// Kernels' speeds are compared with these; nothing else in the library depends on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace convgrad {

struct PeakRequest {
  int threads = 0;                      // 0: all that the machine lets this process run on
  bool f32 = true, f64 = true;          // multiply-adds and GEMM
  bool bf16 = true;                     // bfloat16 instructions, where the processor has them
  bool read = true;                     // memory
  std::int64_t memory_limit_bytes = 0;  // 0: what the machine has
};

// GFLOP/s count a multiply-add as 2, GB/s are 10^9 bytes. Empty: not asked for, or not there.
struct Peaks {
  int threads = 1;
  std::string instruction_set;               // of the multiply-adds: avx512, avx2 or portable
  std::optional<double> fma_f32, fma_f64;    // independent multiply-adds in registers
  std::optional<double> gemm_f32, gemm_f64;  // OpenBLAS, a 1024 x 1024 x 1024 product a thread
  std::optional<double> avx512_bf16;         // vdpbf16ps in registers
  std::optional<double> amx_bf16;            // tdpbf16ps in tiles
  std::optional<double> read_gbytes_per_s;   // a buffer that no cache holds, each thread its part
  std::int64_t read_bytes = 0;               // that buffer
};
// Each figure is the best of several short runs on all the threads, about 0.15 s in all.
Peaks measure_peaks(const PeakRequest& request = {});

}  // namespace convgrad
