// isa.hpp - the functions that outer_product and streaming need from each instruction set.
//
// Sources that are compiled with the flags of their instruction set include it, so it has plain
// structs only (isa_load.hpp says why).
#pragma once

#include "convgrad/float16.hpp"

namespace convgrad {

// A source is a strided view of pixels and channels in a file's dtype, which is DType as an int.
// For panels whose elements hold two pixels, `second` is the second pixel of the first element.
// Either may be null, which stands for zeros.
struct PackSource {
  const void* data;
  const void* second;
  int dtype;
  long pixel_stride, channel_stride;  // in elements of the file
};

// Panels have the shape [panel][pixel][step channels], with zeros behind the last channel of the
// last. Packing pixels may spoil up to kPanelSlack elements behind them, so a panel is packed from
// its first pixel to its last and has room behind that.
struct PanelShape {
  int step;
  long panel_stride;  // from one panel to the next, in elements
};
inline constexpr long kPanelSlack = 16;

// A run is neighbouring pixels in the panels, in elements. Meanwhile a cache line is fetched with
// each pixel, prefetch_step bytes behind the one before, two if those are 128; 0 for nothing new.
struct PanelRun {
  long a, b;   // of the two panels
  long a_row;  // between rows of the filter
  long pixels;
  const char* prefetch;
  long prefetch_step;
};

// Holds the least exponent of values that are not 0, as it is stored, and the greatest.
struct ExponentRange {
  unsigned least = 254, most = 0;
};
// Extends it by values as they are in the file, in pieces of `count`, `stride` bytes apart: one
// call looks at many pieces, since a row of few channels is too short to be worth a call.
using ExponentRangeFunction = void (*)(const void* values, long count, long pieces, long stride,
                                       ExponentRange& range);

// Holds two pixels of one channel, the first in the low half.
struct BFloat16Pair {
  unsigned bits;
};

// The sums of a register tile go to cells, which are
enum class Cells {
  added_to,  // float64 cells
  stored,    // to float64 cells
  results,   // to cells of their own type
  bfloat16s  // float sums to such cells, rounded
};

// A register tile of outer_product reads this, in elements, without the last `trim` of each run.
// The sums of its first `skipped` columns are no cells.
template <typename Element>
struct ProductView {
  const Element* a;  // broadcast
  const Element* b;  // side by side
  long a_pixel, b_pixel;
  long trim;
  Cells cells;
  bool turned;  // the cells of a value of b are a row
  int skipped;
  int filter_rows;  // that the tile takes at once: 1 or 3
};
inline constexpr int kMostTileCells = 448;  // of a register tile: 14 x 32

// Element is float, double or BFloat16Pair. For a pair, "pixel" below means "pair of pixels".
template <typename Element>
struct OuterProductIsa {
  int max_rows;     // of the largest register tile: values of x that are broadcast
  int max_columns;  // of it: dy's channels side by side, two vectors of them
  int wide_rows;    // of the largest tile that is three vectors wide; 0: there is none

  // panel[j / step * panel_stride + i*step + j % step] = source[i*pixel_stride + j*channel_stride]
  // for i < pixels, j < channels.
  void (*pack)(const PackSource& source, long pixels, long channels, const PanelShape& shape,
               Element* panel);

  // Returns false if any of count values is NaN or infinite.
  bool (*all_finite)(const Element* values, long count);

  // Is null unless products of the elements differ from IEEE arithmetic's at the ends of the range.
  ExponentRangeFunction exponent_range;

  // cells[i*row + j], or cells[j*row + i] if turned, += sum over runs and over pixels p of a[run.a
  // + p*a_pixel + i] * b[run.b + p*b_pixel + j], for i < rows <= max_rows and j < columns <=
  // max_columns, or i < wide_rows and three vectors of columns. Whole vectors of b are read. The
  // sums are float or double, in the order of the runs. Of view.filter_rows = 3, each a_row behind
  // the one before, all rows follow each other in cells: 3 * rows <= 2 * max_rows, one vector.
  void (*multiply)(int rows, int columns, const ProductView<Element>& view, const PanelRun* runs,
                   long run_count, void* cells, long row);

  // See isa_peak.hpp.
  double (*multiply_chains)(long rounds, double factor, double term);
};

// A run is neighbouring output pixels of one row that see x with the same taps of those that are
// summed together: a bit for each filter row and one for each of its taps. The others see padding
// there, and have no products: with runs of every such set, all sums stay in registers.
struct StreamRun {
  long x, dy;  // what the first pixel reads of x with the first of these taps, and its dy
  int pixels;
  unsigned char rows, taps;  // neighbouring bits, at least one
};

// Streaming reads this: every lane has its own x and its own dy. Distances are in elements.
template <typename Element>
struct StreamView {
  const Element* x;
  const Element* dy;
  long x_row, x_tap, x_pixel;  // between filter rows, their taps, and output pixels
  long dy_pixel;
  long sum_row, sum_tap;
  // Meanwhile so many cache lines are fetched into the second cache with each pixel.
  const char *fetch_x, *fetch_dy;
  long fetch_x_lines, fetch_dy_lines;
};

// sums[r*sum_row + s*sum_tap + j] += sum over runs that have row r and tap s, and over pixels p, of
// x[run.x + (r - first row)*x_row + (s - first tap)*x_tap + p*x_pixel + j] *
// dy[run.dy + p*dy_pixel + j] for r < rows, s < taps and every lane j of the vectors, in the order
// of the runs. sums is aligned to a vector.
template <typename Element, typename Stored = Element>
using StreamFunction = void (*)(const StreamView<Stored>& view, const StreamRun* runs,
                                long run_count, Element* sums);

// Takes one vector of lanes that stand for input channels, and `outputs` output channels of the
// group of each: sums[r*sum_row + s*sum_tap + j*lanes + l] += x[... + l] * dy[... + pick[j*lanes +
// l]] for j < outputs, lanes l. pick[] is below lanes, or below 2 * lanes if `wide`, and as many
// values of dy are read.
template <typename Element>
using GroupFunction = void (*)(const StreamView<Element>& view, const int* pick,
                               const StreamRun* runs, long run_count, Element* sums);

inline constexpr int kMostTaps = 7;  // of a filter row in registers, and filter rows
inline constexpr int kMostGroupRows = 3, kMostGroupOutputs = 4;

template <typename Element>
struct StreamingIsa {
  int lanes;    // of one vector
  int vectors;  // at most, side by side
  int sums;     // rows * taps * vectors at most; rows and taps at most kMostTaps
  StreamFunction<Element> (*stream)(int rows, int taps, int vectors);
  // Does the same with tensors of bfloat16, null for sums of float64. Of each pair of vectors of
  // lanes, which are neighbours in memory, the first vector of sums has the even ones, the second
  // the odd ones.
  StreamFunction<Element, BFloat16> (*stream_bfloat16)(int rows, int taps, int pairs);

  // stream_group is null unless lanes can be permuted at will. rows * taps * outputs is at most
  // group_sums; rows, taps and outputs are at most kMostGroupRows, kMostTaps and kMostGroupOutputs,
  // outputs at most wide_outputs if `wide`.
  int group_sums, wide_outputs;
  GroupFunction<Element> (*stream_group)(int rows, int taps, int outputs, bool wide);

  // panel[i*width + j] = source[i*pixel_stride + channel[j]*channel_stride] for i < pixels and
  // j < count <= width, zeros behind. channel[] rises; width is a multiple of lanes.
  void (*spread)(const PackSource& source, long pixels, const int* channel, int count, int width,
                 Element* panel);
};

template <typename Acc>
struct IsaTable {
  OuterProductIsa<Acc> outer_product;
  StreamingIsa<Acc> streaming;
};
struct IsaSet {
  const char* name;
  IsaTable<float> f32;
  IsaTable<double> f64;
  double peak;  // vector multiply-adds a second on one core, roughly
};
extern const IsaSet kPortableIsa;
extern const IsaSet kAvx2Isa;
extern const IsaSet kAvx512Isa;
extern const IsaSet kNeonIsa;

// AVX512-BF16 sums products of bfloat16 pairs in float.
extern const OuterProductIsa<BFloat16Pair> kAvx512Bf16Isa;

}  // namespace convgrad
