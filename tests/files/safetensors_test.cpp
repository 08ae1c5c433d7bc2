// safetensors_test.cpp - tensors of .safetensors files, right and wrong ones.

#include "files/safetensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "files/tensor_source.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

std::string length_bytes(std::uint64_t length) { return little_endian(length, 8); }

std::string file_of(const std::string& json, const std::string& payload) {
  return length_bytes(json.size()) + json + payload;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  std::int64_t begin, std::int64_t end) {
  return cat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape, "],\"data_offsets\":[",
             begin, ",", end, "]}");
}

// The header of a tensor x, each value as JSON.
std::string tensor_x(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return cat(R"({"x":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets,
             "}}");
}

std::string object(const std::string& entries) { return cat("{", entries, "}"); }

TEST_CASE("tensors of every float dtype, in any order in the header") {
  const TempDir dir;
  const ArraySpec f16{{2, 3}, 2}, f32{{3, 2, 4}, 4}, f64{{}, 8}, none{{4, 0}, 2};
  const std::string metadata = "\"__metadata__\":{\"format\":\"pt\",\"dtype\":\"I8\",\"w\":\"\"}";
  const std::string json =
      cat("{", entry("w", "F32", "3,2,4", 20, 116), ",", entry("h", "F16", "2, 3", 0, 12), ", ",
          metadata, ",\n", entry("\\u00fc.s", "F64", "", 12, 20), ",",
          entry("b", "BF16", "2,3", 116, 128), ",", entry("none", "BF16", "4,0", 12, 12), "}   ");
  const std::string payload =
      spec_payload(f16) + spec_payload(f64) + spec_payload(f32) + spec_payload(f16);
  for (const std::string file : {"a.safetensors", "any.name"}) {
    const std::string path = dir.write(file, file_of(json, payload));
    CHECK(read_completely(path + ":h") == spec_payload(f16));
    CHECK(read_completely(path + ":\xc3\xbc.s") == spec_payload(f64));
    CHECK(read_completely(path + ":b") == spec_payload(f16));
    CHECK(read_completely(path + ":none").empty());
    NpyReader reader(path + ":w");
    CHECK(reader.seekable());
    CHECK(reader.header().descr == "F32");
    CHECK(reader.header().shape == f32.shape);
    CHECK(reader.header().element_count == 24);
    CHECK(format_name(reader.header()) == "safetensors");
    CHECK(float_dtype(reader.header(), "w") == DType::f32);
    CHECK(float_dtype(NpyReader(path + ":b").header(), "b") == DType::bf16);
    CHECK(float_dtype(NpyReader(path + ":h").header(), "h") == DType::f16);
    CHECK(wrong_boxes(reader, f32) == 0);
    reader.finish();
    CHECK(TensorArchive(path).names() ==
          std::vector<std::string>{"w", "h", "\xc3\xbc.s", "b", "none"});
    check_unreadable(path + ":v", "has no array 'v', expected w, h, \xc3\xbc.s, b or none", path);
    check_unreadable(path, "is an archive, expected one of its arrays");
  }
}

TEST_CASE("8-bit floats say which they are") {
  const TempDir dir;
  const std::vector<std::pair<std::string, DType>> cases = {{"F8_E4M3", DType::e4m3fn},
                                                            {"F8_E5M2", DType::e5m2},
                                                            {"F8_E4M3FNUZ", DType::e4m3fnuz},
                                                            {"F8_E5M2FNUZ", DType::e5m2fnuz}};
  for (const auto& [name, dtype] : cases) {
    const std::string path =
        dir.write("a.safetensors", file_of(object(entry("x", name, "3", 0, 3)), "abc"));
    CHECK(float_dtype(NpyReader(path + ":x").header(), "x") == dtype);
  }
}

TEST_CASE("dtypes that are no floats are named") {
  const TempDir dir;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"I32", "is int32"},     {"U16", "is uint16"}, {"BOOL", "is bool"},
      {"C64", "is complex64"}, {"I64", "is int64"},  {"U8", "if these are 8-bit floats"}};
  for (const auto& [dtype, text] : cases) {
    const int bytes = dtype == "I32" ? 4 : dtype == "U16" ? 2 : dtype.ends_with("64") ? 8 : 1;
    const std::string path =
        dir.write("a.safetensors", file_of(object(entry("x", dtype, "3", 0, 3 * bytes)),
                                           std::string(static_cast<std::size_t>(3 * bytes), 'p')));
    NpyReader reader(path + ":x");
    check_error(ErrorKind::input, "x", text, [&] { float_dtype(reader.header(), "x"); });
  }
  const std::string path = dir.write(
      "a.safetensors",
      file_of(object(entry("x", "F4", "8", 0, 4) + "," + entry("y", "F16", "1", 4, 6)), "123456"));
  check_unreadable(path + ":x", "dtype 'F4' is not read, expected F16, BF16, F32");
  CHECK(read_completely(path + ":y") == "56");
}

// As the format's own reader ignores them.
TEST_CASE("other keys of a tensor may hold anything") {
  const std::string json =
      tensor_x(R"("F32")", "[2]",
               R"([0,8],"notes":[1,{"shape":null},"s"],"dtypes":{"dtype":-1.5,"a":[{}]})");
  const auto tensors = parse_safetensors_header(json, 8, "f");
  REQUIRE(tensors.size() == 1);
  CHECK(tensors[0].shape == Extents{2});
  CHECK(tensors[0].end == 8);
}

TEST_CASE("headers that the format forbids") {
  constexpr const char* kExpected = ", expected its dtype, shape and data_offsets";
  const std::string x = entry("x", "F32", "2", 0, 8);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no JSON at byte"},
      {"{" + x, "no JSON at byte"},
      {"{" + x + "}" + std::string(1, '\0'), "no JSON at byte"},
      {"{\"x\xff\":1}", "no JSON at byte"},
      {"[]", "it is no object of tensors"},
      {"{\"x\":1}", "tensor 'x' is 1, expected its dtype, shape and data_offsets"},
      {"{\"x\":{}}", "tensor 'x' is {}, expected its"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", kExpected},
      {object(x + "," + x), "'x' comes twice"},
      {"{\"__metadata__\":{}," + x + ",\"__metadata__\":{}}", "'__metadata__' comes twice"},
      {tensor_x(R"("F32","dtype":"F32")", "[2]", "[0,8]"), "'dtype' comes twice"},
      {tensor_x(R"("F32")", "[2]", R"([0,8],"notes":[1],"shape":[2])"), "'shape' comes twice"},
      {tensor_x("32", "[2]", "[0,8]"), kExpected},
      {tensor_x(R"("F32")", R"("2")", "[0,8]"), kExpected},
      {tensor_x(R"("F32")", "[-2]", "[0,8]"), kExpected},
      {tensor_x(R"("F32")", "[2.0]", "[0,8]"), kExpected},
      {tensor_x(R"("F32")", "[99999999999999999999]", "[0,8]"), kExpected},
      {object(entry("x", "F32", "9223372036854775808", 0, 8)), kExpected},
      {object(entry("x", "F32", "9223372036854775807", 0, 8)), "need more than 2^63 - 1 bytes"},
      {tensor_x(R"("F32")", "[2]", "[0]"), kExpected},
      {object(entry("x", "F32", "2", 8, 0)), kExpected},
      {object(entry("x", "F32", "3", 0, 8)), "need 12 bytes, but data_offsets give it 8"},
      {object(entry("x", "F32", "4", 0, 16)), "lies at bytes 0 to 16 of 8; the file is trunc"},
      {object(entry("x", "F32", "1", 4, 8)), "after a hole; expected it to begin at 0"},
      {object(entry("x", "F32", "1", 0, 4)), "8 bytes after its header, but its tensors end"},
      {object(x + "," + entry("y", "F32", "1", 4, 8)), "'y' lies at bytes 4 to 8, over another"},
      {object(x + "," + entry("y", "F32", "0", 4, 4)), "expected it to begin at"},
      {"{\"x\":" + std::string(100000, '['), "no JSON at byte"},
      {"{\"x\":{\"notes\":" + std::string(100000, '['), "no JSON at byte"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[" + std::string(2000, '1') + "]", "no JSON at byte"},
      {"{\"" + std::string(5000, 'n') + "\":1}", kExpected},
  };
  for (const auto& [header, text] : cases) {
    const std::string json = header;
    CAPTURE(json.substr(0, 200));
    check_error(ErrorKind::input, "f", text, [&] { parse_safetensors_header(json, 8, "f"); });
    const auto error = error_of([&] { parse_safetensors_header(json, 8, "f"); });
    if (error) CHECK(std::string(error->what()).size() < 300);
  }
  std::string shape = "1";
  for (int i = 0; i < 63; ++i) shape += ",1";
  CHECK(parse_safetensors_header(object(entry("x", "F64", shape, 0, 8)), 8, "f").size() == 1);
  check_error(ErrorKind::input, "f", kExpected, [&] {
    parse_safetensors_header(object(entry("x", "F64", shape + ",1", 0, 8)), 8, "f");
  });
}

TEST_CASE("lengths that cannot be") {
  const TempDir dir;
  const std::string json = object(entry("x", "F32", "2", 0, 8)), payload = "abcdefgh";
  const auto refused = [&](const std::string& bytes, std::string_view text) {
    const std::string path = dir.write("a.safetensors", bytes);
    check_unreadable(path + ":x", text, path);
  };
  refused("1234567", "ends after 7 bytes");
  refused(length_bytes(json.size() + 9) + json + payload, "its header needs");
  refused(length_bytes(100'000'001) + json + payload, "more than 100000000 bytes");
  refused(length_bytes(~std::uint64_t{0}) + json + payload, "more than 100000000 bytes");
  refused(length_bytes(std::uint64_t{1} << 63) + json + payload, "more than 100000000 bytes");
  refused(length_bytes(0) + json + payload, "damaged header");
  refused(file_of(" " + json, payload), "does not begin with '{'");
  refused(file_of(json, payload + "i"), "followed by other bytes");
  refused(file_of(json, payload.substr(1)), "truncated");
}

const ArraySpec kSpec{{5, 7}};
const std::string kJson = "{\"__metadata__\":{\"format\":\"pt\"}," +
                          entry("x", "F32", "5,7", 0, 140) + "," +
                          entry("y", "F64", "2", 140, 156) + "} ";

TEST_CASE("every byte of a header changed to every value: the same tensor or an error") {
  int right = 0, refused = 0, wrong = 0;
  for (std::size_t at = 0; at < kJson.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string json = kJson;
      json[at] = static_cast<char>(value);
      NpyHeader header;
      const auto error = error_of([&] {
        const auto tensors = parse_safetensors_header(json, 156, "f");
        const auto x = std::ranges::find(tensors, "x", &SafeTensor::name);
        if (x == tensors.end()) throw Error(ErrorKind::input, "no x");
        header = npy_header_of(*x, 1000, "f:x");
        float_dtype(header, "f:x");
      });
      if (error) {
        ++refused;
      } else {
        const bool same = header.shape == kSpec.shape && header.data_offset == 1000 &&
                          header.descr == "F32" && header.payload_bytes == 140;
        ++(same ? right : wrong);
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(right > 256);
  CHECK(refused > right);
}

TEST_CASE("every truncation of a file is an error") {
  const TempDir dir;
  const std::string good = file_of(kJson, spec_payload(kSpec) + std::string(16, 'y'));
  Mutants mutants;
  for (std::size_t size = 0; size < good.size(); ++size) {
    mutants.read(dir.write("m.safetensors", good.substr(0, size)) + ":x", spec_payload(kSpec));
  }
  CHECK(mutants.refused == std::ssize(good));
}

}  // namespace
}  // namespace convgrad
