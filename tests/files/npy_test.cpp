// npy_test.cpp - the values of arrays of every order, width and byte order, in boxes.
#include "convgrad/npy.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "support/sanitized.hpp"
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

TEST_CASE("known bit patterns in big-endian order") {
  const TempDir dir;
  const auto read = [&](std::string_view descr, std::string_view payload) {
    NpyReader reader(
        dir.write("x.npy", header_bytes(dict_text(descr, "(1,)")) + std::string(payload)));
    return read_all(reader);
  };
  using std::string_view_literals::operator""sv;
  CHECK(read("'>f4'", "\x3f\x80\x00\x00"sv) == "\x00\x00\x80\x3f"sv);  // 1.0f
  CHECK(read("'>f8'", "\x3f\xf0\x00\x00\x00\x00\x00\x01"sv) ==
        "\x01\x00\x00\x00\x00\x00\xf0\x3f"sv);
  CHECK(read("'>f2'", "\x3c\x01"sv) == "\x01\x3c"sv);
  CHECK(read("'>V2'", "\x3f\x80"sv) == "\x80\x3f"sv);
  CHECK(read("'|V2'", "\x3f\x80"sv) == "\x3f\x80"sv);
  CHECK(read("'>f1'", "1"sv) == "1"sv);
  CHECK(read("'|S3'", "abc"sv) == "abc"sv);
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

TEST_CASE("boxes of arrays larger than the reader's scratch memory") {
  const TempDir dir;
  struct Case {
    Extents shape;
    std::size_t item;
    std::vector<std::pair<Extents, Extents>> boxes;
  };
  const std::vector<Case> cases = {
      {{5, 60, 70, 64},  // 5.4 MB
       4,
       {{{0, 0, 0, 0}, {5, 60, 70, 64}},
        {{1, 0, 0, 0}, {4, 60, 70, 64}},
        {{0, 7, 3, 0}, {5, 9, 5, 64}},
        {{0, 0, 0, 5}, {5, 60, 70, 6}},
        {{0, 0, 0, 3}, {5, 60, 70, 60}},
        {{1, 2, 3, 4}, {4, 50, 60, 50}},
        {{4, 59, 69, 63}, {5, 60, 70, 64}}}},
      {{3, 40000, 17},  // rows far apart when the last axis is outermost
       4,
       {{{0, 0, 0}, {3, 40000, 17}},
        {{0, 0, 2}, {3, 40000, 15}},
        {{1, 100, 0}, {2, 39000, 17}},
        {{0, 20000, 0}, {3, 20001, 17}},
        {{0, 0, 16}, {3, 40000, 17}}}},
      {{1300000, 3}, 2, {{{0, 0}, {1300000, 3}}, {{5, 1}, {1299999, 3}}, {{7, 2}, {900000, 3}}}},
      {{3, 900000}, 8, {{{0, 0}, {3, 900000}}, {{0, 100}, {3, 899000}}, {{1, 5}, {3, 15}}}},
      {{30, 20000}, 4, {{{0, 3}, {30, 4}}, {{0, 0}, {30, 20}}, {{2, 100}, {29, 19900}}}},
      {{70, 20000}, 2, {{{0, 3}, {70, 5}}, {{1, 0}, {70, 20000}}}},
      {{3, 40000}, 4, {{{0, 500}, {3, 39500}}}},                        // long runs, small gaps
      {{8192, 12}, 4, {{{100, 0}, {101, 12}}, {{100, 2}, {102, 11}}}},  // 32 KiB apart in columns
  };
  testing::Thinned thinned;
  for (const Case& c : cases) {
    for (const int flags : {0, 1, 2, 3}) {
      if (c.shape[0] != 8192 && thinned.skips()) continue;  // a minute for half of them
      const ArraySpec spec{c.shape, c.item, (flags & 1) != 0, (flags & 2) != 0};
      NpyReader reader(dir.write("x.npy", spec_file(spec)));
      for (std::size_t i = 0; i < c.boxes.size(); ++i) {
        CAPTURE(c.shape[0]);
        CAPTURE(flags);
        CAPTURE(i);
        const auto& [begin, end] = c.boxes[i];
        CHECK(is_right_box(reader, spec, begin, end));
      }
      reader.finish();
    }
  }
}

// Read calls of this process so far, or -1 where the kernel does not say.
std::int64_t read_calls() {
  std::ifstream stream("/proc/self/io");
  for (std::string word; stream >> word;) {
    std::int64_t value = 0;
    if (word == "syscr:" && stream >> value) return value;
  }
  return -1;
}

TEST_CASE("scattered runs are read in few calls") {
  if (read_calls() < 0) {
    MESSAGE("skipped: /proc/self/io is not readable here");
    return;
  }
  const TempDir dir;
  const auto calls = [&](const ArraySpec& spec, const Extents& begin, const Extents& end) {
    NpyReader reader(dir.write("x.npy", spec_file(spec)));
    const std::int64_t before = read_calls();
    read_box(reader, begin, end);
    return read_calls() - before;
  };
  CHECK(calls({{100000, 16}}, {0, 0}, {100000, 16}) < 10);  // one run
  CHECK(calls({{100000, 16}}, {0, 3}, {100000, 11}) < 15);  // 100000 runs of 32 bytes
  CHECK(calls({{40, 40000}}, {0, 0}, {40, 10}) < 60);       // 40 runs, gaps of 160 kB
  CHECK(calls({{16, 90000}, 4, true}, {0, 0}, {16, 90000}) < 20);
  CHECK(calls({{90000, 16}, 4, true}, {0, 0}, {90000, 16}) < 40);
}

TEST_CASE("arrays without elements, and with only one") {
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
  NpyReader scalar(dir.write("x.npy", header_bytes(dict_text("'<f4'", "()")) + "abcd"));
  CHECK(read_all(scalar) == "abcd");
  scalar.finish();
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

TEST_CASE("a member of a .safetensors file needs no header of its own") {
  const TempDir dir;
  const ArraySpec spec{{2, 3}};
  const std::string entry = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string bytes = little_endian(entry.size(), 8) + entry + spec_payload(spec);
  const std::string file = dir.write("x.safetensors", bytes);
  NpyReader reader(file + ":w");
  CHECK(reader.seekable());
  CHECK(format_name(reader.header()) == "safetensors");
  CHECK(reader.header().shape == spec.shape);
  CHECK(is_right_box(reader, spec, {1, 0}, {2, 3}));
  reader.finish();
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
