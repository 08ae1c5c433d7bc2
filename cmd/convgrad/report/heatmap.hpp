// heatmap.hpp - where a filter gradient is off: |got - want| over filter taps and channels.
//
// Each filter tap is a panel, placed as in the filter: the last tap axis to the right, the others
// downwards. In a panel, output channels go to the right and input channels down, or the other way
// round where there are few output channels. What is too large for the picture is binned: a cell
// then shows the largest difference of the elements that it stands for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/integers.hpp"
#include "convgrad/output_file.hpp"

namespace convgrad::cli {

// An extent laid out along one side of the picture: elements -> cells -> pixels.
struct PictureAxis {
  std::string name;         // "k"
  std::int64_t extent = 1;  // elements
  std::int64_t bin = 1;     // elements of a cell; the last cell may have fewer
  std::int64_t pixels = 1;  // of a cell

  std::int64_t cells() const { return ceil_div(extent, bin); }
  std::int64_t length() const { return cells() * pixels; }
};

// All cells of a picture, as heatmap_svg() draws them; panel by panel, row by row.
struct HeatmapCells {
  struct Axes {
    PictureAxis rows, columns;  // of panels
    PictureAxis down, right;    // of cells in a panel
  } axes;
  std::vector<std::string> row_names, column_names;  // of panels; empty if there is only one
  std::vector<double> largest;                       // of each cell, finite differences
  std::vector<unsigned char> not_finite;             // of each cell
  std::vector<unsigned char> failed;                 // of each panel
};

// The title's lines stand above the picture, with one more if cells are binned.
std::string heatmap_svg(const HeatmapCells& cells, std::vector<std::string> title);

// Error(usage) unless format is "", HWIO, OIHW, OHWI, or one of these with D in front of H or
// without H.
void check_heatmap_format(const std::string& format);

class Heatmap {
 public:
  // shape in C order. Its last two axes are C and K and the others taps, unless format says
  // otherwise; shapes of fewer axes have extents of 1 in front of the taps.
  Heatmap(std::vector<std::int64_t> shape, const std::string& format);

  // got - want of the elements from number `first` on, and 1 for those that mismatch.
  void add(std::int64_t first, std::span<const double> difference,
           std::span<const unsigned char> failed);

  void write(const std::string& path, std::vector<std::string> title,
             const OutputOptions& options) const;

 private:
  struct Place {  // of an element: its cell, counted over all panels, and its panel
    std::size_t cell = 0, panel = 0;
  };

  void arrange(const std::string& format);
  void name_panels();
  Place place_of(std::int64_t index);

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> position_;   // of the element at hand
  std::vector<std::string> names_;       // of the axes of shape_
  std::vector<std::size_t> down_axes_;   // tap axes of the panels' rows, outermost first
  std::size_t right_axis_ = 0;           // tap axis of the panels' columns
  std::size_t x_axis_ = 0, y_axis_ = 0;  // channel axes of shape_, right and down in a panel
  HeatmapCells cells_;
};

}  // namespace convgrad::cli
