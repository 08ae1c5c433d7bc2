// heatmap.hpp - where a filter gradient is off: |got - want| over filter taps and channels.
//
// Each filter tap is a panel, placed as in the filter: the last tap axis to the right, the others
// downwards. In a panel, output channels go to the right and input channels down, or the other way
// round where there are few output channels. What is too large for the screen is drawn smaller: a
// pixel then shows the largest difference of the elements that it stands for.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "compare/picture.hpp"

namespace convgrad::cli {

// An extent laid out along one side of the picture: elements -> cells -> pixels.
struct PictureAxis {
  std::string name;         // "k"
  std::int64_t extent = 1;  // elements
  std::int64_t cells = 1;   // at most extent
  std::int64_t pixels = 1;  // of a cell

  std::int64_t cell_of(std::int64_t index) const { return index * cells / extent; }
  // The first element of a cell.
  std::int64_t first_of(std::int64_t cell) const { return (cell * extent + cells - 1) / cells; }
  std::int64_t length() const { return cells * pixels; }
};

// Error(usage) unless format is "", HWIO, OIHW, OHWI or one of these with D in front of H.
void check_heatmap_format(const std::string& format);

class Heatmap {
 public:
  // shape in C order. Its last two axes are C and K and the others taps, unless format says
  // otherwise; shapes of fewer axes have extents of 1 in front.
  Heatmap(std::vector<std::int64_t> shape, const std::string& format);

  // got - want of the elements from number `first` on, and 1 for those that mismatch.
  void add(std::int64_t first, std::span<const double> difference,
           std::span<const unsigned char> failed);

  // The title's lines stand above the picture.
  void write(const std::string& path, const std::vector<std::string>& title,
             const OutputOptions& options) const;

 private:
  struct Place {  // of an element: its cell, counted over all panels, and its panel
    std::size_t cell = 0, panel = 0;
  };
  struct Scale;   // of the colours
  struct Layout;  // in pixels

  void arrange(const std::string& format);
  Place place_of(std::int64_t index);
  Scale scale() const;
  Color color_of(std::size_t cell, const Scale& scale) const;
  std::string tap_name(std::int64_t row) const;
  void draw_panels(Picture& picture, const Layout& layout, const Scale& scale) const;
  void draw_axes(Picture& picture, const Layout& layout) const;
  void draw_legend(Picture& picture, const Layout& layout, const Scale& scale) const;

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> position_;         // of the element at hand
  std::vector<std::size_t> down_axes_;         // tap axes of the panels' rows, outermost first
  std::size_t right_axis_ = 0;                 // tap axis of the panels' columns
  std::size_t x_axis_ = 0, y_axis_ = 0;        // channel axes of shape_, right and down in a panel
  std::vector<std::string> names_;             // of the axes of shape_
  PictureAxis rows_, columns_, down_, right_;  // of panels; within a panel
  std::vector<double> largest_;                // of each cell, finite differences
  std::vector<unsigned char> not_finite_;      // of each cell
  std::vector<unsigned char> failed_;          // of each panel
};

}  // namespace convgrad::cli
