// from_memory.cpp - the gradient of a 2x2 filter over a 2x3 image, from arrays in memory.
#include <convgrad/convgrad.hpp>
#include <cstdio>

int main() {
  // x is [N,H,W,C] = [1,2,3,1], dy is [N,P,Q,K] = [1,1,2,1]: NHWC, C order.
  const float x[] = {1, 2, 3, 4, 5, 6}, dy[] = {10, 100};
  convgrad::WgradAttributes attributes;  // as the command line spells them
  attributes.op = "conv2d";
  attributes.kernel = {2, 2};
  attributes.padding = "VALID";
  try {
    const convgrad::WgradProblem problem =
        convgrad::make_problem({"x", convgrad::DType::f32, {1, 2, 3, 1}},
                               {"dy", convgrad::DType::f32, {1, 1, 2, 1}}, attributes);
    float dw[4];  // [R,S,C,K], problem.dw_count() elements of problem.out_dtype
    convgrad::filter_gradient(problem, x, dy, dw, {});
    std::printf("%s\n%g %g %g %g\n", describe(problem).c_str(), dw[0], dw[1], dw[2], dw[3]);
    return 0;
  } catch (const convgrad::Error& error) {  // its kind is the exit status that convgrad would have
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.kind());
  }
}
