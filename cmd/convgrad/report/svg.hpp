// svg.hpp - a picture of rectangles, lines, marks and short texts, as SVG.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace convgrad::cli {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
  auto operator<=>(const Color&) const = default;
};

// In pixels, from the upper left corner of the picture.
struct Box {
  std::int64_t x = 0, y = 0, width = 0, height = 0;
  Box grown(std::int64_t line) const {
    return {x - line, y - line, width + 2 * line, height + 2 * line};
  }
};

// At most: the viewer chooses the font, whose letters all have one width.
inline constexpr std::int64_t kLetterWidth = 8, kLetterHeight = 13;
std::int64_t text_width(std::string_view text);
// The same of labels, whose letters are smaller.
inline constexpr std::int64_t kLabelHeight = 11;
std::int64_t label_width(std::string_view text);
// The text, or "..." and its end: of a path, the file's name says more than its folders.
std::string fitted(const std::string& text, std::int64_t width);

enum class Anchor { start, middle, end };  // which part of a text is at its x
enum class Mark { circle, square, diamond, triangle };

// Error(usage) for a name that promises another kind of picture; `flag` gave it.
void check_picture_name(const char* flag, const std::string& path);

class Svg {
 public:
  Svg(std::int64_t width, std::int64_t height, Color background, Color ink);

  void fill(const Box& box, Color color);
  // From the first color at the bottom to the last at the top. Once in a picture.
  void gradient(const Box& box, std::span<const Color> colors);
  // Boxes of one color, as path() writes them: a third of the bytes of fill().
  void boxes(const std::string& paths, Color color);
  static std::string path(const Box& box);
  // y is the middle of the letters.
  void text(std::int64_t x, std::int64_t y, std::string_view text, Anchor anchor = Anchor::start);
  void label(std::int64_t x, std::int64_t y, std::string_view text, Color color,
             Anchor anchor = Anchor::start);
  // A label whose letters stand on the line from there on, turned to the left by so many degrees.
  void turned_label(std::int64_t x, std::int64_t y, double degrees, std::string_view text,
                    Color color);
  // Turned a quarter to the left: read upwards, from y on; x is the middle of the letters.
  void text_upwards(std::int64_t x, std::int64_t y, std::string_view text);
  // A viewer shows the title of a line or mark that is pointed at.
  void line(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2, Color color,
            std::int64_t width, std::string_view title = "");
  // Around a point.
  void mark(std::int64_t x, std::int64_t y, Mark mark, Color color, bool filled,
            std::string_view title);

  // The whole file.
  std::string finish() const { return body_ + "</svg>\n"; }

 private:
  std::string body_;
};

}  // namespace convgrad::cli
