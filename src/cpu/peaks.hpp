// peaks.hpp - what this machine can do at best, measured: arithmetic, OpenBLAS, memory; and what it
// does at the moment.
//
// Kernels' speeds are compared with these; nothing else in the library depends on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace convgrad {

struct PeakIsa;

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

// What the machine alone decides about a problem's time: how long loops that never change take for
// as much work. Processors change their clock from moment to moment, for other work and for other
// units, and other machines may share them; a kernel's time over this, taken at
// the same moment, changes with the program.
class Yardstick {
 public:
  // Of `flops` multiply-adds in registers (a multiply-add is 2; more than 0), or if amx_products is
  // not 0 of as many products of bfloat16 in tiles for each of them, and of reading x, dy and dw
  // once: aligned to 64 bytes, and without what multiples of 1024 leave over. They must outlive it.
  using Tensors = std::array<std::span<const std::byte>, 3>;
  Yardstick(double flops, int amx_products, const Tensors& tensors);
  // At this moment, on one thread: the best of a few loops of 50 microseconds, and of two readings.
  double seconds() const;
  // Which loops these are: times over others cannot be compared.
  const std::string& name() const { return name_; }

 private:
  const PeakIsa& isa_;
  const Tensors tensors_;
  std::string name_;
  std::function<double()> loop_;
  double loops_ = 0;  // as many have the problem's flops
  int passes_ = 1;    // over the tensors, for a reading that is long enough to be timed
};

}  // namespace convgrad
