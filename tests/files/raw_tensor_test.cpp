// raw_tensor_test.cpp - elements alone, whose dtype and shape the argument gives.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "files/tensor_source.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

TEST_CASE("the dtype and the shape of an argument are those of a header") {
  const TempDir dir;
  const ArraySpec spec{{3, 2, 4}, 4}, big{{3, 2, 4}, 4, false, true};
  const std::string file = dir.write("x.bin", spec_payload(spec));
  for (const char* name : {":float32[3,2,4]", ":f4[3, 2, 4]", ":<float[ 3,2,4 ]"}) {
    NpyReader reader(file + name);
    CHECK(reader.header().shape == spec.shape);
    CHECK(float_dtype(reader.header(), "x") == DType::f32);
    CHECK(format_name(reader.header()) == "raw");
    CHECK(read_completely(file + name) == spec_payload(spec));
  }
  const std::string swapped = dir.write("big.bin", spec_payload(big));
  CHECK(read_completely(swapped + ":>float32[3,2,4]") == spec_payload(spec));
  CHECK(float_dtype(NpyReader(file + ":float8_e4m3fnuz[96]").header(), "x") == DType::e4m3fnuz);
  CHECK(NpyReader(file + ":int16[6,8]").header().kind == 'i');
  CHECK(NpyReader(dir.write("one.bin", "12345678") + ":float64[]").header().shape.empty());
  CHECK(NpyReader(dir.write("none.bin", "") + ":bfloat16[0,5]").header().element_count == 0);
}

TEST_CASE("shapes as Python and others write them") {
  const TempDir dir;
  const std::string file = dir.write("x.bin", std::string(24, 'x'));
  for (const char* name :
       {"fp32(6,)", "<f4(2, 3)", "f32[2x3]", "float32 (6)", "|u1[24]", "=f8[3]"}) {
    CAPTURE(name);
    CHECK(read_completely(cat(file, ":", name)) == std::string(24, 'x'));
  }
  check_unreadable(file + ":float32(6]", "elements alone need dtype and shape, ");
}

TEST_CASE("what begins like an archive is raw all the same") {
  const TempDir dir;
  const std::string zeros(8, '\0');
  const std::string file = dir.write("relu.bin", zeros + "{\x01\x02\x03");
  CHECK(read_completely(file + ":float32[3]") == zeros + "{\x01\x02\x03");
}

TEST_CASE("what does not fit is refused in one line") {
  const TempDir dir;
  const std::string file = dir.write("x.bin", std::string(24, 'x'));
  const auto refused = [&](ErrorKind kind, const std::string& argument, const std::string& text,
                           const std::string& name) {
    check_error(kind, name, text, [&] { NpyReader reader(argument); });
  };
  refused(ErrorKind::input, file + ":float32[5]",
          "has 24 bytes, but float32[5] is 5 x 4 = 20; correct the dtype or the shape", file);
  for (const char* shape : {"[2,,3]", "[2,x]", "[-6]", "[9223372036854775808]", "[2 3]", "[6,]"}) {
    const std::string argument = cat(file, ":float32", shape);
    refused(ErrorKind::usage, argument, "is no shape, expected whole numbers", argument);
  }
  const std::string unknown = file + ":flaot32[6]";
  refused(ErrorKind::usage, unknown, "did you mean 'float32'?", unknown);
  const std::string huge = file + ":float64[4611686018427387904,2]";
  refused(ErrorKind::input, huge, "is more than 2^63 - 1 bytes; correct the shape in the name",
          huge);
  refused(ErrorKind::input, dir.file("none.bin:float32[6]"), "cannot open", dir.file("none.bin"));
  const std::string npy = dir.write("x.npy", std::string(24, 'x'));
  refused(ErrorKind::input, npy + ":float32[5]", "leave the dtype and the shape", npy);
}

TEST_CASE("integers and raw bytes are taken for floats of their size") {
  const TempDir dir;
  const ArraySpec words{{3, 2}, 2, false, false, 'u'};
  const std::string file = dir.write("x.npy", spec_header(words) + spec_payload(words));
  NpyReader reader(file);
  reader.take_for(DType::bf16, "--input-dtype");
  CHECK(float_dtype(reader.header(), "x") == DType::bf16);
  const auto refused = [&](const std::string& path, DType dtype) {
    check_error(ErrorKind::input, path, "as --input-dtype says",
                [&] { NpyReader(path).take_for(dtype, "--input-dtype"); });
  };
  refused(file, DType::f32);
  const ArraySpec halves{{3, 2}, 2};
  const std::string other = dir.write("h.npy", spec_header(halves) + spec_payload(halves));
  refused(other, DType::bf16);
  NpyReader(other).take_for(DType::f16, "--input-dtype");  // what it is
  for (const char kind : {'i', 'V'}) {
    const ArraySpec bytes{{3, 2}, 1, false, false, kind};
    const std::string path = dir.write("b.npy", spec_header(bytes) + spec_payload(bytes));
    refused(path, DType::f16);
    NpyReader(path).take_for(DType::e5m2, "--input-dtype");
  }
  check_error(ErrorKind::input, other, "raw bytes of 1 byte; leave the flag out",
              [&] { NpyReader(other).take_for(DType::e5m2, "--input-dtype"); });
}

TEST_CASE("boxes of any part are widened") {
  const TempDir dir;
  std::string bytes;
  for (int i = 0; i < 60; ++i) bytes += static_cast<char>(i + 0x20);
  NpyReader reader(dir.write("x.bin", bytes) + ":float8_e4m3fn[3,4,5]");
  reader.widen_to(DType::f32);
  const std::vector<std::int64_t> begin = {1, 0, 2}, end = {3, 3, 4};
  std::vector<float> box(12);
  reader.read_box(begin, end, box.data());
  std::size_t at = 0;
  for (int a = 1; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (int c = 2; c < 4; ++c) {
        CHECK(float8_bits(DType::e4m3fn, box[at++]) == 0x20 + (a * 4 + b) * 5 + c);
      }
    }
  }
}

}  // namespace
}  // namespace convgrad
