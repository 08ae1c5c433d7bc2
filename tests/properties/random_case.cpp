// random_case.cpp - see random_case.hpp.
#include "random_case.hpp"

#include <rapidcheck.h>

#include <algorithm>
#include <ostream>

namespace convgrad::testing {
namespace {

// Both are for use within gen::exec. They shrink to lowest, and to the first. The size that
// rapidcheck wants does not enter: cases of every kind come from the first on.
std::int64_t pick(std::int64_t lowest, std::int64_t highest) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(lowest, highest + 1));
}

template <typename T>
T pick_of(const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(pick(0, std::ssize(choices) - 1))];
}

// Few, some, or as many as a tile or a vector holds, one more or one less.
std::int64_t pick_channels() {
  switch (pick(0, 3)) {
    case 2:
      return pick(10, 40);
    case 3:
      return pick_of<std::int64_t>(
          {15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 96, 97, 112, 127, 128, 129, 150});
    default:
      return pick(1, 9);
  }
}

void pick_channels(ProblemSpec& spec, bool many_pixels) {
  std::int64_t group_c = 1, group_k = 1;
  if (many_pixels) {
    spec.groups = spec.op == "depthwise" ? pick(1, 20) : pick_of<std::int64_t>({1, 1, 2, 5});
    group_c = spec.op == "depthwise" ? 1 : pick(1, 6);
    group_k = pick(1, 6);
  } else if (spec.op == "depthwise") {
    spec.groups = pick_channels();
    group_k = pick_of<std::int64_t>({1, 1, 1, 2, 3, 17});
  } else {
    spec.groups = pick_of<std::int64_t>({1, 1, 1, 1, 2, 3, 4, 5, 8, 16, 33});
    group_c = spec.groups == 1 ? pick_channels() : pick(1, 9);
    group_k = spec.groups == 1 ? pick_channels() : pick(1, 9);
  }
  spec.C = spec.groups * group_c;
  spec.K = spec.groups * group_k;
}

void pick_axes(ProblemSpec& spec, bool many_pixels) {
  const int rank = spec.op == "conv3d" ? 3 : 2;
  const std::int64_t usual = (rank == 3 ? 10 : 25) * (many_pixels ? 2 : 1);
  for (int a = 0; a < rank; ++a) {
    AxisSpec axis{1, 1};
    axis.taps = pick_of<std::int64_t>({1, 3, 2, 3, 1, 4, 5, 7, 9});
    axis.stride = pick_of<std::int64_t>({1, 1, 1, 2, 2, 3, 4, 5});
    axis.dilation = pick_of<std::int64_t>({1, 1, 1, 1, 2, 3, 5});
    axis.in = pick(0, 11) == 11 ? pick(30, 700) : pick(1, usual);
    spec.axes.push_back(axis);
  }
  spec.padding = pick_of<std::string>({"VALID", "SAME", "EXPLICIT"});
  if (spec.padding != "EXPLICIT") return;
  const std::int64_t least = pick(0, 3) == 3 ? -3 : 0;
  for (int i = 0; i < 2 * rank; ++i) spec.pads.push_back(pick(least, pick(0, 5) == 5 ? 11 : 3));
}

// What the filter of one axis covers, less what is padded: the smallest extent with an output.
std::int64_t least_extent(const ProblemSpec& spec, std::size_t a) {
  if (spec.padding == "SAME") return 1;
  const AxisSpec& axis = spec.axes[a];
  const std::int64_t pads = spec.pads.empty() ? 0 : spec.pads[2 * a] + spec.pads[2 * a + 1];
  return std::max<std::int64_t>(1, (axis.taps - 1) * axis.dilation + 1 - pads);
}

void make_legal(ProblemSpec& spec) {
  for (std::size_t a = 0; a < spec.axes.size(); ++a) {
    spec.axes[a].in = std::max(spec.axes[a].in, least_extent(spec, a));
  }
}

// Makes the largest extent smaller; one that the filter holds gets a smaller filter.
void reduce(ProblemSpec& spec) {
  std::int64_t group_c = spec.C / spec.groups, group_k = spec.K / spec.groups;
  std::vector<std::int64_t*> extents = {&spec.N, &group_c, &group_k, &spec.groups};
  for (AxisSpec& axis : spec.axes) extents.push_back(&axis.in);
  const auto largest =
      std::ranges::max_element(extents, {}, [](const std::int64_t* extent) { return *extent; });
  if (const auto at = largest - extents.begin(); at >= 4) {
    const auto a = static_cast<std::size_t>(at - 4);
    AxisSpec& axis = spec.axes[a];
    if (axis.in <= least_extent(spec, a)) {
      (axis.dilation > 1 ? axis.dilation : axis.taps) = axis.dilation > 1 ? 1 : (axis.taps + 1) / 2;
    }
  }
  **largest = std::max<std::int64_t>(1, **largest / 2);
  spec.C = spec.groups * group_c;
  spec.K = spec.groups * group_k;
}

void fit(ProblemSpec& spec, double multiply_adds) {
  const auto too_large = [&] {
    make_legal(spec);
    const WgradProblem problem = make(spec, DType::f32, true);
    const auto elements = static_cast<double>(std::max(problem.x_count(), problem.dy_count()));
    return flop_count(problem) > 2 * multiply_adds || elements > multiply_adds / 4;
  };
  while (too_large()) reduce(spec);
}

// No image, or an output without rows, where the padding makes that legal.
void make_empty(ProblemSpec& spec) {
  const std::int64_t rows = least_extent(spec, 0) - 1;
  if (spec.padding == "SAME" || rows < 1) {
    spec.N = 0;
  } else {
    spec.axes[0].in = rows;
  }
}

}  // namespace

rc::Gen<RandomCase> random_cases(const CaseLimits& limits) {
  return rc::gen::exec([limits] {
    RandomCase c;
    c.spec.name = "random";
    c.spec.op = pick_of(limits.ops);
    c.dtype = pick_of(limits.dtypes);
    c.channels_last = pick(0, 1) == 0;
    const bool many_pixels = pick(0, 2) == 2;
    c.spec.N = pick(0, 7) == 7 ? pick(6, 70) : pick(1, many_pixels ? 12 : 5);
    pick_channels(c.spec, many_pixels);
    pick_axes(c.spec, many_pixels);
    // A few larger ones reach several tiles of many channels at once.
    fit(c.spec, limits.multiply_adds * (pick(0, 19) == 19 ? 8 : 1));
    if (pick(0, 29) == 29) make_empty(c.spec);
    c.data = {limits.distribution, static_cast<std::uint64_t>(pick(1, 1'000'000)), false};
    c.threads = static_cast<int>(pick(1, 4));
    c.block_bytes = pick_of<std::int64_t>({0, 1, 300, 4000, 100'000});
    return c;
  });
}

std::vector<std::byte> made_tensor(const RandomCase& c, Operand operand) {
  const WgradProblem problem = c.problem();
  const TensorMaker maker(problem, operand, c.data);
  const std::int64_t count = operand == Operand::x ? problem.x_count() : problem.dy_count();
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * dtype_bytes(c.dtype)));
  maker.fill(0, count, bytes.data());
  return bytes;
}

std::string repeat_lines(const RandomCase& c, const std::string& more) {
  const std::string line = describe(c.problem());
  const std::string golden =
      c.data.distribution == Distribution::integers ? " --golden case/gradient.npy --bitwise" : "";
  return cat(line, ", ", c.threads, " threads, blocks of ", c.block_bytes,
             " bytes (0: any)\n  convgrad generate --clobber --problem '", line, "' --dist ",
             distribution_name(c.data.distribution), " --seed ", c.data.seed,
             " -o case\n  convgrad verify --problem '", line,
             "' -i case/input.npy -g case/out_backprop.npy", golden, " -t ", c.threads, more);
}

void showValue(const RandomCase& c, std::ostream& out) { out << repeat_lines(c, ""); }

}  // namespace convgrad::testing
