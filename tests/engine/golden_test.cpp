// golden_test.cpp - every case of testdata/golden.jsonl through the file reader, the reference and
// every algorithm: what TensorFlow and the float64 definition say.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "convgrad/gradient_file.hpp"
#include "convgrad/npy.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

const std::string kFolder = CONVGRAD_TESTDATA;

WgradAttributes attributes_of(const nlohmann::json& job) {
  WgradAttributes a;
  a.op = job["op"];
  a.filter_sizes = job["filter_sizes"].get<std::vector<std::int64_t>>();
  a.strides = job["strides"].get<std::vector<std::int64_t>>();
  a.dilations = job["dilations"].get<std::vector<std::int64_t>>();
  a.padding = job["padding"];
  a.explicit_paddings = job["explicit_paddings"].get<std::vector<std::int64_t>>();
  a.data_format = job["data_format"];
  return a;
}

struct Loaded {
  TensorInfo info;
  std::vector<std::byte> bytes;
};

Loaded load(const std::string& path) {
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  Loaded tensor{{path, float_dtype(header, path), header.shape}, {}};
  tensor.bytes.resize(static_cast<std::size_t>(header.payload_bytes));
  reader.read_box(std::vector<std::int64_t>(header.shape.size(), 0), header.shape,
                  tensor.bytes.data());
  reader.finish();
  return tensor;
}

// How a value is judged: to the bit of the golden file where the data are integers, by rounding
// elsewhere.
bool agrees(const WgradProblem& problem, std::vector<double> got, const GradientFile& golden,
            const Expected& reference, bool exact) {
  for (double& value : got) value = rounded(problem.out_dtype, value);
  Expected expected;
  if (exact) expected.values = golden.values;
  return compare_gradients(problem, problem.out_dtype, {}, got, exact ? expected : reference,
                           {.criterion = exact ? Criterion::bitwise : Criterion::rounding})
      .match();
}

}  // namespace

TEST_CASE("golden files") {
  std::ifstream manifest(kFolder + "/golden.jsonl");
  int cases = 0;
  for (std::string line; std::getline(manifest, line); ++cases) {
    const auto job = nlohmann::json::parse(line);
    CAPTURE(line);
    const Loaded x = load(kFolder + "/" + job["input"].get<std::string>());
    const Loaded dy = load(kFolder + "/" + job["out_backprop"].get<std::string>());
    const WgradProblem problem = make_problem(x.info, dy.info, attributes_of(job));
    CHECK(dtype_name(problem.dtype) == job["dtype"].get<std::string>());
    const GradientFile golden =
        read_gradient(kFolder + "/" + job["golden"].get<std::string>(), problem, true);
    const Expected reference = reference_of(problem, x.bytes.data(), dy.bytes.data());
    CHECK(agrees(problem, reference.values, golden, reference, job["bitwise"]));
    for (const Kernel& kernel : kernels()) {
      if (!kernel.why_not(problem, this_machine()).empty()) continue;
      CAPTURE(kernel.name);
      PlanOptions options;
      options.algorithm = kernel.name;
      const auto got = sums_of(problem, x.bytes.data(), dy.bytes.data(), options);
      CHECK(agrees(problem, got, golden, reference, job["bitwise"]));
    }
  }
  CHECK(cases >= 400);
}
