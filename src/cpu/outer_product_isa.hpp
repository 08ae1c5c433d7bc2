// outer_product_isa.hpp - what outer_product_wgrad.cpp and streaming_wgrad.cpp need from each
// instruction set.
//
// Included by files that are compiled with their own ISA flags: plain structs only, no standard
// headers, so that no AVX code ends up in a function that other files share.
#pragma once

namespace convgrad {

// A strided view of pixels and channels in a file's dtype: DType as an int.
struct PackSource {
  const void* data;
  int dtype;
  long pixel_stride, channel_stride;  // in elements
};

// Where one run of pixels begins in the panels, in elements.
struct PanelRun {
  long x, dy;
};

template <typename Acc>
struct OuterProductIsa {
  int max_m;  // rows of the largest register tile: values of x that are broadcast
  int n;      // its columns: dy's channels side by side, the width of a dy panel

  // panel[i*ld + j] = source[i*pixel_stride + j*channel_stride] for i < pixels, j < channels.
  void (*pack)(const PackSource& source, long pixels, int channels, int ld, Acc* panel);

  // False if any of count values is NaN or infinite.
  bool (*all_finite)(const Acc* values, long count);

  // partial[i][j] += sum over runs and over pixels p of x[run.x + p*x_pixel + i] *
  // dy[run.dy + p*n + j], for i < m <= max_m and j < columns <= n. The sums are Acc's, in the order
  // of the runs. dy is aligned to 64.
  void (*multiply)(int m, int columns, const Acc* x, long x_pixel, const Acc* dy,
                   const PanelRun* runs, long run_count, long pixels, double* const* partial);

  // For streaming, whose register tile is taps x lanes: every lane has its own x and its own dy.
  int max_taps;  // neighbouring taps of a filter row in registers
  int lanes;     // width of its panels, a multiple of n / 2

  // panel[i*lanes + j] = source[i*pixel_stride + channel[j]*channel_stride] for i < pixels and
  // j < count <= lanes. channel[] rises.
  void (*spread)(const PackSource& source, long pixels, const int* channel, int count, Acc* panel);

  // partial[s][j] += sum over runs and pixels p of x[run.x + p*x_pixel + s*x_tap + j] *
  // dy[run.dy + p*lanes + j], for s < taps <= max_taps and j < columns <= lanes. x and dy are
  // aligned to 64.
  void (*stream)(int taps, int columns, const Acc* x, long x_tap, long x_pixel, const Acc* dy,
                 const PanelRun* runs, long run_count, long pixels, double* const* partial);
};

struct OuterProductSet {
  OuterProductIsa<float> f32;
  OuterProductIsa<double> f64;
};
extern const OuterProductSet kOuterProductPortable;
extern const OuterProductSet kOuterProductAvx2;
extern const OuterProductSet kOuterProductAvx512;

}  // namespace convgrad
