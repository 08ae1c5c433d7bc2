// golden_test.cpp - every case of testdata's lists through the file reader, the reference and
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

NpyReader open(const nlohmann::json& job, const std::string& tensor) {
  NpyReader reader(kFolder + "/" + job[tensor].get<std::string>());
  const std::string dtype = job.value(tensor + "_dtype", "");
  if (!dtype.empty()) reader.take_for(parse_stored_dtype("dtype", dtype), "dtype");
  return reader;
}

TensorInfo info_of(const NpyReader& reader) {
  return {reader.name(), float_dtype(reader.header(), reader.name()), reader.header().shape};
}

std::vector<std::byte> load(NpyReader& reader, DType dtype) {
  const NpyHeader& header = reader.header();
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.element_count * dtype_bytes(dtype)));
  reader.widen_to(dtype);
  reader.read_all(bytes.data());
  return bytes;
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
  int cases = 0;
  for (const char* list : {"/golden.jsonl", "/types.jsonl"}) {
    std::ifstream manifest(kFolder + list);
    for (std::string line; std::getline(manifest, line); ++cases) {
      const auto job = nlohmann::json::parse(line);
      CAPTURE(line);
      NpyReader x_file = open(job, "input"), dy_file = open(job, "out_backprop");
      const WgradProblem problem =
          make_problem(info_of(x_file), info_of(dy_file), attributes_of(job));
      CHECK(dtype_name(problem.dtype) == job["dtype"].get<std::string>());
      const auto x = load(x_file, problem.dtype), dy = load(dy_file, problem.dtype);
      const GradientFile golden =
          read_gradient(kFolder + "/" + job["golden"].get<std::string>(), problem, true);
      const Expected reference = reference_of(problem, x.data(), dy.data());
      CHECK(agrees(problem, reference.values, golden, reference, job["bitwise"]));
      CHECK(is_plain(reference, problem, x, dy));
      for (const Kernel& kernel : kernels()) {
        if (!kernel.why_not(problem, this_machine()).empty()) continue;
        CAPTURE(kernel.name);
        PlanOptions options;
        options.algorithm = kernel.name;
        const auto got = sums_of(problem, x.data(), dy.data(), options);
        CHECK(agrees(problem, got, golden, reference, job["bitwise"]));
      }
    }
  }
  CHECK(cases >= 490);
}
