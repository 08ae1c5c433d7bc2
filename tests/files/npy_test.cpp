// npy_test.cpp - the values of arrays of every order, width and byte order, in boxes.
#include "convgrad/npy.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

TEST_CASE("whole arrays of rank 0 to 5, either byte order, either axis order") {
  const TempDir dir;
  const Extents all = {2, 3, 1, 5, 4};
  const std::vector<std::pair<char, std::size_t>> types = {{'f', 2}, {'f', 4}, {'f', 8}, {'V', 2}};
  for (std::size_t rank = 0; rank <= all.size(); ++rank) {
    for (const auto& type : types) {
      const char kind = type.first;
      const std::size_t item = type.second;
      for (const int flags : {0, 1, 2, 3}) {
        const Extents shape(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rank));
        const ArraySpec spec{shape, item, (flags & 1) != 0, (flags & 2) != 0, kind};
        NpyReader reader(dir.write("x.npy", spec_file(spec)));
        CAPTURE(rank);
        CAPTURE(item);
        CAPTURE(flags);
        CHECK(reader.seekable());
        CHECK(reader.needs_whole_payload() == ((flags & 1) != 0 && rank > 1));
        CHECK(reader.header().shape == shape);
        CHECK(read_all(reader) == expected_box(spec, Extents(rank, 0), shape));
        reader.finish();
      }
    }
  }
}

TEST_CASE("what has bytes in an order, and what has none") {
  const TempDir dir;
  const auto read = [&](std::string_view descr, std::string_view payload) {
    NpyReader reader(
        dir.write("x.npy", header_bytes(dict_text(descr, "(1,)")) + std::string(payload)));
    return read_all(reader);
  };
  using std::string_view_literals::operator""sv;
  CHECK(read("'>f4'", "\x3f\x80\x00\x00"sv) == "\x00\x00\x80\x3f"sv);  // 1.0f
  CHECK(read("'|V2'", "\x3f\x80"sv) == "\x3f\x80"sv);
  CHECK(read("'>f1'", "1"sv) == "1"sv);
  CHECK(read("'>S3'", "abc"sv) == "abc"sv);
  CHECK(read("'>V4'", "abcd"sv) == "abcd"sv);
}

TEST_CASE("every sub-box of a small array equals direct indexing") {
  const TempDir dir;
  for (const std::size_t item : {2u, 4u, 8u}) {
    for (const int flags : {0, 1, 2, 3}) {
      const ArraySpec spec{{3, 2, 4, 3}, item, (flags & 1) != 0, (flags & 2) != 0};
      NpyReader reader(dir.write("x.npy", spec_file(spec)));
      int boxes = 0;
      for_every_box(spec.shape, [&](const Extents&, const Extents&) { ++boxes; });
      CAPTURE(item);
      CAPTURE(flags);
      CHECK(boxes == 10 * 6 * 15 * 10);
      CHECK(wrong_boxes(reader, spec) == 0);
    }
  }
}

TEST_CASE("arrays without elements") {
  const TempDir dir;
  for (const std::string shape : {"(0,)", "(3, 0, 2)", "(0, 4611686018427387904, 8)"}) {
    NpyReader reader(dir.write("x.npy", header_bytes(dict_text("'>f4'", shape))));
    CHECK(reader.header().payload_bytes == 0);
    const Extents begin(reader.header().shape.size(), 0);
    char untouched = 'u';
    reader.read_box(begin, reader.header().shape, &untouched);
    CHECK(untouched == 'u');
    reader.finish();
  }
}

TEST_CASE("a box outside of the array is an error, not a read") {
  const TempDir dir;
  NpyReader reader(dir.write("x.npy", spec_file({{2, 3}})));
  const std::string name = reader.name();
  const std::vector<std::pair<Extents, Extents>> boxes = {
      {{0, 0}, {3, 3}},       {{-1, 0}, {2, 3}}, {{1, 0}, {0, 3}},    {{0}, {2}},
      {{0, 0, 0}, {1, 1, 1}}, {{0, 0}, {2}},     {{0, 0}, {2, 3, 1}}, {{0}, {2, 3}}};
  for (const auto& [begin, end] : boxes) {
    std::vector<char> out(1024);
    check_error(ErrorKind::runtime, name, "box outside",
                [&, &b = begin, &e = end] { reader.read_box(b, e, out.data()); });
  }
}

TEST_CASE("the time that swapping and picking bytes takes is counted") {
  const TempDir dir;
  const ArraySpec little{{100, 1000}}, big{{100, 1000}, 4, false, true};
  NpyReader as_it_is(dir.write("little.npy", spec_file(little)));
  NpyReader swapped(dir.write("big.npy", spec_file(big)));
  read_all(as_it_is);
  read_all(swapped);
  CHECK(as_it_is.convert_seconds() == 0);
  CHECK(swapped.convert_seconds() > 0);
  CHECK(swapped.convert_seconds() < 60);
}

TEST_CASE("boxes are changed as they are read") {
  const TempDir dir;
  const ArraySpec spec{{4, 5}};
  NpyReader reader(dir.write("x.npy", spec_file(spec)));
  std::string want = read_all(reader);
  want[1] = static_cast<char>(~want[1]);
  NpyReader changed(dir.write("x.npy", spec_file(spec)));
  std::vector<Extents> boxes;
  changed.change_boxes([&](auto begin, auto end, void* out) {
    boxes.push_back({begin.begin(), begin.end()});
    boxes.push_back({end.begin(), end.end()});
    static_cast<std::byte*>(out)[1] ^= std::byte{0xff};
  });
  CHECK(read_all(changed) == want);
  CHECK(boxes == std::vector<Extents>{{0, 0}, {4, 5}});
}

TEST_CASE("readers can be moved") {
  const TempDir dir;
  const ArraySpec spec{{4, 5}};
  NpyReader first(dir.write("x.npy", spec_file(spec)));
  NpyReader second(std::move(first));
  CHECK(read_all(second) == spec_payload(spec));
  NpyReader third(dir.write("y.npy", spec_file({{1}})));
  third = std::move(second);
  CHECK(read_all(third) == spec_payload(spec));
}

TEST_CASE("integer arrays of every width and order") {
  const TempDir dir;
  using std::string_literals::operator""s;
  const auto read = [&](std::string_view descr, const std::string& payload,
                        std::string_view shape) {
    return read_npy_integers(dir.write("k.npy", header_bytes(dict_text(descr, shape)) + payload));
  };
  CHECK(read("'|i1'", "\x01\xff\x80\x7f", "(4,)") == Extents{1, -1, -128, 127});
  CHECK(read("'|u1'", "\x01\xff", "(2,)") == Extents{1, 255});
  CHECK(read("'<i2'", "\x03\x00\xfe\xff"s, "(2,)") == Extents{3, -2});
  CHECK(read("'>i2'", "\x00\x03\xff\xfe"s, "(2,)") == Extents{3, -2});
  CHECK(read("'<i4'", "\x03\x00\x00\x00\x40\x00\x00\x00"s, "(2,)") == Extents{3, 64});
  CHECK(read("'>u4'", "\xff\x00\x00\x00"s, "(1,)") == Extents{4278190080});
  CHECK(read("'<i8'", "\x00\x00\x00\x00\x01\x00\x00\x80"s, "(1,)") ==
        Extents{std::int64_t{1} * 4294967296 - 9223372036854775807 - 1});
  CHECK(read("'>u8'", "\x7f\xff\xff\xff\xff\xff\xff\xff"s, "(1,)") == Extents{9223372036854775807});
  CHECK(read("'<i4'", "", "(0,)").empty());
  CHECK(read("'|i1'", std::string(16, '\x05'), "(16,)") == Extents(16, 5));
  const std::string name = dir.file("k.npy");
  check_error(ErrorKind::input, name, "expected at most 2^63 - 1",
              [&] { read("'<u8'", std::string(8, '\xff'), "(1,)"); });
  check_error(ErrorKind::input, name, "expected a 1-D integer array",
              [&] { read("'|i1'", std::string(17, '\x05'), "(17,)"); });
  check_error(ErrorKind::input, name, "dtype '<f4'", [&] { read("'<f4'", "abcd", "(1,)"); });
  check_error(ErrorKind::input, name, "dtype '|b1'", [&] { read("'|b1'", "\x01", "(1,)"); });
  check_error(ErrorKind::input, name, "rank 0", [&] { read("'|i1'", "\x01", "()"); });
  check_error(ErrorKind::input, name, "rank 2", [&] { read("'|i1'", "\x01", "(1, 1)"); });
}

}  // namespace
}  // namespace convgrad
