#include "support/problems.hpp"

namespace convgrad::testing {
namespace {

std::int64_t out_extent(const AxisSpec& axis, const std::string& padding, std::int64_t pads) {
  if (padding == "SAME") return (axis.in + axis.stride - 1) / axis.stride;
  const std::int64_t room = axis.in + pads - ((axis.taps - 1) * axis.dilation + 1);
  return room < 0 ? 0 : room / axis.stride + 1;
}

}  // namespace

WgradProblem make(const ProblemSpec& spec, DType dtype, bool channels_last,
                  const std::string& filter_format, const std::string& out_dtype) {
  WgradAttributes a;
  a.op = spec.op;
  a.padding = spec.padding;
  a.explicit_paddings = spec.pads;
  a.out_dtype = out_dtype;
  a.data_format = channels_last ? "channels_last" : "channels_first";
  a.filter_format = filter_format;
  if (spec.op != "depthwise") a.groups = spec.groups;
  TensorInfo x{"x", dtype, {spec.N}}, dy{"dy", dtype, {spec.N}};
  if (!channels_last) {
    x.shape.push_back(spec.C);
    dy.shape.push_back(spec.K);
  }
  for (std::size_t i = 0; i < spec.axes.size(); ++i) {
    const AxisSpec& axis = spec.axes[i];
    const std::int64_t pads = spec.pads.empty() ? 0 : spec.pads[2 * i] + spec.pads[2 * i + 1];
    x.shape.push_back(axis.in);
    dy.shape.push_back(out_extent(axis, spec.padding, pads));
    a.kernel.push_back(axis.taps);
    a.strides.push_back(axis.stride);
    a.dilations.push_back(axis.dilation);
  }
  if (channels_last) {
    x.shape.push_back(spec.C);
    dy.shape.push_back(spec.K);
  }
  return make_problem(x, dy, a);
}

std::vector<ProblemSpec> depthwise_problems() {
  return {{"depthwise, 5x5 s2", "depthwise", 3, 40, 40, 40, {{15, 5, 2}, {37, 5, 2}}},
          {"depthwise, 7x7 and small images", "depthwise", 19, 72, 72, 72, {{7, 7}, {7, 7}}},
          {"depthwise, 3x3 s2, more tiles", "depthwise", 2, 24, 24, 24, {{40, 3, 2}, {150, 3, 2}}},
          {"multiplier 3", "depthwise", 2, 23, 69, 23, {{12, 3}, {19, 3}}},
          {"multiplier 2, 5x5", "depthwise", 2, 40, 80, 40, {{12, 5}, {19, 5, 2}}},
          {"9x9 taps", "depthwise", 2, 16, 16, 16, {{12, 9}, {19, 9, 2}}},
          {"dilated", "depthwise", 2, 16, 16, 16, {{33, 3, 1, 12}, {40, 3, 1, 12}}},
          {"many small images", "depthwise", 70, 40, 40, 40, {{5, 3}, {6, 3}}},
          {"volumes, depthwise", "conv3d", 3, 9, 9, 9, {{5, 3, 2}, {6, 3}, {7, 3}}},
          {"groups of 4, stride 2", "conv2d", 3, 40, 40, 10, {{19, 3, 2}, {21, 3, 2}}},
          {"groups of 16 to 1", "conv2d", 2, 80, 5, 5, {{9, 3, 3}, {21, 3, 1, 2}}}};
}

std::vector<ProblemSpec> basic_problems() {
  return {
      {"stem 7x7 s2", "conv2d", 2, 3, 16, 1, {{23, 7, 2}, {31, 7, 2}}},
      {"1x1", "conv2d", 3, 33, 20, 1, {{7, 1}, {9, 1}}},
      {"images of one pixel", "depthwise", 3, 9, 9, 9, {{1, 2}, {1, 3}}, "EXPLICIT", {1, 1, 1, 1}},
      {"1x1 with a partly read image", "conv2d", 2, 16, 24, 1, {{9, 1, 2}, {8, 1, 3}}, "VALID"},
      {"1x1 with whole vectors, 2 groups", "conv2d", 3, 40, 64, 2, {{7, 1, 2}, {9, 1}}, "VALID"},
      {"1x1 with few outputs", "conv2d", 2, 32, 4, 1, {{13, 1}, {9, 1}}},
      {"1x1, several chunks and a wide tile", "conv2d", 2, 19, 290, 1, {{40, 1}, {41, 1}}},
      {"3x3", "conv2d", 3, 16, 32, 1, {{9, 3}, {11, 3}}},
      {"3x3, 20 channels, several chunks", "conv2d", 3, 20, 64, 1, {{20, 3}, {30, 3}}},
      {"3x3, 18 channels fill a vector with their taps", "conv2d", 2, 18, 18, 1, {{9, 3}, {31, 3}}},
      {"5x5 s2, 2 groups of 26 to 30", "conv2d", 2, 52, 60, 2, {{17, 5, 2}, {61, 5, 2}}},
      {"3x3 valid, filter in one tile", "conv2d", 2, 3, 16, 1, {{35, 3}, {23, 3}}, "VALID"},
      {"one channel to 8, several chunks", "conv2d", 1, 1, 8, 1, {{40, 3}, {41, 3}}},
      {"3x2 valid, w strided, dilated", "conv2d", 2, 6, 16, 1, {{9, 3}, {13, 2, 2, 2}}, "VALID"},
      {"3x3, wider than a chunk", "conv2d", 1, 4, 8, 1, {{3, 3}, {1100, 3}}},
      {"3x3, prime channels", "conv2d", 2, 13, 37, 1, {{8, 3}, {7, 3}}},
      {"3x3, more channels than a tile", "conv2d", 1, 401, 67, 1, {{5, 3}, {4, 3}}},
      {"3x3, more outputs than a tile", "conv2d", 1, 5, 530, 1, {{5, 3}, {4, 3}}},
      {"2x3, strides 2,3", "conv2d", 2, 6, 18, 1, {{11, 2, 2}, {13, 3, 3}}},
      {"3x3, dilations 2,3", "conv2d", 2, 6, 16, 1, {{11, 3, 1, 2}, {13, 3, 1, 3}}},
      {"3x2, stride and dilation", "conv2d", 2, 6, 16, 1, {{17, 3, 2, 3}, {13, 2, 3, 2}}},
      {"stride larger than the filter", "conv2d", 2, 5, 16, 1, {{17, 2, 5}, {13, 1, 4}}},
      {"stride above the filter, 20 channels", "conv2d", 2, 20, 24, 1, {{17, 2, 5}, {13, 2, 3}}},
      {"uneven padding", "conv2d", 2, 6, 16, 1, {{8, 3}, {7, 4}}, "EXPLICIT", {2, 0, 1, 3}},
      {"cropped", "conv2d", 2, 6, 16, 1, {{9, 3}, {8, 4, 2}}, "EXPLICIT", {-2, 0, -1, 3}},
      {"cropped away", "conv2d", 1, 5, 16, 1, {{6, 3}, {7, 2}}, "EXPLICIT", {-8, 7, -3, -1}},
      {"columns of padding", "conv2d", 4, 1, 1, 1, {{6, 1}, {0, 3}}, "EXPLICIT", {2, 4, 5, 1}},
      {"wide padding", "conv2d", 1, 3, 16, 1, {{4, 2, 1, 2}, {3, 2}}, "EXPLICIT", {5, 6, 4, 0}},
      {"taps that only see padding", "conv2d", 2, 4, 16, 1, {{1, 5}, {2, 7}}},
      {"one pixel", "conv2d", 5, 7, 19, 1, {{1, 1}, {1, 1}}},
      {"P = Q = 1", "conv2d", 3, 7, 19, 1, {{5, 5}, {4, 4}}, "VALID"},
      {"one image, one channel", "conv2d", 1, 1, 1, 1, {{6, 3}, {5, 3}}},
      {"4 groups", "conv2d", 2, 16, 24, 4, {{9, 3}, {7, 3}}},
      {"32 groups of 4", "conv2d", 2, 128, 128, 32, {{6, 3, 2}, {6, 3}}},
      {"2 groups of 20, strided, dilated", "conv2d", 2, 10, 40, 2, {{12, 3, 2}, {11, 2, 1, 3}}},
      {"groups of one", "conv2d", 2, 11, 11, 11, {{6, 3}, {6, 3}}},
      {"empty output", "conv2d", 2, 3, 4, 1, {{3, 4}, {5, 2}}, "VALID"},
      {"empty rows", "conv2d", 2, 9, 4, 1, {{5, 2}, {3, 4}}, "VALID"},
      {"empty batch", "conv2d", 0, 3, 4, 1, {{5, 3}, {5, 3}}},
      {"depthwise 3x3", "depthwise", 3, 40, 40, 40, {{9, 3}, {7, 3}}},
      {"depthwise, multiplier 2", "depthwise", 2, 9, 18, 9, {{9, 3}, {7, 3}}},
      {"depthwise, multiplier 2, many", "depthwise", 2, 70, 140, 70, {{6, 3}, {7, 5, 2}}},
      {"60 groups of 3 to 2", "conv2d", 2, 180, 120, 60, {{6, 3}, {7, 7}}},
      {"depthwise, multiplier 17", "depthwise", 2, 3, 51, 3, {{6, 3}, {7, 3}}},
      {"depthwise, prime channels, s2", "depthwise", 2, 101, 101, 101, {{9, 3, 2}, {7, 5, 2}}},
      {"depthwise, strides 1,3", "depthwise", 2, 8, 8, 8, {{9, 3, 1}, {11, 3, 3}}},
      {"depthwise, dilated", "depthwise", 2, 8, 16, 8, {{12, 3, 1, 2}, {11, 3, 2, 3}}},
      {"depthwise, uneven", "depthwise", 2, 8, 8, 8, {{6, 3}, {5, 5}}, "EXPLICIT", {0, 3, 4, 1}},
      {"depthwise 31x31", "depthwise", 1, 3, 3, 3, {{20, 31}, {21, 31}}},
      // In place, with groups of rows and parts of vectors; groups picked in registers.
      {"depthwise, wide", "depthwise", 2, 150, 150, 150, {{20, 3}, {25, 3}}},
      {"depthwise, wide, s2", "depthwise", 1, 33, 33, 33, {{31, 3, 2}, {40, 3, 2}}},
      {"depthwise 7x3, wide, dilated", "depthwise", 1, 20, 20, 20, {{40, 7, 1, 2}, {30, 3}}},
      {"33 groups of 4", "conv2d", 1, 132, 132, 33, {{18, 3}, {20, 3}}},
      {"5 groups of 8", "conv2d", 1, 40, 40, 5, {{18, 3}, {20, 5}}},
      {"16 groups of 3 to 2", "conv2d", 2, 48, 32, 16, {{11, 3, 2}, {20, 3}}},
      {"16 groups of 4 to 8", "conv2d", 1, 64, 128, 16, {{9, 3}, {20, 3}}},
      {"depthwise, multiplier 2, wide", "depthwise", 2, 35, 70, 35, {{12, 3}, {13, 3}}},
      {"one output channel", "conv2d", 2, 70, 1, 1, {{9, 3}, {13, 3}}},
      {"1x1 to 24, one vector and a half", "conv2d", 2, 20, 24, 1, {{9, 1}, {13, 1}}},
      {"3 channels to 2", "conv2d", 2, 3, 2, 1, {{9, 5}, {13, 3}}},
      {"taps far apart", "conv2d", 3, 20, 24, 1, {{9, 3, 1, 3}, {9, 3, 1, 4}}},
      {"3-D, panels for a plane of taps", "conv3d", 1, 64, 4, 1, {{5, 3}, {30, 3}, {30, 3}}},
      {"3-D, groups = C, wide", "conv3d", 1, 20, 20, 20, {{4, 3}, {8, 3}, {9, 3}}},
      {"3-D 3x3x3", "conv3d", 2, 5, 16, 1, {{4, 3}, {6, 3}, {5, 3}}},
      {"3-D 1x1x1", "conv3d", 2, 12, 20, 1, {{3, 1}, {4, 1}, {5, 1}}},
      {"3-D stem, s2", "conv3d", 1, 3, 16, 1, {{5, 3, 2}, {13, 7, 2}, {12, 7, 2}}},
      {"3-D, strided, valid", "conv3d", 1, 4, 16, 1, {{5, 2, 1}, {7, 3, 2}, {11, 2, 3}}, "VALID"},
      {"3-D dilated", "conv3d", 1, 4, 16, 1, {{7, 2, 1, 3}, {7, 3, 1, 2}, {9, 2, 2, 2}}},
      {"3-D pads", "conv3d", 2, 8, 12, 4, {{3, 2}, {4, 3}, {5, 2}}, "EXPLICIT", {1, 0, 2, 1, 0, 2}},
      {"3-D, groups = C", "conv3d", 2, 6, 6, 6, {{4, 3}, {5, 3}, {4, 3}}},
      {"3-D, taps that only see padding", "conv3d", 1, 2, 3, 1, {{1, 3}, {1, 3}, {2, 5}}},
  };
}

std::vector<ProblemSpec> padded_problems() {
  return {{"corner", "conv2d", 2, 4, 16, 1, {{4, 3}, {4, 3}}},
          {"depthwise", "depthwise", 2, 4, 4, 4, {{4, 3}, {4, 3}}},
          {"3-D", "conv3d", 1, 3, 16, 1, {{3, 3}, {3, 3}, {3, 3}}},
          {"18 channels", "conv2d", 1, 18, 18, 1, {{4, 3}, {16, 3}}},
          {"grouped", "conv2d", 1, 10, 20, 5, {{4, 3}, {4, 3}}}};
}

std::vector<ProblemSpec> many_block_problems() {
  return {{"many chunks", "conv2d", 40, 18, 9, 1, {{13, 3}, {17, 3}}},
          {"rows", "conv2d", 2, 3, 20, 1, {{67, 3, 2}, {90, 5}}},
          {"depthwise", "depthwise", 23, 17, 17, 17, {{20, 3}, {21, 3}}},
          {"3-D", "conv3d", 3, 4, 17, 1, {{9, 3}, {12, 3}, {11, 3}}},
          {"wide", "conv2d", 1, 2, 16, 1, {{5, 3}, {2000, 3}}}};
}

std::vector<WgradProblem> plain_problems(DType dtype) {
  std::vector<WgradProblem> problems;
  for (const std::int64_t groups : {1, 16}) {
    problems.push_back(make({"", "conv2d", 1, 16, 16, groups, {{5, 3}, {5, 3}}}, dtype, true));
  }
  return problems;
}

std::string lacking(const Kernel& kernel) {
  std::string lack;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const WgradProblem& problem : plain_problems(dtype)) {
      const std::string reason = kernel.why_not(problem, this_machine());
      if (reason.empty()) return "";
      if (reason.starts_with("the processor has no")) lack = reason;
    }
  }
  return lack;
}

}  // namespace convgrad::testing
