// picture.cpp - see picture.hpp.
#include "compare/picture.hpp"

#include <png.h>

#include <algorithm>

#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

constexpr std::uint8_t kLetters[95][kLetterHeight] = {
#include "compare/font_8x13.inc"
};

const std::uint8_t* rows_of(char letter) {
  const bool known = letter >= ' ' && letter <= '~';
  return kLetters[(known ? letter : '?') - ' '];
}

}  // namespace

std::int64_t text_width(std::string_view text) {
  return static_cast<std::int64_t>(text.size()) * kLetterWidth;
}

Picture::Picture(std::int64_t width, std::int64_t height, Color background)
    : width_(width),
      height_(height),
      pixels_(static_cast<std::size_t>(width * height), background) {}

void Picture::fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                   Color color) {
  const std::int64_t right = std::min(x + width, width_), bottom = std::min(y + height, height_);
  for (std::int64_t row = std::max<std::int64_t>(y, 0); row < bottom; ++row) {
    for (std::int64_t column = std::max<std::int64_t>(x, 0); column < right; ++column) {
      pixels_[static_cast<std::size_t>(row * width_ + column)] = color;
    }
  }
}

void Picture::frame(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                    std::int64_t line, Color color) {
  fill(x - line, y - line, width + 2 * line, line, color);
  fill(x - line, y + height, width + 2 * line, line, color);
  fill(x - line, y, line, height, color);
  fill(x + width, y, line, height, color);
}

// place(along, down) is where a pixel of the line of text goes.
template <typename Place>
void Picture::letters(std::string_view text, Color color, Place place) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint8_t* rows = rows_of(text[i]);
    for (std::int64_t down = 0; down < kLetterHeight; ++down) {
      for (std::int64_t bit = 0; bit < kLetterWidth; ++bit) {
        if ((rows[down] >> (7 - bit) & 1) == 0) continue;
        const auto [x, y] = place(static_cast<std::int64_t>(i) * kLetterWidth + bit, down);
        fill(x, y, 1, 1, color);
      }
    }
  }
}

void Picture::text(std::int64_t x, std::int64_t y, std::string_view text, Color color) {
  letters(text, color, [&](std::int64_t along, std::int64_t down) {
    return std::pair{x + along, y + down};
  });
}

void Picture::text_upwards(std::int64_t x, std::int64_t y, std::string_view text, Color color) {
  letters(text, color, [&](std::int64_t along, std::int64_t down) {
    return std::pair{x + down, y - along};
  });
}

void Picture::write(const std::string& path, const OutputOptions& options) const {
  static_assert(sizeof(Color) == 3, "libpng reads pixels of three bytes");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  image.flags = PNG_IMAGE_FLAG_FAST;  // no filters, which are for photographs
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::uint8_t> bytes(size);
  const bool made =
      png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr) != 0;
  if (!made) throw Error(ErrorKind::runtime, cat(path, ": cannot make a PNG: ", image.message));
  OutputFile file(path, options);
  file.write(bytes.data(), size);
  file.commit();
}

}  // namespace convgrad::cli
