// npy_test.cpp - .npy files that are right: every legal spelling, order and box.

#include "convgrad/npy.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "convgrad/error.hpp"
#include "failing_calls.hpp"
#include "npy_bytes.hpp"
#include "sanitized.hpp"
#include "temp_dir.hpp"

namespace convgrad {
namespace {

using testing::ArraySpec;
using testing::Call;
using testing::check_error;
using testing::dict_text;
using testing::expected_box;
using testing::FailingCall;
using testing::for_every_box;
using testing::header_bytes;
using testing::parse;
using testing::read_all;
using testing::read_box;
using testing::spec_file;
using testing::spec_header;
using testing::spec_payload;
using testing::TempDir;
using Extents = std::vector<std::int64_t>;

// Writes bytes to a FIFO from a thread of its own.
class FifoWriter {
 public:
  FifoWriter(std::string path, std::string bytes) : path_(std::move(path)) {
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      std::ofstream(path_, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    });
  }
  ~FifoWriter() { thread_.join(); }

 private:
  std::string path_;
  std::thread thread_;
};

// Standard input leads elsewhere while this lives.
class StdinFrom {
 public:
  explicit StdinFrom(int fd) : saved_(::dup(STDIN_FILENO)) { REQUIRE(::dup2(fd, 0) == 0); }
  ~StdinFrom() {
    ::dup2(saved_, STDIN_FILENO);
    ::close(saved_);
  }

 private:
  int saved_;
};

// --- header text ---

std::string golden(std::string_view dict, std::size_t spaces, std::string_view length) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  return bytes + std::string(length) + std::string(dict) + std::string(spaces, ' ') + "\n";
}

TEST_CASE("npy_header_text is what numpy 1.24 writes") {
  using std::string_literals::operator""s;
  const std::string short_length = "\x76\x00"s;
  const std::string long_length = "\xb6\x00"s;
  struct Case {
    DType dtype;
    Extents shape;
    std::string dict;
    std::size_t spaces;
    std::string length;
  };
  const std::vector<Case> cases = {
      {DType::f32, {}, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 62, short_length},
      {DType::f32,
       {3},
       "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
       60,
       short_length},
      {DType::f16,
       {0},
       "{'descr': '<f2', 'fortran_order': False, 'shape': (0,), }",
       60,
       short_length},
      {DType::f32,
       {3, 3, 64, 128},
       "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, 64, 128), }",
       49,
       short_length},
      {DType::bf16,
       {3, 3, 64, 128},
       "{'descr': '<V2', 'fortran_order': False, 'shape': (3, 3, 64, 128), }",
       49,
       short_length},
      {DType::f64,
       {3, 3, 3, 64, 128},
       "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3, 3, 64, 128), }",
       46,
       short_length},
      {DType::f64,
       {1099511627776, 1, 1099511627776, 16},
       "{'descr': '<f8', 'fortran_order': False, "
       "'shape': (1099511627776, 1, 1099511627776, 16), }",
       27,
       short_length},
      {DType::f32,
       {9223372036854775807, 1, 1, 1},
       "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 1, 1, 1), }",
       34,
       short_length},
      {DType::f32,
       {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 10},
       "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, "
       "10), }",
       21,
       short_length},
      {DType::f32,
       {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 100},
       "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, "
       "100), }",
       84,
       long_length},
      {DType::f32, Extents(5, 100000000000000000),
       "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000000000, 100000000000000000, "
       "100000000000000000, 100000000000000000, 100000000000000000), }",
       28, long_length},
  };
  for (const Case& c : cases) {
    CAPTURE(c.dict);
    const std::string text = npy_header_text(c.dtype, c.shape);
    CHECK(text == golden(c.dict, c.spaces, c.length));
    CHECK(text.size() % 64 == 0);
  }
}

TEST_CASE("a header that is written is read back") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const Extents& shape : {Extents{}, Extents{7}, Extents{0, 3}, Extents{2, 3, 4, 5, 6}}) {
      const std::string text = npy_header_text(dtype, shape);
      const NpyHeader header = parse(text);
      CHECK(float_dtype(header, "x.npy") == dtype);
      CHECK(header.shape == shape);
      CHECK_FALSE(header.fortran_order);
      CHECK_FALSE(header.big_endian);
      CHECK(header.data_offset == std::ssize(text));
      CHECK(header.element_count == testing::product(shape));
      CHECK(header.payload_bytes == header.element_count * header.item_bytes);
    }
  }
}

// --- legal spellings ---

struct Spelling {
  std::string dict;
  Extents shape;
  std::string descr = "<f4";
  bool fortran_order = false;
};

std::vector<Spelling> spellings() {
  std::vector<Spelling> result = {
      {"{'descr':'<f4','fortran_order':False,'shape':(2,3)}", {2, 3}},
      {"{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}", {2, 3}, "<f4", true},
      {"{\"fortran_order\": False, \"descr\": \"<f4\", \"shape\": (2, 3,)}", {2, 3}},
      {"{'''descr''': \"\"\"<f4\"\"\", '''shape''': (1,), 'fortran_order': False}", {1}},
      {"{u'descr': u'<f4', U'shape': (2L, 3L), 'fortran_order': False}", {2, 3}},
      {"{'shape': (2l,), 'descr': '<f4', 'fortran_order': False}", {2}},
      {"{r'descr': R'<f4', 'shape': (), 'fortran_order': False}", {}},
      {"{'de' 'scr': '<' \"f\" '''4''', 'shape': (9,), 'fortran_order': False}", {9}},
      {"{'de'\n  'scr': '<f' # join\n '4', 'shape': (9,), 'fortran_order': False}", {9}},
      {"{'\\x64escr': '\\x3cf4', 'shape': (4,), 'fortran_order': False}", {4}},
      {"{'\\u0064escr': '\\U0000003cf4', 'shape': (4,), 'fortran_order': False}", {4}},
      {"{'\\144escr': '\\74f\\64', 'shape': (4,), 'fortran_order': False}", {4}},
      {"{'des\\\ncr': '<f4', 'shape': (4,), 'fortran_order': False}", {4}},
      {"\n\n{\n'descr'\n:\n'<f4'\n,\n'fortran_order'\n:\nFalse\n,\n'shape'\n:\n(\n2\n,\n)\n}\n",
       {2}},
      {" \t{\t'descr' : '<f4' ,\f'fortran_order' : False , 'shape' : ( 2 , ) , } \r\n", {2}},
      {"{'descr': '<f4', # comment } ' \"\n 'fortran_order': False, 'shape': (5,)} # end", {5}},
      {"# comment\n{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}#", {5}},
      {"{'descr': \\\n'<f4', 'fortran_order': \\\r\nFalse, 'shape': (5,)}", {5}},
      {"({'descr': ('<f4'), 'fortran_order': ((False)), 'shape': (((5,)))})", {5}},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': ((3), (((4))))}", {3, 4}, "<f4", true},
      {"{('descr'): '<f4', 'fortran_order': False, 'shape': (5,)}", {5}},
      {"{'descr': '<i8', 'descr': '<f4', 'shape': 7, 'fortran_order': 0, 'shape': (5,), "
       "'fortran_order': True}",
       {5},
       "<f4",
       true},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(5000, ' '),
       {2, 3}},
  };
  const std::vector<std::pair<std::string, Extents>> shapes = {
      {"()", {}},
      {"( )", {}},
      {"(0,)", {0}},
      {"(00,)", {0}},
      {"(0_0,)", {0}},
      {"(-0,)", {0}},
      {"(+3,)", {3}},
      {"(+ 3,)", {3}},
      {"(+(3),)", {3}},
      {"(1_000,)", {1000}},
      {"(0x1F,)", {31}},
      {"(0X_1f,)", {31}},
      {"(0o17, 0O1_7)", {15, 15}},
      {"(0b101, 0B1_1)", {5, 3}},
      {"(0xffL,)", {255}},
      {"(0, 4611686018427387904, 8)", {0, 4611686018427387904, 8}},
      {"(4611686018427387904, 8, 0)", {4611686018427387904, 8, 0}},
      {"(9223372036854775807, 0)", {9223372036854775807, 0}},
      {"(0x7fffffffffffffff, 0)", {9223372036854775807, 0}},
      {"(1, 1, 1, 1, 1, 1, 1, 1)", Extents(8, 1)},
  };
  for (const auto& [text, shape] : shapes) result.push_back({dict_text("'<f4'", text), shape});
  return result;
}

TEST_CASE("every legal Python spelling of a header is understood") {
  for (const Spelling& spelling : spellings()) {
    CAPTURE(spelling.dict);
    for (const int major : {1, 2, 3}) {
      const bool python2 = spelling.dict.find("L,") != std::string::npos ||
                           spelling.dict.find("l,") != std::string::npos;
      if (python2 && major == 3) continue;
      const NpyHeader header = parse(header_bytes(spelling.dict, major));
      CHECK(header.major == major);
      CHECK(header.descr == spelling.descr);
      CHECK(header.shape == spelling.shape);
      CHECK(header.fortran_order == spelling.fortran_order);
      CHECK(header.element_count == testing::product(spelling.shape));
      CHECK(header.data_offset == std::ssize(spelling.dict) + (major == 1 ? 10 : 12));
    }
  }
}

TEST_CASE("a header length with bytes past 127 is unsigned") {
  for (const std::size_t length : {127u, 128u, 200u, 255u, 256u, 0x80ffu, 0xffffu}) {
    std::string dict = dict_text("'<f4'", "(3,)");
    dict.insert(dict.size() - 1, length - dict.size(), ' ');
    for (const int major : {1, 2, 3}) {
      CHECK(parse(header_bytes(dict, major)).data_offset ==
            static_cast<std::int64_t>(length) + (major == 1 ? 10 : 12));
    }
  }
}

TEST_CASE("formats have names") {
  const std::string dict = dict_text("'<f4'", "(3,)");
  CHECK(format_name(parse(header_bytes(dict, 1))) == "1.0");
  CHECK(format_name(parse(header_bytes(dict, 3))) == "3.0");
  NpyHeader member;
  member.major = 0;
  CHECK(format_name(member) == "safetensors");
}

// --- dtypes ---

TEST_CASE("the four float types are known by all their names") {
  struct Case {
    DType dtype;
    bool big_endian;
    std::vector<std::string> names;
  };
  const std::vector<Case> cases = {
      {DType::f16, false, {"<f2", "=f2", "|f2", "f2", "e", "<e", "half", "float16", "f02"}},
      {DType::f16, true, {">f2", ">e"}},
      {DType::bf16, false, {"<V2", "|V2", "=V2", "V2", "bfloat16"}},
      {DType::bf16, true, {">V2"}},
      {DType::f32, false, {"<f4", "=f4", "|f4", "f4", "f", "<f", "single", "float32"}},
      {DType::f32, true, {">f4", ">f"}},
      {DType::f64, false, {"<f8", "f8", "d", "double", "float64", "float", "float_"}},
      {DType::f64, true, {">f8", ">d"}},
  };
  for (const Case& c : cases) {
    for (const std::string& name : c.names) {
      CAPTURE(name);
      const NpyHeader header = parse(header_bytes(dict_text("'" + name + "'", "(3,)")));
      CHECK(float_dtype(header, "x.npy") == c.dtype);
      CHECK(header.big_endian == c.big_endian);
      CHECK(header.payload_bytes == 3 * header.item_bytes);
    }
  }
}

TEST_CASE("other dtypes are parsed, named and refused") {
  struct Case {
    std::string descr;
    std::int64_t item_bytes;
    std::string message;
  };
  const std::string expected = ", expected float16, bfloat16, float32 or float64 (";
  const std::string convert = expected + "convert with x.astype('float32'))";
  const std::vector<Case> cases = {
      {"'<i4'", 4, "dtype '<i4' is int32" + convert},
      {"'|i1'", 1, "dtype '|i1' is int8" + convert},
      {"'>i8'", 8, "dtype '>i8' is int64" + convert},
      {"'long'", 8, "dtype 'long' is int64" + convert},
      {"'|u1'", 1, "dtype '|u1' is uint8" + convert},
      {"'<u2'", 2, "dtype '<u2' is uint16" + expected + "if it is bfloat16 saved as uint16, save "},
      {"'<u2'", 2, "x.view(ml_dtypes.bfloat16)"},
      {"'|b1'", 1, "dtype '|b1' is bool" + convert},
      {"'?'", 1, "dtype '?' is bool" + convert},
      {"'<c8'", 8, "dtype '<c8' is complex64" + expected + "save x.real or x.imag)"},
      {"'<c16'", 16, "is complex128"},
      {"'<f16'", 16, "dtype '<f16' is float128 (long double)" + convert},
      {"'longdouble'", 16, "is float128 (long double)"},
      {"'<f1'", 1, "is float8"},
      {"'|S5'", 5, "dtype '|S5' is strings of 5 bytes"},
      {"'<U5'", 20, "dtype '<U5' is strings of 5 characters"},
      {"'<M8[ns]'", 8, "dtype '<M8[ns]' is dates (datetime64)"},
      {"'<m8[25s]'", 8, "is time differences (timedelta64)"},
      {"'datetime64[s]'", 8, "is dates (datetime64)"},
      {"'timedelta64[s]'", 8, "is time differences (timedelta64)"},
      {"'|O'", 8, "dtype '|O' is Python objects (pickled objects are never loaded)"},
      {"'|V3'", 3, "dtype '|V3' is raw bytes (void), 3 per element"},
      {"'|V0'", 0, "raw bytes (void), 0 per element"},
      {"[('a', '<f4'), ('b', '<i2', (2, 3))]", 16, "is a structured type of 16 bytes"},
      {"[('a', '|u1'), ('b', '|u1')]", 2, "is a structured type of 2 bytes"},
      {"[(('title', 'a'), [('x', '<f8'), ('y', '|V2')])]", 10, "is a structured type of 10 bytes"},
      {"[('a', '|O'), ('b', '<f4')]", 12, "is Python objects"},
      {"('<f4', (2,))", 8, "is a structured type of 8 bytes"},
      {"('<f4', 3)", 12, "is a structured type of 12 bytes"},
      {"('|O', (2,))", 16, "is Python objects"},
      {"[]", 0, "is a structured type of 0 bytes"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.descr);
    const NpyHeader header = parse(header_bytes(dict_text(c.descr, "(3,)")));
    CHECK(header.item_bytes == c.item_bytes);
    CHECK(header.payload_bytes == 3 * c.item_bytes);
    check_error(ErrorKind::input, "x.npy", c.message, [&] { float_dtype(header, "x.npy"); });
  }
}

// --- values ---

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
        CHECK_FALSE(reader.needs_whole_payload());
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
  CHECK(read("'>c8'", "\x01\x02\x03\x04\x05\x06\x07\x08"sv) ==
        "\x04\x03\x02\x01\x08\x07\x06\x05"sv);
  CHECK(read("'>U2'", "\x00\x00\x00\x41\x00\x00\x00\x42"sv) ==
        "\x41\x00\x00\x00\x42\x00\x00\x00"sv);
  CHECK(read("'>c32'", "0123456789abcdefABCDEFGHIJKLMNOP"sv) ==
        "fedcba9876543210PONMLKJIHGFEDCBA"sv);
  CHECK(read("'>f16'", "0123456789abcdef"sv) == "fedcba9876543210"sv);
  CHECK(read("'>f1'", "1"sv) == "1"sv);
  CHECK(read("'|S3'", "abc"sv) == "abc"sv);
  CHECK(read("'>S3'", "abc"sv) == "abc"sv);
  CHECK(read("'>V3'", "abc"sv) == "abc"sv);
}

TEST_CASE("every sub-box of a small array equals direct indexing") {
  const TempDir dir;
  for (const std::size_t item : {2u, 4u, 8u}) {
    for (const int flags : {0, 1, 2, 3}) {
      const ArraySpec spec{{3, 2, 4, 3}, item, (flags & 1) != 0, (flags & 2) != 0};
      NpyReader reader(dir.write("x.npy", spec_file(spec)));
      int boxes = 0;
      int wrong = 0;
      for_every_box(spec.shape, [&](const Extents& begin, const Extents& end) {
        ++boxes;
        wrong += read_box(reader, begin, end) != expected_box(spec, begin, end);
      });
      CAPTURE(item);
      CAPTURE(flags);
      CHECK(boxes == 10 * 6 * 15 * 10);
      CHECK(wrong == 0);
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
  };
  int number = 0;
  for (const Case& c : cases) {
    for (const int flags : {0, 1, 2, 3}) {
      if (CONVGRAD_SANITIZED && number++ % 3 != 0) continue;  // a minute for all of them
      const ArraySpec spec{c.shape, c.item, (flags & 1) != 0, (flags & 2) != 0};
      NpyReader reader(dir.write("x.npy", spec_file(spec)));
      for (std::size_t i = 0; i < c.boxes.size(); ++i) {
        CAPTURE(c.shape[0]);
        CAPTURE(flags);
        CAPTURE(i);
        const auto& [begin, end] = c.boxes[i];
        CHECK(read_box(reader, begin, end) == expected_box(spec, begin, end));
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

// --- streams ---

TEST_CASE("a FIFO is read block by block") {
  const TempDir dir;
  for (const int flags : {0, 2}) {
    const ArraySpec spec{{7, 30, 50, 40}, 4, false, (flags & 2) != 0};  // 1.7 MB, pipes hold 64 kB
    const std::string path = dir.file(cat("fifo", flags));
    const FifoWriter writer(path, spec_file(spec));
    NpyReader reader(path);
    CHECK_FALSE(reader.seekable());
    CHECK_FALSE(reader.needs_whole_payload());
    for (const auto& [from, to] :
         std::vector<std::pair<int, int>>{{0, 1}, {1, 4}, {4, 4}, {4, 7}}) {
      const Extents begin = {from, 0, 0, 0};
      const Extents end = {to, 30, 50, 40};
      CHECK(read_box(reader, begin, end) == expected_box(spec, begin, end));
    }
    reader.finish();
  }
}

TEST_CASE("other boxes of a stream are served from memory") {
  const TempDir dir;
  int number = 0;
  for (const bool fortran : {false, true}) {
    const ArraySpec spec{{3, 2, 4, 3}, 4, fortran, false};
    const std::string path = dir.file(cat("fifo", number++));
    const FifoWriter writer(path, spec_file(spec));
    NpyReader reader(path);
    CHECK(reader.needs_whole_payload() == fortran);
    int wrong = read_box(reader, {1, 0, 0, 0}, {2, 2, 4, 3}) !=
                expected_box(spec, {1, 0, 0, 0}, {2, 2, 4, 3});
    for_every_box(spec.shape, [&](const Extents& begin, const Extents& end) {
      wrong += read_box(reader, begin, end) != expected_box(spec, begin, end);
    });
    CHECK(wrong == 0);
    reader.finish();
  }
}

TEST_CASE("a large stream in Fortran order is transposed in memory") {
  const TempDir dir;
  const ArraySpec spec{{600, 90, 100}, 4, true, true};  // 21.6 MB: more than the first buffer
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  NpyReader reader(dir.file("fifo"));
  CHECK(reader.needs_whole_payload());
  CHECK(read_box(reader, {0, 0, 0}, {10, 90, 100}) == expected_box(spec, {0, 0, 0}, {10, 90, 100}));
  CHECK(read_box(reader, {9, 1, 2}, {600, 3, 99}) == expected_box(spec, {9, 1, 2}, {600, 3, 99}));
  reader.finish();
}

TEST_CASE("an empty stream in Fortran order needs no memory") {
  const TempDir dir;
  const ArraySpec spec{{3, 0, 2}, 4, true};
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  NpyReader reader(dir.file("fifo"));
  CHECK_FALSE(reader.seekable());
  CHECK_FALSE(reader.needs_whole_payload());
  CHECK(read_all(reader).empty());
  reader.finish();
}

TEST_CASE("a stream that is held is read in any order, as a file is anyway") {
  const TempDir dir;
  const ArraySpec spec{{3, 4}};
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  for (const std::string& path : {dir.file("fifo"), dir.write("file.npy", spec_file(spec))}) {
    NpyReader reader(path);
    reader.hold();
    for (const int row : {2, 0, 1, 2}) {
      CHECK(read_box(reader, {row, 0}, {row + 1, 4}) == expected_box(spec, {row, 0}, {row + 1, 4}));
      reader.hold();  // keeps what it has
    }
    reader.finish();
  }
}

TEST_CASE("a member of a .safetensors file needs no header of its own") {
  const TempDir dir;
  const ArraySpec spec{{2, 3}};
  const std::string entry = R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string length = {static_cast<char>(entry.size()), 0, 0, 0, 0, 0, 0, 0};
  const std::string file = dir.write("x.safetensors", length + entry + spec_payload(spec));
  NpyReader reader(file + ":w");
  CHECK(reader.seekable());
  CHECK(format_name(reader.header()) == "safetensors");
  CHECK(reader.header().shape == spec.shape);
  CHECK(read_box(reader, {1, 0}, {2, 3}) == expected_box(spec, {1, 0}, {2, 3}));
  reader.finish();
}

TEST_CASE("no memory for a stream, or to pick elements from a file, is a failure with a name") {
  if (!testing::large_allocations_can_fail) {
    MESSAGE("skipped: the sanitizer hands out the memory");
    return;
  }
  const TempDir dir;
  const ArraySpec spec{{600, 800}};  // 1.9 MB
  const std::string path = dir.write("x.npy", spec_file(spec));
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  NpyReader stream(dir.file("fifo"));
  NpyReader file(path);
  {
    const FailingCall allocation(Call::large_allocation, ENOMEM);
    check_error(ErrorKind::runtime, stream.name(), "in Fortran order, needs 1920000 bytes; save it",
                [&] { stream.hold(); });
    check_error(ErrorKind::runtime, path, "out of memory while reading", [&] {
      read_box(file, {0, 3}, {600, 4});
    });
    CHECK(allocation.failed() == 2);
  }
  CHECK(read_box(file, {0, 3}, {600, 4}) == expected_box(spec, {0, 3}, {600, 4}));
  CHECK(read_all(stream) == spec_payload(spec));
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

TEST_CASE("the part of a stream that has gone by cannot be had again") {
  const TempDir dir;
  const ArraySpec spec{{4, 5, 6}};
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  NpyReader reader(dir.file("fifo"));
  CHECK(read_box(reader, {0, 0, 0}, {2, 5, 6}) == expected_box(spec, {0, 0, 0}, {2, 5, 6}));
  CHECK(read_box(reader, {3, 0, 0}, {4, 5, 6}) == expected_box(spec, {3, 0, 0}, {4, 5, 6}));
  CHECK(read_box(reader, {2, 1, 0}, {4, 5, 3}) == expected_box(spec, {2, 1, 0}, {4, 5, 3}));
  check_error(ErrorKind::input, reader.name(), "save it as a .npy file", [&] {
    read_box(reader, {1, 0, 0}, {3, 5, 6});
  });
  reader.finish();
}

TEST_CASE("finish() reads on to the end of a stream") {
  const TempDir dir;
  const ArraySpec spec{{1000, 3000}};  // 12 MB
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  NpyReader reader(dir.file("fifo"));
  CHECK(read_box(reader, {0, 0}, {1, 3000}) == expected_box(spec, {0, 0}, {1, 3000}));
  reader.finish();
}

TEST_CASE("of a pipe on standard input nothing past the header is taken") {
  const ArraySpec spec{{2, 3}};
  for (const int major : {1, 2}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const std::string bytes = spec_header(spec, major) + spec_payload(spec);
    REQUIRE(::write(ends[1], bytes.data(), bytes.size()) == std::ssize(bytes));
    ::close(ends[1]);
    {
      const StdinFrom input(ends[0]);
      NpyReader reader("-");
      CHECK(reader.name() == "standard input");
      CHECK_FALSE(reader.seekable());
      std::string rest(100, '\0');
      rest.resize(static_cast<std::size_t>(::read(ends[0], rest.data(), rest.size())));
      CHECK(rest == spec_payload(spec));
    }
    ::close(ends[0]);
  }
}

TEST_CASE("a non-blocking pipe is waited for") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  const ArraySpec spec{{2, 3}};
  std::thread writer([&] {
    for (const char c : spec_file(spec)) {
      if (::write(ends[1], &c, 1) != 1) break;
      std::this_thread::yield();
    }
    ::close(ends[1]);
  });
  {
    const StdinFrom input(ends[0]);
    NpyReader reader("-");
    CHECK(read_all(reader) == spec_payload(spec));
    reader.finish();
  }
  writer.join();
  ::close(ends[0]);
}

TEST_CASE("a file as standard input") {
  const TempDir dir;
  const ArraySpec spec{{4, 5}};
  const std::string path = dir.write("x.npy", "skip me" + spec_file(spec));
  const std::string plain = dir.write("y.npy", spec_file(spec));
  const std::string longer = dir.write("z.npy", "skip me" + spec_file(spec) + "z");
  const auto read_from = [&](const std::string& file, off_t offset, bool seekable) {
    const int fd = ::open(file.c_str(), O_RDONLY);
    REQUIRE(::lseek(fd, offset, SEEK_SET) == offset);
    const StdinFrom input(fd);
    ::close(fd);
    NpyReader reader("-");
    CHECK(reader.seekable() == seekable);
    const std::string last = read_box(reader, {3, 0}, {4, 5});
    CHECK(last == expected_box(spec, {3, 0}, {4, 5}));
    reader.finish();
  };
  read_from(plain, 0, true);
  read_from(path, 7, false);
  check_error(ErrorKind::input, "standard input", "goes on after",
              [&] { read_from(longer, 7, false); });
  check_error(ErrorKind::input, "standard input", "starts with \"skip m\"",
              [&] { read_from(path, 0, true); });
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

// --- integers ---

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
