// picture.hpp - a picture of rectangles and short texts, written as .png.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/output_file.hpp"

namespace convgrad::cli {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// One size of text: every character takes kLetterWidth x kLetterHeight pixels.
inline constexpr std::int64_t kLetterWidth = 8, kLetterHeight = 13;
std::int64_t text_width(std::string_view text);

// Coordinates count pixels from the upper left corner. What lies outside is cut off.
class Picture {
 public:
  Picture(std::int64_t width, std::int64_t height, Color background);

  std::int64_t width() const { return width_; }
  std::int64_t height() const { return height_; }

  void fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height, Color color);
  // Lines of `line` pixels around the rectangle, outside of it.
  void frame(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
             std::int64_t line, Color color);
  // The upper left corner of the first letter is at x, y. What is not ASCII becomes '?'.
  void text(std::int64_t x, std::int64_t y, std::string_view text, Color color);
  // Turned a quarter to the left, so that it is read upwards; x, y is the lower left corner.
  void text_upwards(std::int64_t x, std::int64_t y, std::string_view text, Color color);

  // 8 bits a channel, complete or not at all. Error(runtime) as OutputFile.
  void write(const std::string& path, const OutputOptions& options) const;

 private:
  template <typename Place>
  void letters(std::string_view text, Color color, Place place);

  std::int64_t width_, height_;
  std::vector<Color> pixels_;
};

}  // namespace convgrad::cli
