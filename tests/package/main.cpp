// main.cpp - the gradient of a 2x2 filter over a 2x3 image, from memory.
#include <convgrad/convgrad.hpp>
#include <convgrad/device.hpp>
#include <cstdio>
#include <cstring>

int main() {
  convgrad::WgradAttributes attributes;
  attributes.op = "conv2d";
  attributes.kernel = {2, 2};
  attributes.padding = "VALID";
  const convgrad::WgradProblem problem =
      convgrad::make_problem({"x", convgrad::DType::f32, {1, 2, 3, 1}},
                             {"dy", convgrad::DType::f32, {1, 1, 2, 1}}, attributes);
  const float x[] = {1, 2, 3, 4, 5, 6}, dy[] = {10, 100};
  const std::vector<std::byte> bytes = convgrad::filter_gradient(problem, x, dy);
  float dw[4];
  if (bytes.size() != sizeof dw) return 1;
  std::memcpy(dw, bytes.data(), sizeof dw);
  std::printf("%g %g %g %g, %zu CUDA devices\n", dw[0], dw[1], dw[2], dw[3],
              convgrad::cuda_info().devices.size());
  return dw[0] == 210 && dw[1] == 320 && dw[2] == 540 && dw[3] == 650 ? 0 : 1;
}
