// heatmap_draw.cpp - the picture of a Heatmap: panels, axes, and the legend with its colour bar.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "convgrad/error.hpp"
#include "report/heatmap.hpp"
#include "report/svg.hpp"

namespace convgrad::cli {
namespace {

constexpr Color kWhite{255, 255, 255}, kInk{40, 40, 40}, kLine{150, 150, 150};
constexpr Color kEqual{240, 240, 240}, kNotFinite{255, 0, 200}, kFailed{200, 0, 0};
// matplotlib's viridis (CC0) in eight steps, from the smallest difference to the largest.
constexpr std::array<Color, 9> kMap = {{{253, 231, 37},
                                        {173, 220, 48},
                                        {94, 201, 98},
                                        {40, 174, 128},
                                        {33, 145, 140},
                                        {44, 114, 142},
                                        {59, 82, 139},
                                        {71, 45, 123},
                                        {68, 1, 84}}};
constexpr double kMostDecades = 12;
constexpr std::int64_t kGap = 12, kTick = 5, kBarWidth = 18, kSwatch = 13;
constexpr std::int64_t kTitleLine = kLetterHeight + 4, kLegendLine = kSwatch + 8;
constexpr std::int64_t kMinWidth = 640, kMinBar = 160;

// t from 0 to 1.
Color mapped(double t) {
  const double at = std::clamp(t, 0.0, 1.0) * static_cast<double>(kMap.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(at), kMap.size() - 2);
  const double part = at - static_cast<double>(below);
  const auto mix = [part](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + part * (b - a)));
  };
  const Color a = kMap[below], b = kMap[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// "Binned: a cell is the largest of up to 4 x 2 elements (k x c)"; "" if it is one element.
std::string binning_text(const HeatmapCells::Axes& axes) {
  std::string sizes, names;
  for (const PictureAxis* axis : {&axes.right, &axes.down, &axes.columns, &axes.rows}) {
    if (axis->bin == 1) continue;
    const char* separator = sizes.empty() ? "" : " x ";
    sizes += cat(separator, axis->bin);
    names += separator + axis->name;
  }
  return sizes.empty()
             ? ""
             : cat("Binned: a cell is the largest of up to ", sizes, " elements (", names, ")");
}

std::string channel_text(const PictureAxis& axis) {
  return (axis.name == "k" ? "output channel " : "input channel ") + axis.name;
}

// Colours are by the logarithm, between two powers of ten.
struct Scale {
  bool any = false;          // some difference is finite and not 0
  bool below = false;        // some lie below low
  double low = 0, high = 0;  // exponents

  explicit Scale(const std::vector<double>& largest) {
    double least = 0, most = 0;
    for (const double value : largest) {
      if (value == 0) continue;
      least = any ? std::min(least, value) : value;
      most = std::max(most, value);
      any = true;
    }
    if (!any) return;
    high = std::ceil(std::log10(most));
    low = std::floor(std::log10(least));
    if (low == high) low -= 1;
    below = low < high - kMostDecades;
    low = std::max(low, high - kMostDecades);
  }
  Color color_of(double value) const { return mapped((std::log10(value) - low) / (high - low)); }
};

std::int64_t widest_number(const PictureAxis& axis) { return text_width(cat(axis.extent - 1)); }

struct Layout {
  std::int64_t gap;            // between panels
  std::int64_t left, top;      // of the first panel
  std::int64_t width, height;  // of all panels, gaps included
  std::int64_t legend;         // its left edge
  std::int64_t picture_width, picture_height;

  Layout(const HeatmapCells& cells, std::size_t title_lines) {
    const auto& [rows, columns, down, right] = cells.axes;
    std::int64_t names = 0;
    for (const std::string& name : cells.row_names) {
      names = std::max(names, text_width(name) + kGap);
    }
    gap = std::max(columns.cells(), rows.cells()) > 16 ? 3 : 6;
    left = kGap + kLetterHeight + kGap + names + widest_number(down) + 6 + kTick;
    top = kGap + static_cast<std::int64_t>(title_lines) * kTitleLine + kGap +
          (cells.column_names.empty() ? 0 : kLetterHeight + 5);
    width = columns.cells() * (columns.pixels + gap) - gap;
    height = rows.cells() * (rows.pixels + gap) - gap;
    legend = left + width + 2 * kGap;
    picture_width = std::max(legend + kBarWidth + kTick + 3 + 11 * kLetterWidth, kMinWidth);
    const std::int64_t axis_height = 3 + kTick + 2 * kLetterHeight + 7;
    picture_height = top + std::max(height + axis_height, kMinBar + kGap + 3 * kLegendLine) + kGap;
  }
  std::int64_t column(std::int64_t i, const PictureAxis& axis) const {
    return left + i * (axis.pixels + gap);
  }
  std::int64_t row(std::int64_t i, const PictureAxis& axis) const {
    return top + i * (axis.pixels + gap);
  }
};

// Texts along an axis, of which none may overlap the one before.
class Labels {
 public:
  explicit Labels(std::int64_t gap) : gap_(gap) {}
  // True if a text of that length fits with its middle there, which it then takes.
  bool take(std::int64_t middle, std::int64_t length) {
    if (middle - length / 2 < free_) return false;
    free_ = middle - length / 2 + length + gap_;
    return true;
  }

 private:
  std::int64_t gap_, free_ = 0;
};

struct Tick {
  std::int64_t number, middle;  // in pixels from the panel's edge
};

// The elements of a panel's axis that get a number: steps of a power of two, as channels are
// counted. Panels that are too small for two numbers have none but the first.
std::vector<Tick> ticks(const PictureAxis& axis, std::int64_t panel, std::int64_t room) {
  if (panel > 0 && axis.extent > 1 && axis.length() <= 2 * room) return {};
  std::int64_t step = 1;
  while (step < axis.extent && axis.length() * step / axis.extent < room) step *= 2;
  std::vector<Tick> result;
  for (std::int64_t at = 0; at < axis.extent; at += step) {
    result.push_back({at, at / axis.bin * axis.pixels + axis.pixels / 2});
  }
  return result;
}

class Drawing {
 public:
  Drawing(const HeatmapCells& cells, const std::vector<std::string>& title)
      : cells_(cells),
        scale_(cells.largest),
        layout_(cells, title.size()),
        svg_(layout_.picture_width, layout_.picture_height, kWhite, kInk) {
    std::int64_t y = kGap + kLetterHeight / 2;
    for (const std::string& line : title) {
      svg_.text(kGap, y, fitted(line, layout_.picture_width - 2 * kGap));
      y += kTitleLine;
    }
  }

  std::string svg() {
    panels();
    column_axis();
    row_axis();
    legend();
    return svg_.finish();
  }

 private:
  // Cells that are equal are the panel's own colour.
  void panels() {
    const auto& [rows, columns, down, right] = cells_.axes;
    std::map<Color, std::string> paths;
    std::size_t cell = 0, panel = 0;
    for (std::int64_t row = 0; row < rows.cells(); ++row) {
      for (std::int64_t column = 0; column < columns.cells(); ++column) {
        const Box box = {layout_.column(column, columns), layout_.row(row, rows), columns.pixels,
                         rows.pixels};
        const bool failed = cells_.failed[panel++] != 0;
        svg_.fill(box.grown(failed ? layout_.gap / 3 : 1), failed ? kFailed : kLine);
        svg_.fill(box, kEqual);
        for (std::int64_t y = 0; y < down.cells(); ++y) {
          for (std::int64_t x = 0; x < right.cells(); ++x, ++cell) {
            const bool finite = cells_.not_finite[cell] == 0;
            const double value = cells_.largest[cell];
            if (finite && value == 0) continue;
            paths[finite ? scale_.color_of(value) : kNotFinite] += Svg::path(
                {box.x + x * right.pixels, box.y + y * down.pixels, right.pixels, down.pixels});
          }
        }
      }
    }
    for (const auto& [color, path] : paths) svg_.boxes(path, color);
  }

  void column_axis() {
    const auto& [rows, columns, down, right] = cells_.axes;
    const std::int64_t bottom = layout_.top + layout_.height + 3;
    Labels numbers(kLetterWidth), names(kLetterWidth);
    for (std::int64_t column = 0; column < columns.cells(); ++column) {
      const std::int64_t left = layout_.column(column, columns);
      for (const Tick& tick : ticks(right, column, widest_number(right) + kGap)) {
        const std::string number = cat(tick.number);
        const std::int64_t x = left + tick.middle;
        if (!numbers.take(x, text_width(number))) continue;
        svg_.fill({x, bottom, 1, kTick}, kInk);
        svg_.text(x, bottom + kTick + 1 + kLetterHeight / 2, number, Anchor::middle);
      }
      if (cells_.column_names.empty()) continue;
      const std::string& name = cells_.column_names[static_cast<std::size_t>(column)];
      const std::int64_t middle = left + columns.pixels / 2;
      if (!names.take(middle, text_width(name))) continue;
      svg_.text(middle, layout_.top - 5 - kLetterHeight / 2, name, Anchor::middle);
    }
    svg_.text(layout_.left, bottom + kTick + 7 + kLetterHeight * 3 / 2,
              channel_text(right) + " ->");
  }

  void row_axis() {
    const auto& [rows, columns, down, right] = cells_.axes;
    const std::int64_t number_end = layout_.left - 3 - kTick - 3;
    const std::int64_t name_end = number_end - widest_number(down) - kGap;
    Labels numbers(1), names(3);
    for (std::int64_t row = 0; row < rows.cells(); ++row) {
      const std::int64_t top = layout_.row(row, rows);
      for (const Tick& tick : ticks(down, row, kLetterHeight + 3)) {
        const std::int64_t y = top + tick.middle;
        if (!numbers.take(y, kLetterHeight)) continue;
        svg_.fill({layout_.left - 3 - kTick, y, kTick, 1}, kInk);
        svg_.text(number_end, y, cat(tick.number), Anchor::end);
      }
      const std::int64_t middle = top + rows.pixels / 2;
      if (cells_.row_names.empty() || !names.take(middle, kLetterHeight)) continue;
      svg_.text(name_end, middle, cells_.row_names[static_cast<std::size_t>(row)], Anchor::end);
    }
    const std::string name = "<- " + channel_text(down);  // may be longer than the panels are high
    svg_.text_upwards(kGap + kLetterHeight / 2,
                      layout_.top + std::max(layout_.height, text_width(name)), name);
  }

  void legend() {
    const std::int64_t x = layout_.legend, text_x = x + kBarWidth + kTick + 3;
    std::int64_t y = layout_.top;
    if (scale_.any) y = color_bar(x, y, text_x);
    const auto swatch = [&](Color frame, std::int64_t line, Color color, const char* text) {
      const Box box = {x, y, kBarWidth, kSwatch};
      svg_.fill(box.grown(1), frame);
      svg_.fill(box.grown(1 - line), color);
      svg_.text(text_x, y + kSwatch / 2, text);
      y += kLegendLine;
    };
    const auto any = [](const std::vector<unsigned char>& flags) {
      return std::ranges::count(flags, 0) != std::ssize(flags);
    };
    swatch(kLine, 1, kEqual, "equal");
    if (any(cells_.not_finite)) swatch(kLine, 1, kNotFinite, "NaN or Inf");
    if (any(cells_.failed)) swatch(kFailed, 2, kWhite, "mismatches");
  }

  // Returns where it ends.
  std::int64_t color_bar(std::int64_t x, std::int64_t y, std::int64_t text_x) {
    const std::int64_t height = std::max(layout_.height - 3 * kLegendLine - kGap, kMinBar);
    const Box box = {x, y, kBarWidth, height};
    svg_.fill(box.grown(1), kLine);
    svg_.gradient(box, kMap);
    const auto decades = static_cast<std::int64_t>(std::lround(scale_.high - scale_.low));
    const std::int64_t step = std::max<std::int64_t>(1, ceil_div(decades * 20, height));
    for (std::int64_t decade = decades; decade >= 0; decade -= step) {
      const std::int64_t at = y + height - height * decade / decades;
      const bool least = decade == 0 && scale_.below;
      svg_.fill({x + kBarWidth, at, kTick, 1}, kInk);
      svg_.text(text_x, at, cat(least ? "<=" : "", "1e", static_cast<int>(scale_.low) + decade));
    }
    return y + height + kGap;
  }

  const HeatmapCells& cells_;
  const Scale scale_;
  const Layout layout_;
  Svg svg_;
};

}  // namespace

std::string heatmap_svg(const HeatmapCells& cells, std::vector<std::string> title) {
  if (const std::string binning = binning_text(cells.axes); !binning.empty()) {
    title.push_back(binning);
  }
  return Drawing(cells, title).svg();
}

}  // namespace convgrad::cli
