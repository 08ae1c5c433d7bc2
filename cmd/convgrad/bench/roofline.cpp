// roofline.cpp - see roofline.hpp.
#include "bench/roofline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <set>

#include "bench/label_places.hpp"
#include "convgrad/error.hpp"
#include "report/report.hpp"
#include "report/svg.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kWidth = 900, kPlotHeight = 520;
constexpr std::int64_t kMargin = 12, kTitleLine = kLetterHeight + 4, kLegendLine = 20;
constexpr std::int64_t kLeft = 84, kRight = kWidth - 40;
constexpr std::int64_t kMarkRadius = 6, kLineRadius = 2;
// A label within this distance of where it would touch its mark needs no line between them.
constexpr double kNear = 9;
constexpr double kCrowd = 60;  // how far around a mark others make it hard to label

constexpr Color kWhite{255, 255, 255}, kInk{40, 40, 40}, kRoof{90, 90, 90};
constexpr Color kDecade{205, 205, 205}, kGrid{236, 236, 236}, kLeader{170, 170, 170};
// Okabe and Ito's, which those who see fewer colours can tell apart, too.
constexpr std::array<Color, 6> kColors = {
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}}};
constexpr std::array<Color, 3> kPeerColors = {{{213, 50, 50}, {150, 110, 0}, {110, 60, 160}}};
constexpr std::array<Mark, 3> kMarks = {Mark::circle, Mark::triangle, Mark::diamond};
constexpr std::array<Mark, 3> kPeerMarks = {Mark::square, Mark::diamond, Mark::triangle};

struct Look {
  Mark mark = Mark::circle;
  Color color;
};

// Of the i-th own or foreign series.
Look look_of(std::size_t i, bool peer) {
  if (peer) return {kPeerMarks[i % kPeerMarks.size()], kPeerColors[i % kPeerColors.size()]};
  return {kMarks[i / kColors.size() % kMarks.size()], kColors[i % kColors.size()]};
}

std::vector<Look> looks_of(const std::vector<RooflineSeries>& all) {
  std::array<std::size_t, 2> counts = {0, 0};
  std::vector<Look> looks;
  looks.reserve(all.size());
  for (const RooflineSeries& series : all) {
    looks.push_back(look_of(counts[series.peer ? 1 : 0]++, series.peer));
  }
  return looks;
}

// Numbers from low to high, whose logarithms are spread evenly over pixels.
struct LogAxis {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  std::int64_t from = 0, to = 0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void check() {
    if (low > high) low = 1;
    high = std::max(high, 10 * low);
  }
  double at(double value) const {
    return static_cast<double>(from) +
           static_cast<double>(to - from) * std::log(value / low) / std::log(high / low);
  }
  std::int64_t pixel(double value) const { return std::lround(at(value)); }
  double pixels_of_a_decade() const {
    return std::abs(static_cast<double>(to - from)) / std::log10(high / low);
  }
};

class RooflineDrawing {
 public:
  explicit RooflineDrawing(const Roofline& roofline)
      : roofline_(roofline),
        looks_(looks_of(roofline.series)),
        legend_(legend_places()),
        top_(2 * kMargin + std::ssize(roofline.title) * kTitleLine),
        bottom_(top_ + kPlotHeight),
        svg_(kWidth, bottom_ + 4 * kMargin + legend_lines() * kLegendLine + kMargin, kWhite, kInk),
        places_({kLeft, top_, kWidth - 4 - kLeft, kPlotHeight}) {
    set_axes();
  }

  std::string svg() {
    std::int64_t y = kMargin + kLetterHeight / 2;
    for (const std::string& line : roofline_.title) {
      svg_.text(kMargin, y, fitted(line, kWidth - 2 * kMargin));
      y += kTitleLine;
    }
    grid();
    for (const auto& series : roofline_.series) {
      for (const RooflineDot& dot : series.dots) places_.take({around(dot)}, kByMark);
    }
    join_peers();
    for (const Roof& roof : roofline_.roofs) slope(roof);
    for (const Roof& roof : roofline_.roofs) peaks(roof);
    label_dots();
    // The own ones last, over the others.
    for (const bool peers : {true, false}) dots(peers);
    legend();
    return svg_.finish();
  }

 private:
  struct Item {
    std::int64_t x = 0, line = 0;
  };

  // Of the legend's items: in rows, as many as fit.
  std::vector<Item> legend_places() const {
    std::vector<Item> items;
    Item next = {kLeft, 0};
    for (const RooflineSeries& series : roofline_.series) {
      const std::int64_t width = 2 * kMarkRadius + 6 + text_width(series.name) + 3 * kLetterWidth;
      if (next.x > kLeft && next.x + width > kRight) next = {kLeft, next.line + 1};
      items.push_back(next);
      next.x += width;
    }
    return items;
  }
  std::int64_t legend_lines() const { return legend_.empty() ? 0 : legend_.back().line + 1; }

  void set_axes() {
    for (const RooflineSeries& series : roofline_.series) {
      for (const RooflineDot& dot : series.dots) {
        for (const double margin : {0.6, 1.6}) x_.include(dot.flop_per_byte * margin);
        for (const double margin : {0.6, 1.6}) y_.include(dot.gflops * margin);
      }
    }
    // A part of each slope, for its label, and of each peak right of where they meet.
    for (const Roof& roof : roofline_.roofs) {
      for (const auto& [name, gflops] : roof.peaks) {
        y_.include(gflops * 1.6);
        y_.include(gflops / 8);
        if (!roof.gbytes_per_s) continue;
        x_.include(gflops / *roof.gbytes_per_s / 8);
        x_.include(gflops / *roof.gbytes_per_s * 2);
      }
    }
    x_.check();
    y_.check();
    x_.from = kLeft;
    x_.to = kRight;
    y_.from = bottom_;
    y_.to = top_;
  }

  Box around(const RooflineDot& dot) const {
    return Box{x_.pixel(dot.flop_per_byte), y_.pixel(dot.gflops), 0, 0}.grown(kMarkRadius);
  }

  void grid() {
    ticks(x_, 5 * kLetterWidth, [&](std::int64_t x, bool decade, const std::string& number) {
      svg_.line(x, top_, x, bottom_, decade ? kDecade : kGrid, 1);
      if (!number.empty()) svg_.text(x, bottom_ + kMargin, number, Anchor::middle);
    });
    ticks(y_, kLetterHeight + 3, [&](std::int64_t y, bool decade, const std::string& number) {
      svg_.line(kLeft, y, kRight, y, decade ? kDecade : kGrid, 1);
      if (!number.empty()) svg_.text(kLeft - 6, y, number, Anchor::end);
    });
    svg_.text((kLeft + kRight) / 2, bottom_ + kMargin + kTitleLine,
              "FLOP per byte of x, dy and dw, each moved once", Anchor::middle);
    svg_.text_upwards(kMargin + kLetterHeight / 2, bottom_ - kPlotHeight / 2 + 28, "GFLOP/s");
  }

  // draw(pixel, whether it is a power of ten, its number or ""): 1, 2 and 5 of each decade. A
  // number takes `room` pixels.
  template <typename Draw>
  static void ticks(const LogAxis& axis, std::int64_t room, Draw&& draw) {
    const bool all = axis.pixels_of_a_decade() * std::log10(2) > static_cast<double>(room);
    for (int power = static_cast<int>(std::floor(std::log10(axis.low)));
         std::pow(10, power) <= axis.high; ++power) {
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10, power);
        if (value < axis.low || value > axis.high) continue;
        const bool decade = digit == 1;
        draw(axis.pixel(value), decade, decade || all ? general(value, 7) : "");
      }
    }
  }

  void slope(const Roof& roof) {
    if (!roof.gbytes_per_s) return;
    double highest = y_.low;
    for (const auto& [name, gflops] : roof.peaks) highest = std::max(highest, gflops);
    const double speed = *roof.gbytes_per_s, from = std::max(x_.low, y_.low / speed);
    const double to = std::min(x_.high, (roof.peaks.empty() ? y_.high : highest) / speed);
    if (!(from < to)) return;
    const double x1 = x_.at(from), y1 = y_.at(from * speed);
    const double x2 = x_.at(to), y2 = y_.at(to * speed);
    const std::string text = cat("reading memory", roof.suffix, ": ", general(speed, 4), " GB/s");
    roof_line(std::lround(x1), std::lround(y1), std::lround(x2), std::lround(y2), text);
    label_slope(x1, y1, x2, y2, text);
  }

  void roof_line(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2,
                 const std::string& text) {
    svg_.line(x1, y1, x2, y2, kRoof, 2, text);
    places_.take(boxes_along(x1, y1, x2, y2, 1), kByLine);
  }

  void peaks(const Roof& roof) {
    for (const auto& [name, gflops] : roof.peaks) {
      const double from = roof.gbytes_per_s ? gflops / *roof.gbytes_per_s : x_.low;
      const std::int64_t x = x_.pixel(std::max(from, x_.low)), y = y_.pixel(gflops);
      const std::string text = cat(name, roof.suffix, ": ", general(gflops, 4), " GFLOP/s");
      roof_line(x, y, kRight, y, text);
      label_peak(x, y, text);
    }
  }

  // In front of the line, where no layer can be; else over or under it.
  void label_peak(std::int64_t x, std::int64_t y, const std::string& text) {
    constexpr std::int64_t kLine = kLabelHeight / 2 + 4;
    const std::int64_t width = label_width(text);
    std::vector<std::pair<std::int64_t, std::int64_t>> places;  // of its left end
    for (const std::int64_t down : {0, -8, 8}) places.emplace_back(x - 8 - width, y + down);
    for (std::int64_t left = x + 4; left < kRight; left += 8) {
      for (const std::int64_t down : {-kLine, kLine}) places.emplace_back(left, y + down);
    }
    for (const auto& [left, middle] : places) {
      const std::vector<Box> box = {{left, middle - kLabelHeight / 2, width, kLabelHeight}};
      if (!places_.free(box, kByAny)) continue;
      places_.take(box, kByLabel);
      svg_.label(left, middle, text, kRoof);
      return;
    }
  }

  // Its letters stand a little above the line, as far down as there is room.
  void label_slope(double x1, double y1, double x2, double y2, const std::string& text) {
    const double length = std::hypot(x2 - x1, y2 - y1);
    const double right = (x2 - x1) / length, down = (y2 - y1) / length;  // of a step along it
    const auto width = static_cast<double>(label_width(text));
    for (double along = 10; along + width < length; along += 8) {
      // Where letters stand, and where their middles are.
      const auto at = [&](double step, double up) {
        return std::pair{std::lround(x1 + right * (along + step) + down * up),
                         std::lround(y1 + down * (along + step) - right * up)};
      };
      const auto [begin_x, begin_y] = at(0, 4 + kLabelHeight / 2.0);
      const auto [end_x, end_y] = at(width, 4 + kLabelHeight / 2.0);
      const std::vector<Box> boxes = boxes_along(begin_x, begin_y, end_x, end_y, kLabelHeight / 2);
      if (!places_.free(boxes, kByMark | kByLabel)) continue;
      places_.take(boxes, kByLabel);
      const auto [x, y] = at(0, 5);
      const double degrees = -std::atan2(down, right) * 180 / std::numbers::pi;
      svg_.turned_label(x, y, std::round(degrees * 10) / 10, text, kRoof);
      return;
    }
  }

  // A line through all dots of a layer that stand above each other.
  void join_peers() {
    const auto& all = roofline_.series;
    if (std::ranges::none_of(all, &RooflineSeries::peer)) return;
    std::map<std::pair<std::string, std::int64_t>, std::pair<std::int64_t, std::int64_t>> spans;
    for (const RooflineSeries& series : all) {
      for (const RooflineDot& dot : series.dots) {
        const std::int64_t x = x_.pixel(dot.flop_per_byte), y = y_.pixel(dot.gflops);
        auto& [low, high] = spans.try_emplace({dot.name, x}, y, y).first->second;
        low = std::min(low, y);
        high = std::max(high, y);
      }
    }
    for (const auto& [layer, span] : spans) {
      svg_.line(layer.second, span.first, layer.second, span.second, kLeader, 1);
      places_.take(boxes_along(layer.second, span.first, layer.second, span.second, 1), kByLine);
    }
  }

  // Those among many others first, while there is room.
  void label_dots() {
    std::vector<const RooflineDot*> own, all;
    for (const RooflineSeries& series : roofline_.series) {
      for (const RooflineDot& dot : series.dots) {
        all.push_back(&dot);
        if (!series.peer) own.push_back(&dot);
      }
    }
    const auto room = [&](const RooflineDot* dot) {
      const auto near = [&](const RooflineDot* other) {
        return std::hypot(x_.at(other->flop_per_byte) - x_.at(dot->flop_per_byte),
                          y_.at(other->gflops) - y_.at(dot->gflops)) < kCrowd;
      };
      return -std::ranges::count_if(all, near);
    };
    std::ranges::stable_sort(own, {}, room);
    std::set<std::string> labelled;
    for (const RooflineDot* dot : own) {
      if (labelled.count(dot->name) == 0 && label(*dot)) labelled.insert(dot->name);
    }
  }

  // As near as there is room, if possible over no line; from further away with a line to it, if
  // possible under no mark.
  bool label(const RooflineDot& dot) {
    return label(dot, kNear, kByAny, 0) || label(dot, kNear, kByMark | kByLabel, 0) ||
           label(dot, kFarthestLabel, kByAny, kByMark | kByLabel) ||
           label(dot, kFarthestLabel, kByAny, kByLabel) ||
           label(dot, kFarthestLabel, kByMark | kByLabel, kByLabel);
  }
  bool label(const RooflineDot& dot, double farthest, int not_over, int no_line_over) {
    const std::int64_t x = x_.pixel(dot.flop_per_byte), y = y_.pixel(dot.gflops);
    const std::int64_t width = label_width(dot.name);
    for (const LabelPlace& place : candidates_) {
      if (place.distance > farthest) return false;
      const std::int64_t left = x + place.right + (place.side - 1) * width / 2;
      const Box box = {left, y + place.down - kLabelHeight / 2, width, kLabelHeight};
      if (!places_.free({box}, not_over)) continue;
      if (no_line_over != 0 && !lead(x, y, box, no_line_over)) continue;
      places_.take({box.grown(1)}, kByLabel);
      svg_.label(left, y + place.down, dot.name, kInk);
      return true;
    }
    return false;
  }

  // Draws a line from a mark to the label, if there is room.
  bool lead(std::int64_t x, std::int64_t y, const Box& box, int not_over) {
    const std::int64_t end_x = std::clamp(x, box.x - 2, box.x + box.width + 2);
    const std::int64_t end_y = std::clamp(y, box.y, box.y + box.height);
    // It begins where it has left the mark's own box.
    const std::int64_t reach = std::max(std::abs(end_x - x), std::abs(end_y - y));
    const std::int64_t out = std::min(kMarkRadius + kLineRadius + 1, reach);
    const std::vector<Box> line = boxes_along(
        x + (end_x - x) * out / reach, y + (end_y - y) * out / reach, end_x, end_y, kLineRadius);
    if (!places_.free(line, not_over)) return false;
    places_.take(line, kByLabel);
    svg_.line(x, y, end_x, end_y, kLeader, 1);
    return true;
  }

  void dots(bool peers) {
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      const RooflineSeries& series = roofline_.series[i];
      if (series.peer != peers) continue;
      for (const RooflineDot& dot : series.dots) {
        svg_.mark(x_.pixel(dot.flop_per_byte), y_.pixel(dot.gflops), looks_[i].mark,
                  looks_[i].color, !series.peer, dot.note);
      }
    }
  }

  void legend() {
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      const RooflineSeries& series = roofline_.series[i];
      const std::int64_t y = bottom_ + 5 * kMargin - 4 + legend_[i].line * kLegendLine;
      const std::int64_t x = legend_[i].x + kMarkRadius;
      svg_.mark(x, y, looks_[i].mark, looks_[i].color, !series.peer, series.name);
      svg_.text(x + kMarkRadius + 6, y, series.name);
    }
  }

  const Roofline& roofline_;
  const std::vector<Look> looks_;
  const std::vector<Item> legend_;
  const std::int64_t top_, bottom_;
  Svg svg_;
  Places places_;
  const std::vector<LabelPlace> candidates_ = label_places(kMarkRadius + 4);
  LogAxis x_, y_;
};

}  // namespace

std::string roofline_svg(const Roofline& roofline) { return RooflineDrawing(roofline).svg(); }

}  // namespace convgrad::cli
