// array_file_test.cpp - one array in each format that a file's name can say.
#include "convgrad/array_file.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

const std::vector<std::int64_t> kShape = {3, 2};
const std::vector<float> kValues = {1, -2, 3.5, 0, 1e-30F, 7};

std::string payload() {
  return {reinterpret_cast<const char*>(kValues.data()), kValues.size() * sizeof(float)};
}

void write(const std::string& argument, const OutputOptions& options = {}) {
  ArrayFile file(argument, DType::f32, kShape, options);
  const std::string bytes = payload();
  file.write(bytes.data(), 5);  // in pieces that are not elements
  file.write(bytes.data() + 5, bytes.size() - 5);
  file.commit();
}

TEST_CASE("an array is written in the format of the name, and read back") {
  const TempDir dir;
  for (const char* name :
       {"a.npy", "other", "a.npz", "b.npz:w", "a.safetensors", "b.safetensors:w"}) {
    CAPTURE(name);
    const std::string argument = dir.file(name);
    write(argument);
    const std::string readable = array_target(argument).readable_name();
    NpyReader reader(readable);
    CHECK(reader.header().shape == kShape);
    CHECK(float_dtype(reader.header(), "a") == DType::f32);
    CHECK(read_completely(readable) == payload());
    write(argument);  // over itself, which is all that it holds
  }
  write(dir.file("a.bin"), {.raw = true});
  CHECK(read_completely(dir.file("a.bin:float32[3,2]")) == payload());
}

}  // namespace
}  // namespace convgrad
