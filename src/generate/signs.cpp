#include "generate/signs.hpp"

#include <algorithm>
#include <numeric>

#include "generate/generate.hpp"
#include "generate/random_numbers.hpp"

namespace convgrad {
namespace {

// The second half of the counter says what the numbers are for; those of generate.cpp are below.
constexpr std::uint32_t kSigns = 4;
constexpr std::int64_t kBits = 128;  // that one counter gives, each the sign of a pixel

}  // namespace

PixelSigns::PixelSigns(std::span<const std::int64_t> dy_shape, bool channels_last,
                       std::uint64_t seed)
    : pixel_step_(dy_shape.size()), seed_(seed) {
  const std::size_t channels = channels_last ? dy_shape.size() - 1 : 1;
  std::int64_t step = 1;
  for (std::size_t axis = dy_shape.size(); axis-- > 0;) {
    if (axis == channels) continue;
    pixel_step_[axis] = step;
    step *= dy_shape[axis];
  }
}

template <typename Bits, typename Flip>
void PixelSigns::flip_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                          Bits* elements, const Flip& flip) const {
  const std::int64_t run = end.back() - begin.back(), step = pixel_step_.back();
  std::int64_t group = -1;  // whose bits are at hand
  PhiloxCounter bits{};
  const auto is_negative = [&](std::int64_t pixel) {
    if (pixel / kBits != group) bits = numbers_at(group = pixel / kBits, kSigns, seed_);
    const std::int64_t i = pixel % kBits;
    return (bits[static_cast<std::size_t>(i / 32)] >> (i % 32) & 1) != 0;
  };
  for_each_run(begin, end, [&](std::span<const std::int64_t> at) {
    const std::int64_t pixel =
        std::inner_product(at.begin(), at.end(), pixel_step_.begin(), std::int64_t{0});
    if (step == 0) {
      if (is_negative(pixel)) std::for_each_n(elements, run, flip);
    } else {
      for (std::int64_t i = 0; i < run; ++i) {
        if (is_negative(pixel + i * step)) flip(elements[i]);
      }
    }
    elements += run;
  });
}

void PixelSigns::apply(DType dtype, std::span<const std::int64_t> begin,
                       std::span<const std::int64_t> end, void* elements) const {
  const auto flip_sign_bit = [&]<typename Bits>(Bits* bits) {
    constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    flip_box(begin, end, bits, [](Bits& value) { value = static_cast<Bits>(value ^ kSign); });
  };
  if (dtype == DType::e4m3fnuz || dtype == DType::e5m2fnuz) {
    // These have no -0: its bits are the NaN.
    flip_box(begin, end, static_cast<std::uint8_t*>(elements), [](std::uint8_t& value) {
      if ((value & 0x7f) != 0) value = static_cast<std::uint8_t>(value ^ 0x80);
    });
    return;
  }
  switch (dtype_bytes(dtype)) {
    case 1:
      return flip_sign_bit(static_cast<std::uint8_t*>(elements));
    case 2:
      return flip_sign_bit(static_cast<std::uint16_t*>(elements));
    case 4:
      return flip_sign_bit(static_cast<std::uint32_t*>(elements));
    default:
      return flip_sign_bit(static_cast<std::uint64_t*>(elements));
  }
}

}  // namespace convgrad
