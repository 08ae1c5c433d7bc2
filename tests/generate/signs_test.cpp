// signs_test.cpp - signs of pixels in boxes; tests/cli/test_probe.py has every layout and dtype.
#include "generate/signs.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace convgrad;

namespace {

constexpr std::int64_t N = 3, P = 5, Q = 7, K = 4;
constexpr std::uint64_t kSeed = (std::uint64_t{9} << 32) + 5;

using Shape = std::vector<std::int64_t>;

}  // namespace

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
