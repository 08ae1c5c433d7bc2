// array_test.cpp - shapes in words, and parts that cover an array once and in order.
#include "files/array.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace convgrad;
using Shape = std::vector<std::int64_t>;

TEST_CASE("shapes are written as numpy writes them") {
  CHECK(shape_text(Shape{}) == "()");
  CHECK(shape_text(Shape{5}) == "(5,)");
  CHECK(shape_text(Shape{2, 0, 3}) == "(2, 0, 3)");
}

TEST_CASE("positions count in C order") {
  CHECK(position_of(Shape{}, 0) == Shape{});
  CHECK(position_of(Shape{2, 3, 4}, 23) == Shape{1, 2, 3});
  CHECK(position_of(Shape{2, 3, 4}, 13) == Shape{1, 0, 1});
}

TEST_CASE("parts cover an array once, in C order, and are boxes") {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{2, 3, 4}, Shape{1, 1, 9, 1},
                             Shape{5, 1, 2}, Shape{3, 4, 1, 5}}) {
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const std::int64_t most : {1, 2, 3, 5, 12, 24, 1000}) {
      CAPTURE(shape_text(shape));
      CAPTURE(most);
      std::int64_t seen = 0, parts = 0;
      for_each_part(shape, most, [&](const ArrayPart& part) {
        CHECK(part.first == seen);
        CHECK(part.count <= most);
        CHECK(part.begin == position_of(shape, part.first));
        std::int64_t box = 1;
        for (std::size_t a = 0; a < shape.size(); ++a) {
          CHECK(part.end[a] <= shape[a]);
          box *= part.end[a] - part.begin[a];
        }
        CHECK(box == part.count);
        Shape last = part.end;
        for (std::int64_t& index : last) --index;
        CHECK(last == position_of(shape, part.first + part.count - 1));
        seen += part.count;
        ++parts;
      });
      CHECK(seen == count);
      if (most >= count) CHECK(parts == 1);
    }
  }
}

TEST_CASE("an empty array has no parts, however large its other extents") {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 1LL << 62, 1LL << 62}}) {
    for_each_part(shape, 10, [](const ArrayPart&) { FAIL("a part of nothing"); });
  }
}
