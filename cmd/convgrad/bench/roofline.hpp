// roofline.hpp - the picture of a roofline: speed over arithmetic intensity, on logarithmic axes,
// below what arithmetic and memory allow (Williams, Waterman, Patterson 2009).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convgrad::cli {

// A dot, of positive numbers.
struct RooflineDot {
  std::string name;  // of the layer; one dot of each layer is labelled
  double flop_per_byte = 0, gflops = 0;
  std::string note;  // what is shown when it is pointed at
};

struct RooflineSeries {
  std::string name;
  bool peer = false;  // another program's: hollow marks without labels
  std::vector<RooflineDot> dots;
};

// What memory and arithmetic allow on some threads.
struct Roof {
  std::string suffix;  // of its labels
  std::optional<double> gbytes_per_s;
  std::vector<std::pair<std::string, double>> peaks;  // names and GFLOP/s
};

struct Roofline {
  std::vector<std::string> title;  // lines above the picture
  std::vector<Roof> roofs;
  std::vector<RooflineSeries> series;
};

// The whole file. The same for the same numbers.
std::string roofline_svg(const Roofline& roofline);

}  // namespace convgrad::cli
