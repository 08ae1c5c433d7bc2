// heatmap_draw.cpp - the picture of a Heatmap: panels, axes, and the legend with its colour bar.
#include <algorithm>
#include <array>
#include <cmath>

#include "compare/heatmap.hpp"
#include "convgrad/error.hpp"
#include "report/report.hpp"

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

// The end of the text says more than its beginning: of a path, the file's name.
std::string fitted(const std::string& text, std::int64_t width) {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(width / kLetterWidth, 4));
  return text.size() <= most ? text : "..." + text.substr(text.size() - (most - 3));
}

}  // namespace

// Colours are by the logarithm, between two powers of ten.
struct Heatmap::Scale {
  bool any = false;          // some difference is finite and not 0
  bool below = false;        // some lie below low
  double low = 0, high = 0;  // exponents
  double part(double value) const { return (std::log10(value) - low) / (high - low); }
};

struct Heatmap::Layout {
  std::int64_t left, top;      // of the first panel
  std::int64_t width, height;  // of all panels, gaps included
  std::int64_t gap;            // between panels
  std::int64_t legend;         // its left edge
  std::int64_t column(std::int64_t i, const PictureAxis& axis) const {
    return left + i * (axis.pixels + gap);
  }
  std::int64_t row(std::int64_t i, const PictureAxis& axis) const {
    return top + i * (axis.pixels + gap);
  }
};

Heatmap::Scale Heatmap::scale() const {
  Scale scale;
  double least = 0, most = 0;
  for (const double value : largest_) {
    if (value == 0) continue;
    least = scale.any ? std::min(least, value) : value;
    most = std::max(most, value);
    scale.any = true;
  }
  if (!scale.any) return scale;
  scale.high = std::ceil(std::log10(most));
  scale.low = std::floor(std::log10(least));
  if (scale.low == scale.high) scale.low -= 1;
  scale.below = scale.low < scale.high - kMostDecades;
  scale.low = std::max(scale.low, scale.high - kMostDecades);
  return scale;
}

Color Heatmap::color_of(std::size_t cell, const Scale& scale) const {
  if (not_finite_[cell] != 0) return kNotFinite;
  return largest_[cell] == 0 ? kEqual : mapped(scale.part(largest_[cell]));
}

// "r=0", in 3-D "t=1 r=0"; of the first tap, where several share a row.
std::string Heatmap::tap_name(std::int64_t row) const {
  std::int64_t index = rows_.first_of(row);
  std::string name;
  for (std::size_t i = down_axes_.size(); i-- > 0;) {
    const std::size_t axis = down_axes_[i];
    name = cat(names_[axis], "=", index % shape_[axis], name.empty() ? "" : " ", name);
    index /= shape_[axis];
  }
  return name;
}

void Heatmap::draw_panels(Picture& picture, const Layout& layout, const Scale& scale) const {
  const auto width = static_cast<std::size_t>(columns_.cells * right_.cells);
  for (std::int64_t row = 0; row < rows_.cells; ++row) {
    for (std::int64_t column = 0; column < columns_.cells; ++column) {
      const std::int64_t left = layout.column(column, columns_), top = layout.row(row, rows_);
      for (std::int64_t y = 0; y < down_.cells; ++y) {
        for (std::int64_t x = 0; x < right_.cells; ++x) {
          const auto cell = static_cast<std::size_t>(row * down_.cells + y) * width +
                            static_cast<std::size_t>(column * right_.cells + x);
          picture.fill(left + x * right_.pixels, top + y * down_.pixels, right_.pixels,
                       down_.pixels, color_of(cell, scale));
        }
      }
      const bool failed = failed_[static_cast<std::size_t>(row * columns_.cells + column)] != 0;
      picture.frame(left, top, columns_.pixels, rows_.pixels, failed ? layout.gap / 3 : 1,
                    failed ? kFailed : kLine);
    }
  }
}

namespace {

// The elements of an axis that get a number: steps of a power of two, as channels are counted.
std::vector<std::int64_t> ticks(const PictureAxis& axis, std::int64_t room) {
  std::int64_t step = 1;
  while (step < axis.extent && axis.length() * step / axis.extent < room) step *= 2;
  std::vector<std::int64_t> result;
  for (std::int64_t at = 0; at < axis.extent; at += step) result.push_back(at);
  return result;
}

std::int64_t middle(const PictureAxis& axis, std::int64_t index) {
  return axis.cell_of(index) * axis.pixels + axis.pixels / 2;
}

}  // namespace

void Heatmap::draw_axes(Picture& picture, const Layout& layout) const {
  const std::int64_t bottom = layout.top + layout.height;
  const auto widest = static_cast<std::int64_t>(cat(right_.extent - 1).size()) * kLetterWidth;
  std::int64_t free = 0, free_name = 0;  // where the next text may begin
  for (std::int64_t column = 0; column < columns_.cells; ++column) {
    const std::int64_t left = layout.column(column, columns_);
    // Panels that are too narrow for two numbers have none but the first.
    const bool numbered = column == 0 || columns_.pixels > 2 * (widest + kGap);
    for (const std::int64_t at : ticks(right_, widest + kGap)) {
      if (!numbered) break;
      const std::int64_t x = left + middle(right_, at);
      const std::string number = cat(at);
      const std::int64_t begin = x - text_width(number) / 2;
      if (begin < free) continue;
      picture.fill(x, bottom + 3, 1, kTick, kInk);
      picture.text(begin, bottom + 3 + kTick + 1, number, kInk);
      free = begin + text_width(number) + kLetterWidth;
    }
    if (columns_.extent == 1) continue;
    const std::string name = cat(columns_.name, "=", columns_.first_of(column));
    const std::int64_t begin = left + (columns_.pixels - text_width(name)) / 2;
    if (begin < free_name) continue;
    picture.text(begin, layout.top - kLetterHeight - 5, name, kInk);
    free_name = begin + text_width(name) + kLetterWidth;
  }
  free = free_name = 0;
  const auto numbers = static_cast<std::int64_t>(cat(down_.extent - 1).size()) * kLetterWidth;
  for (std::int64_t row = 0; row < rows_.cells; ++row) {
    const std::int64_t top = layout.row(row, rows_);
    const bool numbered = row == 0 || down_.extent == 1 || rows_.pixels > 2 * (kLetterHeight + 3);
    for (const std::int64_t at : ticks(down_, kLetterHeight + 3)) {
      if (!numbered) break;
      const std::int64_t y = top + middle(down_, at);
      const std::int64_t begin = y - kLetterHeight / 2;
      if (begin < free) continue;
      const std::string number = cat(at);
      picture.fill(layout.left - 3 - kTick, y, kTick, 1, kInk);
      picture.text(layout.left - 3 - kTick - 3 - text_width(number), begin, number, kInk);
      free = begin + kLetterHeight + 1;
    }
    const std::int64_t begin = top + (rows_.pixels - kLetterHeight) / 2;
    if (rows_.extent == 1 || begin < free_name) continue;
    const std::string name = tap_name(row);
    picture.text(layout.left - 3 - kTick - 3 - numbers - kGap - text_width(name), begin, name,
                 kInk);
    free_name = begin + kLetterHeight + 3;
  }
  picture.text(layout.left, bottom + 3 + kTick + kLetterHeight + 7, right_.name + " ->", kInk);
  const std::string name = "<- " + down_.name;  // may be longer than the panels are high
  picture.text_upwards(kGap, std::max(bottom, layout.top + text_width(name)), name, kInk);
}

void Heatmap::draw_legend(Picture& picture, const Layout& layout, const Scale& scale) const {
  const std::int64_t x = layout.legend;
  std::int64_t y = layout.top;
  if (scale.any) {
    const std::int64_t bar = std::max(layout.height - 3 * (kSwatch + 8) - kGap, kMinBar);
    for (std::int64_t i = 0; i < bar; ++i) {
      const double part = 1 - (static_cast<double>(i) + 0.5) / static_cast<double>(bar);
      picture.fill(x, y + i, kBarWidth, 1, mapped(part));
    }
    picture.frame(x, y, kBarWidth, bar, 1, kLine);
    const auto decades = static_cast<std::int64_t>(std::lround(scale.high - scale.low));
    const std::int64_t step = std::max<std::int64_t>(1, (decades * 20 + bar - 1) / bar);
    for (std::int64_t decade = decades; decade >= 0; decade -= step) {
      const std::int64_t at = y + bar - bar * decade / decades;
      const bool least = decade == 0 && scale.below;
      picture.fill(x + kBarWidth, at, kTick, 1, kInk);
      picture.text(x + kBarWidth + kTick + 3, at - kLetterHeight / 2,
                   cat(least ? "<=" : "", "1e", static_cast<int>(scale.low) + decade), kInk);
    }
    y += bar + kGap;
  }
  const auto swatch = [&](Color color, const char* text) {
    picture.fill(x, y, kBarWidth, kSwatch, color);
    picture.frame(x, y, kBarWidth, kSwatch, 1, kLine);
    picture.text(x + kBarWidth + kTick + 3, y, text, kInk);
    y += kSwatch + 8;
  };
  swatch(kEqual, "equal");
  if (std::ranges::count(not_finite_, 0) != std::ssize(not_finite_)) {
    swatch(kNotFinite, "NaN or Inf");
  }
  if (std::ranges::count(failed_, 0) != std::ssize(failed_)) {
    picture.frame(x + 2, y + 2, kBarWidth - 4, kSwatch - 4, 2, kFailed);
    picture.text(x + kBarWidth + kTick + 3, y, "mismatches", kInk);
  }
}

void Heatmap::write(const std::string& path, const std::vector<std::string>& title,
                    const OutputOptions& options) const {
  std::int64_t names = 0;  // the widest
  for (std::int64_t row = 0; rows_.extent > 1 && row < rows_.cells; ++row) {
    names = std::max(names, text_width(tap_name(row)) + kGap);
  }
  const auto numbers = static_cast<std::int64_t>(cat(down_.extent - 1).size()) * kLetterWidth;
  Layout layout{};
  layout.gap = std::max(columns_.cells, rows_.cells) > 16 ? 3 : 6;
  layout.left = kGap + kLetterHeight + kGap + names + numbers + 6 + kTick;
  layout.top = kGap + static_cast<std::int64_t>(title.size()) * (kLetterHeight + 4) + kGap +
               (columns_.extent > 1 ? kLetterHeight + 5 : 0);
  layout.width = columns_.cells * (columns_.pixels + layout.gap) - layout.gap;
  layout.height = rows_.cells * (rows_.pixels + layout.gap) - layout.gap;
  layout.legend = layout.left + layout.width + 2 * kGap;
  const std::int64_t width = layout.legend + kBarWidth + kTick + 3 + 11 * kLetterWidth;
  const std::int64_t legend_height = kMinBar + kGap + 3 * (kSwatch + 8);
  const std::int64_t height =
      layout.top + std::max(layout.height + 3 + kTick + 2 * kLetterHeight + 7, legend_height) +
      kGap;
  Picture picture(std::max(width, kMinWidth), height, kWhite);
  for (std::size_t i = 0; i < title.size(); ++i) {
    picture.text(kGap, kGap + static_cast<std::int64_t>(i) * (kLetterHeight + 4),
                 fitted(title[i], picture.width() - 2 * kGap), kInk);
  }
  const Scale colors = scale();
  draw_panels(picture, layout, colors);
  draw_axes(picture, layout);
  draw_legend(picture, layout, colors);
  picture.write(path, options);
}

}  // namespace convgrad::cli
