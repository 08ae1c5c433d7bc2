// library_verdict - judges a gradient by the library alone (convgrad/verdict.hpp), so that a test
// can compare that with what the program says (tests/cli/test_orders.py).
//
//   library_verdict X.npy DY.npy RESULT.npy "conv2d float32 n64 h8 w8 c8 k8 r1 s1" [natural]
//   [longest=N] [adders=A]
//
// prints match or mismatch, whether a match assumes an order, and the terms that adders cut.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "convgrad/gradient_file.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"
#include "convgrad/verdict.hpp"

namespace {

using namespace convgrad;

std::vector<std::byte> read(const char* path, DType dtype) {
  NpyReader reader(path);
  reader.take_for(dtype, "");
  const std::vector<std::int64_t>& shape = reader.header().shape;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * dtype_bytes(dtype)));
  reader.read_box(std::vector<std::int64_t>(shape.size()), shape, bytes.data());
  return bytes;
}

}  // namespace

int main(int argc, char** argv) try {
  WgradProblem problem = make_problem(parse_problem(argv[4]));
  const GradientFile result = read_gradient(argv[3], problem);
  problem.out_dtype = result.dtype;
  Rules rules;
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "natural") rules.any_order = false;
    if (word.starts_with("longest=")) rules.summation.longest_sum = std::stoll(word.substr(8));
    if (word == "adders=tensor-core") rules.summation.adders = Summation::Adders::tensor_core;
  }
  const Verdict verdict = judge_gradient(problem, read(argv[1], problem.dtype).data(),
                                         read(argv[2], problem.dtype).data(), result.values, rules);
  const bool match = verdict.comparison.match();
  std::cout << (match ? "match" : "mismatch") << (match && verdict.order_assumed ? " assumed" : "");
  if (verdict.cut) std::cout << " cut " << verdict.cut->longest_sum;
  std::cout << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
