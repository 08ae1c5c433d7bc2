// npy_header_test.cpp - headers that are right: as programs write them, and what is written.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"

namespace convgrad {
namespace {

using namespace testing;

Extents with_threes(std::int64_t last) {
  Extents extents(13, 3);
  extents.push_back(last);
  return extents;
}

TEST_CASE("npy_header_text is what numpy 1.24 writes") {
  using std::string_literals::operator""s;
  struct Case {
    DType dtype;
    Extents shape;
    std::string descr, tuple;
    std::size_t spaces;
    std::string length = "\x76\x00"s;
  };
  const std::string threes = "3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3";
  const Extents many(5, 100000000000000000);
  const std::string text_of_many =
      "100000000000000000, 100000000000000000, 100000000000000000, 100000000000000000, "
      "100000000000000000";
  const std::vector<Case> cases = {
      {DType::f32, {}, "<f4", "", 62},
      {DType::f32, {3}, "<f4", "3,", 60},
      {DType::f16, {0}, "<f2", "0,", 60},
      {DType::f32, {3, 3, 64, 128}, "<f4", "3, 3, 64, 128", 49},
      {DType::bf16, {3, 3, 64, 128}, "<V2", "3, 3, 64, 128", 49},
      {DType::f64, {3, 3, 3, 64, 128}, "<f8", "3, 3, 3, 64, 128", 46},
      {DType::f64, {1L << 40, 1, 1L << 40, 16}, "<f8", "1099511627776, 1, 1099511627776, 16", 27},
      {DType::f32, {INT64_MAX, 1, 1, 1}, "<f4", "9223372036854775807, 1, 1, 1", 34},
      {DType::f32, with_threes(10), "<f4", threes + ", 10", 21},
      {DType::f32, with_threes(100), "<f4", threes + ", 100", 84, "\xb6\x00"s},
      {DType::f32, many, "<f4", text_of_many, 28, "\xb6\x00"s},
  };
  for (const Case& c : cases) {
    CAPTURE(c.tuple);
    const std::string text = npy_header_text(c.dtype, c.shape);
    CHECK(text == "\x93NUMPY\x01\x00"s + c.length + "{'descr': '" + c.descr +
                      "', 'fortran_order': False, 'shape': (" + c.tuple + "), }" +
                      std::string(c.spaces, ' ') + "\n");
    CHECK(text.size() % 64 == 0);
  }
}

// --- spellings ---

struct Spelling {
  std::string dict;
  Extents shape;
  std::string descr = "<f4";
  bool fortran_order = false;
};

void check_spelling(const Spelling& spelling, int major) {
  CAPTURE(spelling.dict);
  const NpyHeader header = parse(header_bytes(spelling.dict, major));
  CHECK(header.major == major);
  CHECK(header.descr == spelling.descr);
  CHECK(header.shape == spelling.shape);
  CHECK(header.fortran_order == spelling.fortran_order);
  CHECK(header.element_count == checked_product(spelling.shape));
  CHECK(header.data_offset == std::ssize(spelling.dict) + (major == 1 ? 10 : 12));
}

// As other programs write them, and as Python would read them.
TEST_CASE("keys in any order, either quote, any white space, a trailing comma or none") {
  std::vector<Spelling> spellings = {
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,3,), }  \n", {2, 3}, "<f4", true},
      {"{'descr': '>i4', 'fortran_order': False, 'shape': (2,3,),}   ", {2, 3}, ">i4"},  // gonpy
      {"{ 'descr': '|u1', 'fortran_order': False, 'shape': (3,)}\n", {3}, "|u1"},
      {"{'descr':'<f4','fortran_order':False,'shape':(2,3)}", {2, 3}},
      {"{'shape': (2, 3), 'fortran_order': True, 'descr': '<f4'}", {2, 3}, "<f4", true},
      {"{\"fortran_order\": False, \"descr\": \"<f4\", \"shape\": (2, 3,)}", {2, 3}},
      {"\n\n{\n'descr'\n:\n'<f4'\n,\n'fortran_order'\n:\nFalse\n,\n'shape'\n:\n(\n2\n,\n)\n}\n",
       {2}},
      {" \t{\t'descr' : '<f4' ,\f'fortran_order' : False , 'shape' : ( 2 , ) , } \r\n", {2}},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(5000, ' '),
       {2, 3}},
  };
  const std::vector<std::pair<std::string, Extents>> shapes = {
      {"()", {}},
      {"( )", {}},
      {"(0,)", {0}},
      {"(0, 4611686018427387904, 8)", {0, 4611686018427387904, 8}},
      {"(4611686018427387904, 8, 0)", {4611686018427387904, 8, 0}},
      {"(9223372036854775807, 0)", {9223372036854775807, 0}},
      {"(1, 1, 1, 1, 1, 1, 1, 1)", Extents(8, 1)},
  };
  for (const auto& [text, shape] : shapes) spellings.push_back({dict_text("'<f4'", text), shape});
  for (const Spelling& spelling : spellings) {
    for (const int major : {1, 2, 3}) check_spelling(spelling, major);
  }
}

TEST_CASE("the long integers of Python 2") {
  for (const int major : {1, 2}) {
    check_spelling({"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }", {2, 3}},
                   major);
    check_spelling({"{'shape': (0L,), 'descr': '<f4', 'fortran_order': False}\n", {0}}, major);
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

// --- dtypes ---

TEST_CASE("the float types in either byte order") {
  struct Case {
    DType dtype;
    bool big_endian;
    std::vector<std::string> names;
  };
  const std::vector<Case> cases = {
      {DType::f16, false, {"<f2", "=f2", "|f2", "f2", "<e", "e", "float16"}},
      {DType::f16, true, {">f2", ">e"}},
      {DType::bf16, false, {"<V2", "|V2", "=V2", "V2", "bfloat16"}},
      {DType::bf16, true, {">V2"}},
      {DType::f32, false, {"<f4", "=f4", "|f4", "f4", "f", "<f", "float32"}},
      {DType::f32, true, {">f4", ">f"}},
      {DType::f64, false, {"<f8", "f8", "d", "float64"}},
      {DType::f64, true, {">f8"}},
      {DType::e5m2, false, {"<f1", "|f1", "f1", "float8_e5m2"}},
      {DType::e4m3fn, false, {"float8_e4m3fn"}},
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

const std::string kExpected = ", expected float16, bfloat16, float32, float64 or an 8-bit float (";
const std::string kConvert = kExpected + "convert with x.astype('float32'))";

TEST_CASE("integers and raw bytes are parsed, named and refused") {
  struct Case {
    std::string descr;
    std::int64_t item_bytes;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"'<i4'", 4, "dtype '<i4' is int32" + kConvert},
      {"'|i1'", 1,
       "dtype '|i1' is int8" + kExpected + "convert integers with x.astype('float32'); if"},
      {"'|u1'", 1,
       "dtype '|u1' is uint8" + kExpected +
           "convert integers with x.astype('float32'); if these are 8-bit floats, convert "},
      {"'<V1'", 1, "is raw bytes (void), 1 per element" + kExpected + "if these are 8-bit floats"},
      {"'float8_e3m4'", 1, "dtype 'float8_e3m4' is raw bytes (void), 1 per element" + kExpected},
      {"'<u2'", 2,
       "dtype '<u2' is uint16" + kExpected +
           "convert with x.astype('float32'); if it is bfloat16, save x.view('V2')"},
      {"'<i2'", 2,
       "dtype '<i2' is int16" + kExpected + "convert with x.astype('float32'); if it is bfloat16"},
      {"'|V8'", 8,
       "is raw bytes (void), 8 per element" + kExpected + "bfloat16 is saved as '<V2')"},
      {"'|b1'", 1, "dtype '|b1' is bool" + kConvert},
  };
  for (const Case& c : cases) {
    CAPTURE(c.descr);
    const NpyHeader header = parse(header_bytes(dict_text(c.descr, "(3,)")));
    CHECK(header.item_bytes == c.item_bytes);
    CHECK(header.payload_bytes == 3 * c.item_bytes);
    check_error(ErrorKind::input, "x.npy", c.message, [&] { float_dtype(header, "x.npy"); });
  }
}

TEST_CASE("what is no number of 1 to 8 bytes is named and refused") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"'<c8'", "dtype '<c8' is complex64" + kExpected + "save x.real or x.imag)"},
      {"'<c16'", "is complex128"},
      {"'<f16'", "dtype '<f16' is float128" + kConvert},
      {"'<U5'", "dtype '<U5' is strings" + kConvert},
      {"'<M8[ns]'", "dtype '<M8[ns]' is dates (datetime64)"},
      {"'<m8[25s]'", "is time differences (timedelta64)"},
      {"'|O'", "dtype '|O' is Python objects (pickled objects are never loaded)"},
      {"'|V3'", "dtype '|V3' is raw bytes (void), 3 per element"},
      {"[('a', '<f4'), ('b', '<i2', (2, 3))]",
       "dtype '[('a', '<f4'), ('b', '<i2', (2, 3))], 'fortran_order': False...' is a structured "
       "type" +
           kExpected + "save one field, x['name'])"},
  };
  for (const auto& [descr, message] : cases) {
    const std::string bytes = header_bytes(dict_text(descr, "(3,)"));
    check_error(ErrorKind::input, "x.npy", message, [&] { parse(bytes); });
  }
  NpyHeader wide;
  wide.item_bytes = 16;
  check_error(ErrorKind::input, "x.npy", "float128", [&] { float_dtype(wide, "x.npy"); });
}

TEST_CASE("where a flag can say the dtype, it is named") {
  for (const auto& [descr, message] :
       {std::pair{"'<u2'", "if it is bfloat16, say so with --d"},
        std::pair{"'|V1'", "say which with --d, such as float8_e4m3fn"}}) {
    const NpyHeader header = parse(header_bytes(dict_text(descr, "(3,)")));
    check_error(ErrorKind::input, "x.npy", message, [&] { float_dtype(header, "x.npy", "--d"); });
  }
}

}  // namespace
}  // namespace convgrad
