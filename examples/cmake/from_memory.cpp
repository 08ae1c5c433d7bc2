// from_memory.cpp - from_memory DW.npy: the gradient of a 2x2 filter over a 2x3 image, from
// bfloat16 arrays in memory; compared with what it should be, and written to a file.
#include <convgrad/array_file.hpp>
#include <convgrad/compare.hpp>
#include <convgrad/dtype.hpp>
#include <convgrad/error.hpp>
#include <convgrad/float16.hpp>
#include <convgrad/gradient.hpp>
#include <convgrad/problem.hpp>
#include <convgrad/reference.hpp>
#include <convgrad/verdict.hpp>
#include <cstdio>
#include <vector>

namespace {

using convgrad::BFloat16;
using convgrad::DType;

// true if the gradient is right.
bool compute(const char* dw_file) {
  // x is [N,H,W,C] = [1,2,3,1], dy is [N,P,Q,K] = [1,1,2,1]: NHWC, C order.
  const double x_values[] = {1, 2, 3, 4, 5, 6}, dy_values[] = {10, 100};
  BFloat16 x[6], dy[2];
  convgrad::round_to(DType::bf16, x_values, 6, x);
  convgrad::round_to(DType::bf16, dy_values, 2, dy);
  convgrad::WgradAttributes attributes;  // as the command line spells them
  attributes.op = "conv2d";
  attributes.kernel = {2, 2};
  attributes.padding = "VALID";
  attributes.out_dtype = "float32";
  const convgrad::WgradProblem problem = convgrad::make_problem(
      {"x", DType::bf16, {1, 2, 3, 1}}, {"dy", DType::bf16, {1, 1, 2, 1}}, attributes);

  float dw[4];  // [R,S,C,K], problem.dw_count() elements of problem.out_dtype
  convgrad::filter_gradient(problem, x, dy, dw, {});

  const convgrad::Expected expected = convgrad::expected_gradient(problem, x, dy);
  const std::vector<double> got(dw, dw + 4);
  const convgrad::Comparison comparison =
      convgrad::compare_gradients(problem, problem.out_dtype, {}, got, expected, {});
  const convgrad::Verdict verdict = convgrad::judge_gradient(problem, x, dy, got);  // as verify

  convgrad::ArrayFile file(dw_file, problem.out_dtype, dw_shape(problem));
  file.write(dw, sizeof dw);
  file.commit();  // complete or not at all
  std::printf("%s\n%g %g %g %g\n", describe(problem).c_str(), dw[0], dw[1], dw[2], dw[3]);
  return comparison.match() && verdict.comparison.match();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: from_memory DW.npy\n");
    return 2;
  }
  try {
    return compute(argv[1]) ? 0 : 1;
  } catch (const convgrad::Error& error) {  // its kind is the exit status that convgrad would have
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
}
