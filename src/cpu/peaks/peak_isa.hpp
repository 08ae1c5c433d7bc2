// peak_isa.hpp - the loops that peaks.cpp times.
//
// Included by sources that are compiled with the flags of their instruction set: plain structs only
// (isa_load.hpp says why).
#pragma once

namespace convgrad {

// Every loop returns something that depends on all its work, so that none of it is optimised away.
struct PeakIsa {
  const char* name;
  double flops_f32, flops_f64;  // of a round
  float (*multiply_add_f32)(long rounds, float factor, float term);
  double (*multiply_add_f64)(long rounds, double factor, double term);
  // The sum of the words; data is aligned to 64, bytes a multiple of 1024.
  unsigned long (*read)(const void* data, long bytes);
};
extern const PeakIsa kPeakPortable;
extern const PeakIsa kPeakAvx2;
extern const PeakIsa kPeakAvx512;
extern const PeakIsa kPeakNeon;

// bfloat16 products summed in float32. No compiler makes these of plain loops: each is written with
// the instruction itself.
struct PeakBf16 {
  double flops;  // of a round
  float (*multiply_add)(long rounds);
};
extern const PeakBf16 kPeakAvx512Bf16;
extern const PeakBf16 kPeakAmxBf16;

}  // namespace convgrad
