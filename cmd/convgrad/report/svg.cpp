// svg.cpp - see svg.hpp.
#include "report/svg.hpp"

#include <CLI/StringTools.hpp>
#include <cstdio>

#include "convgrad/error.hpp"
#include "options/refuse.hpp"
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

const char* anchor_text(Anchor anchor) {
  if (anchor == Anchor::start) return "";
  return anchor == Anchor::middle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
}

// How a label differs from other texts: a white seam keeps it readable over lines.
std::string label_style(Color color) {
  return cat(" font-size=\"", kLabelHeight, "\" fill=\"", hex(color),
             "\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"");
}

std::string title_text(std::string_view title) {
  return title.empty() ? "" : cat("<title>", xml_text(title), "</title>");
}

// The outline of a mark around 0, of about the same area for each.
const char* outline(Mark mark) {
  switch (mark) {
    case Mark::square:
      return "M-4 -4h8v8h-8z";
    case Mark::diamond:
      return "M0 -6l6 6l-6 6l-6 -6z";
    case Mark::triangle:
      return "M0 -6l6 10h-12z";
    default:
      return "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z";
  }
}

}  // namespace

std::int64_t text_width(std::string_view text) {
  return static_cast<std::int64_t>(text.size()) * kLetterWidth;
}

std::int64_t label_width(std::string_view text) {
  return static_cast<std::int64_t>(text.size()) * kLetterWidth * kLabelHeight / kLetterHeight;
}

std::string fitted(const std::string& text, std::int64_t width) {
  const auto most = static_cast<std::size_t>(width / kLetterWidth);
  if (text.size() <= most) return text;
  std::size_t cut = text.size() - (most - 3);
  while (cut < text.size() && (text[cut] & 0xc0) == 0x80) ++cut;  // within a letter of UTF-8
  return "..." + text.substr(cut);
}

void check_picture_name(const char* flag, const std::string& path) {
  if (CLI::detail::to_lower(path).ends_with(".png")) {
    misuse(flag, ": ", path,
           " ends in .png, expected .svg (pictures are SVG now); name another file");
  }
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
  body_ += cat("<text x=\"", x, "\" y=\"", y + kBaseline, "\"", anchor_text(anchor), ">",
               xml_text(text), "</text>\n");
}

void Svg::label(std::int64_t x, std::int64_t y, std::string_view text, Color color, Anchor anchor) {
  body_ += cat("<text x=\"", x, "\" y=\"", y + kBaseline - 1, "\"", anchor_text(anchor),
               label_style(color), ">", xml_text(text), "</text>\n");
}

void Svg::turned_label(std::int64_t x, std::int64_t y, double degrees, std::string_view text,
                       Color color) {
  body_ += cat("<text transform=\"translate(", x, " ", y, ") rotate(", -degrees, ")\"",
               label_style(color), ">", xml_text(text), "</text>\n");
}

void Svg::text_upwards(std::int64_t x, std::int64_t y, std::string_view text) {
  body_ += cat("<text transform=\"translate(", x + kBaseline, " ", y, ") rotate(-90)\">",
               xml_text(text), "</text>\n");
}

void Svg::line(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2, Color color,
               std::int64_t width, std::string_view title) {
  const bool sharp = x1 == x2 || y1 == y2;
  body_ += cat("<line x1=\"", x1, "\" y1=\"", y1, "\" x2=\"", x2, "\" y2=\"", y2, "\" stroke=\"",
               hex(color), "\" stroke-width=\"", width, "\"",
               sharp ? "" : " shape-rendering=\"auto\"", ">", title_text(title), "</line>\n");
}

void Svg::mark(std::int64_t x, std::int64_t y, Mark mark, Color color, bool filled,
               std::string_view title) {
  const std::string own = hex(color), white = "#ffffff";
  body_ +=
      cat("<path transform=\"translate(", x, " ", y, ")\" d=\"", outline(mark), "\" fill=\"",
          filled ? own : white, "\" stroke=\"", filled ? white : own, "\" stroke-width=\"",
          filled ? "1" : "1.5", "\" shape-rendering=\"auto\">", title_text(title), "</path>\n");
}

}  // namespace convgrad::cli
