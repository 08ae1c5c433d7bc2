// problems.hpp - the problems that every kernel is tested on.
#pragma once

#include <string>
#include <vector>

#include "engine/device_kernel.hpp"
#include "engine/kernel.hpp"

namespace convgrad::testing {

inline constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

// The output extent follows by the definition, written again so that make_problem() is tested.
struct AxisSpec {
  std::int64_t in, taps, stride = 1, dilation = 1;
};

struct ProblemSpec {
  std::string name;
  std::string op;
  std::int64_t N, C, K, groups;
  std::vector<AxisSpec> axes;  // (d,) h, w
  std::string padding = "SAME";
  std::vector<std::int64_t> pads = {};  // (before, after) for each spatial axis, for EXPLICIT
};

// Makes the problem in the dtype, data format and filter format that the caller asks for.
WgradProblem make(const ProblemSpec& spec, DType dtype, bool channels_last,
                  const std::string& filter_format = "", const std::string& out_dtype = "");

// They are first layer, 1x1, 3x3, grouped, depthwise, 3-D x plain, channel tail, strided, dilated,
// uneven padding, taps that only see padding, P = Q = 1, empty.
std::vector<ProblemSpec> basic_problems();
// Depthwise and small groups of all kinds that steps of depthwise.hpp have.
std::vector<ProblemSpec> depthwise_problems();
// They are small, with padding in front: dense, depthwise, 3-D and grouped.
std::vector<ProblemSpec> padded_problems();
// They have many chunks, which blocks of a few thousand bytes cut in every way.
std::vector<ProblemSpec> many_block_problems();

// One has all channels in a group, one has each in its own: any kernel computes one of them in
// every dtype that it has.
std::vector<WgradProblem> plain_problems(DType dtype);

// Returns "the processor has no ..." if that is why the kernel can compute no problem here, else
// "".
std::string lacking(const Kernel& kernel);

}  // namespace convgrad::testing
