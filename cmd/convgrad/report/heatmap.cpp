// heatmap.cpp - see heatmap.hpp. This file sorts differences into cells; heatmap_draw.cpp draws.
#include "report/heatmap.hpp"

#include <algorithm>
#include <cmath>

#include "convgrad/array.hpp"
#include "options/refuse.hpp"
#include "report/report.hpp"

namespace convgrad::cli {
namespace {

// The room for all panels, and the largest cell.
constexpr std::int64_t kWidth = 960, kHeight = 720, kMostCellPixels = 32;
// Cells in each direction, over all panels: with 20 bytes for each, the file stays under 2 MiB.
constexpr std::int64_t kMostCells = 256;
// Panels in a row and in a column; more of them share their places.
constexpr std::int64_t kMostColumns = 64, kMostRows = 48;
constexpr std::int64_t kFewChannels = 8;

const std::vector<std::string> kFormats = {"HWIO",  "OIHW", "OHWI", "DHWIO", "OIDHW",
                                           "ODHWI", "WIO",  "OIW",  "OWI"};

void bin(PictureAxis& axis, std::int64_t most_cells) {
  axis.bin = std::max<std::int64_t>(ceil_div(axis.extent, most_cells), 1);
}

// The cells of a panel, as large as its room allows.
void fit(PictureAxis& axis, std::int64_t panels, std::int64_t room) {
  bin(axis, kMostCells / panels);
  axis.pixels = std::min(room / panels / axis.cells(), kMostCellPixels);
}

}  // namespace

void check_heatmap_format(const std::string& format) {
  if (format.empty() || std::ranges::count(kFormats, in_tensorflow_letters(format)) > 0) return;
  check_known("--filter-format", format, kFormats);
}

Heatmap::Heatmap(std::vector<std::int64_t> shape, const std::string& format)
    : shape_(std::move(shape)) {
  const std::string spelled = in_tensorflow_letters(format);
  if (!spelled.empty() && spelled.size() != shape_.size()) {
    bad_input("--filter-format: ", spelled, " has ", spelled.size(),
              " axes, but the arrays have shape ", shape_text(shape_));
  }
  if (std::ranges::count(shape_, 0) > 0) std::ranges::fill(shape_, 1);  // one cell, never filled
  const int first_tap = spelled.starts_with("OI") ? 2 : spelled.starts_with('O') ? 1 : 0;
  while (shape_.size() < 4) shape_.insert(shape_.begin() + first_tap, 1);
  position_.resize(shape_.size());
  arrange(spelled);
  name_panels();
  const auto& [rows, columns, down, right] = cells_.axes;
  const auto panels = static_cast<std::size_t>(rows.cells() * columns.cells());
  const auto cells = panels * static_cast<std::size_t>(down.cells() * right.cells());
  cells_.largest.assign(cells, 0);
  cells_.not_finite.assign(cells, 0);
  cells_.failed.assign(panels, 0);
}

// Gives each axis of the array its place in the picture.
void Heatmap::arrange(const std::string& format) {
  const std::size_t rank = shape_.size();
  const bool out_first = format.starts_with('O');
  const bool in_second = out_first && format[1] == 'I';
  const std::size_t k = out_first ? 0 : rank - 1;
  const std::size_t c = in_second ? 1 : out_first ? rank - 1 : rank - 2;
  const std::size_t first_tap = in_second ? 2 : out_first ? 1 : 0;
  const std::vector<std::string> taps = rank == 5   ? std::vector<std::string>{"t", "r", "s"}
                                        : rank == 4 ? std::vector<std::string>{"r", "s"}
                                                    : std::vector<std::string>{};
  names_.resize(rank);
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    names_[first_tap + i] = taps.empty() ? cat("i", i) : taps[i];
    if (i + 3 < rank) down_axes_.push_back(first_tap + i);
  }
  right_axis_ = first_tap + rank - 3;
  names_[c] = "c";
  names_[k] = "k";
  const bool tall = shape_[k] < kFewChannels && shape_[c] > 4 * shape_[k];
  x_axis_ = tall ? c : k;
  y_axis_ = tall ? k : c;

  auto& [rows, columns, down, right] = cells_.axes;
  for (const std::size_t axis : down_axes_) {
    rows.name += (rows.name.empty() ? "" : " ") + names_[axis];
    rows.extent *= shape_[axis];
  }
  columns = {names_[right_axis_], shape_[right_axis_]};
  right = {names_[x_axis_], shape_[x_axis_]};
  down = {names_[y_axis_], shape_[y_axis_]};
  bin(columns, kMostColumns);
  bin(rows, kMostRows);
  fit(right, columns.cells(), kWidth);
  fit(down, rows.cells(), kHeight);
  columns.pixels = right.length();
  rows.pixels = down.length();
}

// "r=0", in 3-D "t=1 r=0"; the first tap, where several share a panel.
void Heatmap::name_panels() {
  const auto& [rows, columns, down, right] = cells_.axes;
  for (std::int64_t row = 0; rows.extent > 1 && row < rows.cells(); ++row) {
    std::int64_t index = row * rows.bin;
    std::string name;
    for (std::size_t i = down_axes_.size(); i-- > 0;) {
      const std::size_t axis = down_axes_[i];
      name = cat(names_[axis], "=", index % shape_[axis], name.empty() ? "" : " ", name);
      index /= shape_[axis];
    }
    cells_.row_names.push_back(name);
  }
  for (std::int64_t i = 0; columns.extent > 1 && i < columns.cells(); ++i) {
    cells_.column_names.push_back(cat(columns.name, "=", i * columns.bin));
  }
}

Heatmap::Place Heatmap::place_of(std::int64_t index) {
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    position_[axis] = index % shape_[axis];
    index /= shape_[axis];
  }
  std::int64_t row = 0;
  for (const std::size_t axis : down_axes_) row = row * shape_[axis] + position_[axis];
  const auto& [rows, columns, down, right] = cells_.axes;
  const std::int64_t panel =
      row / rows.bin * columns.cells() + position_[right_axis_] / columns.bin;
  const std::int64_t cell = (panel * down.cells() + position_[y_axis_] / down.bin) * right.cells() +
                            position_[x_axis_] / right.bin;
  return {static_cast<std::size_t>(cell), static_cast<std::size_t>(panel)};
}

void Heatmap::add(std::int64_t first, std::span<const double> difference,
                  std::span<const unsigned char> failed) {
  for (std::size_t i = 0; i < difference.size(); ++i) {
    if (difference[i] == 0 && failed[i] == 0) continue;
    const Place place = place_of(first + static_cast<std::int64_t>(i));
    if (std::isfinite(difference[i])) {
      double& largest = cells_.largest[place.cell];
      largest = std::max(largest, std::fabs(difference[i]));
    } else {
      cells_.not_finite[place.cell] = 1;
    }
    cells_.failed[place.panel] |= failed[i];
  }
}

void Heatmap::write(const std::string& path, std::vector<std::string> title,
                    const OutputOptions& options) const {
  write_file(path, heatmap_svg(cells_, std::move(title)), options);
}

}  // namespace convgrad::cli
