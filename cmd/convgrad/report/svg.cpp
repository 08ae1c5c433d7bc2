// svg.cpp - see svg.hpp.
#include "report/svg.hpp"

#include <cstdio>

#include "convgrad/error.hpp"
#include "report/xml_text.hpp"

namespace convgrad::cli {
namespace {

// From the middle of a digit of 13 pixels down to the line it stands on.
constexpr std::int64_t kBaseline = 5;

std::string hex(Color color) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", color.red, color.green, color.blue);
  return text;
}

std::string rect(const Box& box, const std::string& paint) {
  return cat("<rect x=\"", box.x, "\" y=\"", box.y, "\" width=\"", box.width, "\" height=\"",
             box.height, "\" fill=\"", paint, "\"/>\n");
}

}  // namespace

std::int64_t text_width(std::string_view text) {
  return static_cast<std::int64_t>(text.size()) * kLetterWidth;
}

Svg::Svg(std::int64_t width, std::int64_t height, Color background, Color ink)
    : body_(cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                "\" viewBox=\"0 0 ", width, " ", height,
                "\" font-family=\"monospace\" font-size=\"", kLetterHeight, "\" fill=\"", hex(ink),
                "\" shape-rendering=\"crispEdges\">\n")) {
  fill({0, 0, width, height}, background);
}

void Svg::fill(const Box& box, Color color) { body_ += rect(box, hex(color)); }

void Svg::gradient(const Box& box, std::span<const Color> colors) {
  body_ += "<linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n";
  for (std::size_t i = 0; i < colors.size(); ++i) {
    const double offset = static_cast<double>(i) / static_cast<double>(colors.size() - 1);
    body_ += cat("<stop offset=\"", offset, "\" stop-color=\"", hex(colors[i]), "\"/>\n");
  }
  body_ += "</linearGradient>\n" + rect(box, "url(#scale)");
}

void Svg::boxes(const std::string& paths, Color color) {
  body_ += cat("<path fill=\"", hex(color), "\" d=\"", paths, "\"/>\n");
}

std::string Svg::path(const Box& box) {
  return cat("M", box.x, " ", box.y, "h", box.width, "v", box.height, "h-", box.width, "z");
}

void Svg::text(std::int64_t x, std::int64_t y, std::string_view text, Anchor anchor) {
  const char* place = anchor == Anchor::middle ? " text-anchor=\"middle\""
                      : anchor == Anchor::end  ? " text-anchor=\"end\""
                                               : "";
  body_ +=
      cat("<text x=\"", x, "\" y=\"", y + kBaseline, "\"", place, ">", xml_text(text), "</text>\n");
}

void Svg::text_upwards(std::int64_t x, std::int64_t y, std::string_view text) {
  body_ += cat("<text transform=\"translate(", x + kBaseline, " ", y, ") rotate(-90)\">",
               xml_text(text), "</text>\n");
}

}  // namespace convgrad::cli
