// signs_test.cpp - signs of pixels: alike in every layout, dtype and cut into boxes.
#include "generate/signs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/integers.hpp"

using namespace convgrad;

namespace {

constexpr std::int64_t N = 3, Z = 2, P = 5, Q = 7, K = 4;
constexpr std::uint64_t kSeed = (std::uint64_t{9} << 32) + 5;

using Shape = std::vector<std::int64_t>;

std::vector<float> signed_ones(const Shape& shape, bool channels_last, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(N * Z * P * Q * K), 1);
  PixelSigns(shape, channels_last, seed)
      .apply(DType::f32, Shape(shape.size(), 0), shape, values.data());
  return values;
}

}  // namespace

TEST_CASE("a pixel has the same sign in every layout, and so have its channels") {
  const PixelSigns signs(Shape{N, Z, P, Q, K}, true, kSeed);
  const std::vector<float> last = signed_ones({N, Z, P, Q, K}, true, kSeed);
  const std::vector<float> first = signed_ones({N, K, Z, P, Q}, false, kSeed);
  const std::vector<float> other = signed_ones({N, Z, P, Q, K}, true, kSeed + 1);
  const std::int64_t inner = Z * P * Q;
  int negative = 0, different = 0;
  for (std::int64_t pixel = 0; pixel < N * inner; ++pixel) {
    const float want = signs.is_negative(pixel) ? -1 : 1;
    negative += want < 0 ? 1 : 0;
    different += other[static_cast<std::size_t>(pixel * K)] != want ? 1 : 0;
    for (std::int64_t k = 0; k < K; ++k) {
      CHECK(last[static_cast<std::size_t>(pixel * K + k)] == want);
      const std::int64_t n = pixel / inner;
      CHECK(first[static_cast<std::size_t>((n * K + k) * inner + pixel % inner)] == want);
    }
  }
  CHECK(std::abs(negative - 105) < 30);  // of 210, 4 standard deviations
  CHECK(std::abs(different - 105) < 30);
  // A row of the two images, with one channel: the same pixels again.
  CHECK(PixelSigns(Shape{N, Z * P * Q, 1}, true, kSeed).is_negative(200) == signs.is_negative(200));
}

TEST_CASE("signs of a box are those of the whole") {
  const Shape shape = {N, K, P, Q};
  const PixelSigns signs(shape, false, kSeed);
  std::vector<float> whole(static_cast<std::size_t>(N * K * P * Q), 1);
  signs.apply(DType::f32, Shape{0, 0, 0, 0}, shape, whole.data());
  const Shape begin = {1, 2, 1, 3}, end = {3, 4, 4, 6};
  std::vector<float> box(2 * 2 * 3 * 3, 1);
  signs.apply(DType::f32, begin, end, box.data());
  std::size_t at = 0;
  for (std::int64_t n = 1; n < 3; ++n)
    for (std::int64_t k = 2; k < 4; ++k)
      for (std::int64_t p = 1; p < 4; ++p)
        for (std::int64_t q = 3; q < 6; ++q) {
          CHECK(box[at++] == whole[static_cast<std::size_t>(((n * K + k) * P + p) * Q + q)]);
        }
  signs.apply(DType::f32, begin, Shape{3, 2, 4, 6}, nullptr);  // an empty box
}

TEST_CASE("signs change the sign bit alone, in every dtype") {
  constexpr std::int64_t kPixels = 300;  // of more than two counters
  const Shape shape = {kPixels, 256};
  const PixelSigns signs(shape, true, 3);
  for (const DType dtype : kStoredDTypes) {
    CAPTURE(dtype_name(dtype));
    const auto item = static_cast<std::size_t>(dtype_bytes(dtype));
    std::vector<unsigned char> before(kPixels * 256 * item);
    for (std::size_t i = 0; i < before.size(); ++i) {  // NaN, infinities and zeros among them
      before[i] = static_cast<unsigned char>(item == 1 ? i : i * 37 >> 2);
    }
    std::vector<unsigned char> after = before;
    signs.apply(dtype, Shape{0, 0}, shape, after.data());
    const bool no_zero = dtype == DType::e4m3fnuz || dtype == DType::e5m2fnuz;
    bool right = true;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool top = i % item == item - 1;  // little endian
      const bool flips = top && signs.is_negative(static_cast<std::int64_t>(i / item / 256)) &&
                         !(no_zero && (before[i] & 0x7f) == 0);
      right = right && after[i] == (flips ? before[i] ^ 0x80 : before[i]);
    }
    CHECK(right);
  }
}
