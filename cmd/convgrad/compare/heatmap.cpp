// heatmap.cpp - see heatmap.hpp. This file sorts differences into cells; heatmap_draw.cpp paints.
#include "compare/heatmap.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/suggest.hpp"
#include "convgrad/array.hpp"
#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

// The room for all panels, and the largest cell.
constexpr std::int64_t kWidth = 960, kHeight = 720, kMostCellPixels = 32;
// Panels in a row and in a column; more of them share their places.
constexpr std::int64_t kMostColumns = 64, kMostRows = 48;
constexpr std::int64_t kFewChannels = 8;

const std::vector<std::string> kFormats = {"HWIO", "OIHW", "OHWI", "DHWIO", "OIDHW", "ODHWI"};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Cells as large as the room allows; less room than elements: a pixel for several of them.
void fit(PictureAxis& axis, std::int64_t room) {
  axis.cells = std::min(axis.extent, std::max<std::int64_t>(room, 1));
  axis.pixels = std::clamp<std::int64_t>(room / axis.cells, 1, kMostCellPixels);
}

}  // namespace

void check_heatmap_format(const std::string& format) {
  if (format.empty() || std::ranges::count(kFormats, upper(format)) > 0) return;
  throw Error(ErrorKind::usage, cat("--filter-format: '", format, "' is unknown, expected ",
                                    join_or(kFormats), did_you_mean(format, kFormats)));
}

Heatmap::Heatmap(std::vector<std::int64_t> shape, const std::string& format)
    : shape_(std::move(shape)) {
  const std::string spelled = upper(format);
  if (!spelled.empty() && spelled.size() != shape_.size()) {
    throw Error(ErrorKind::input, cat("--filter-format: ", spelled, " has ", spelled.size(),
                                      " axes, but the arrays have shape ", shape_text(shape_)));
  }
  if (std::ranges::count(shape_, 0) > 0) std::ranges::fill(shape_, 1);  // one cell, never filled
  while (shape_.size() < 4) shape_.insert(shape_.begin(), 1);
  position_.resize(shape_.size());
  arrange(spelled);
  const auto cells =
      static_cast<std::size_t>(rows_.cells * columns_.cells * down_.cells * right_.cells);
  largest_.assign(cells, 0);
  not_finite_.assign(cells, 0);
  failed_.assign(static_cast<std::size_t>(rows_.cells * columns_.cells), 0);
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
  names_[c] = "input channel c";
  names_[k] = "output channel k";
  const bool tall = shape_[k] < kFewChannels && shape_[c] > 4 * shape_[k];
  x_axis_ = tall ? c : k;
  y_axis_ = tall ? k : c;

  columns_ = {names_[right_axis_], shape_[right_axis_]};
  rows_ = {"", 1};
  for (const std::size_t axis : down_axes_) rows_.extent *= shape_[axis];
  right_ = {names_[x_axis_], shape_[x_axis_]};
  down_ = {names_[y_axis_], shape_[y_axis_]};
  columns_.cells = std::min(columns_.extent, kMostColumns);
  rows_.cells = std::min(rows_.extent, kMostRows);
  fit(right_, kWidth / columns_.cells);
  fit(down_, kHeight / rows_.cells);
  columns_.pixels = right_.length();
  rows_.pixels = down_.length();
}

Heatmap::Place Heatmap::place_of(std::int64_t index) {
  for (std::size_t axis = shape_.size(); axis-- > 0;) {
    position_[axis] = index % shape_[axis];
    index /= shape_[axis];
  }
  std::int64_t row = 0;
  for (const std::size_t axis : down_axes_) row = row * shape_[axis] + position_[axis];
  const std::int64_t panel_row = rows_.cell_of(row);
  const std::int64_t panel_column = columns_.cell_of(position_[right_axis_]);
  const std::int64_t y = panel_row * down_.cells + down_.cell_of(position_[y_axis_]);
  const std::int64_t x = panel_column * right_.cells + right_.cell_of(position_[x_axis_]);
  return {static_cast<std::size_t>(y * columns_.cells * right_.cells + x),
          static_cast<std::size_t>(panel_row * columns_.cells + panel_column)};
}

void Heatmap::add(std::int64_t first, std::span<const double> difference,
                  std::span<const unsigned char> failed) {
  for (std::size_t i = 0; i < difference.size(); ++i) {
    if (difference[i] == 0 && failed[i] == 0) continue;
    const Place place = place_of(first + static_cast<std::int64_t>(i));
    if (std::isfinite(difference[i])) {
      largest_[place.cell] = std::max(largest_[place.cell], std::fabs(difference[i]));
    } else {
      not_finite_[place.cell] = 1;
    }
    failed_[place.panel] |= failed[i];
  }
}

}  // namespace convgrad::cli
