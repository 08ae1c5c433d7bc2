// filter_shape.cpp - the taps and groups, from --kernel, --filter-sizes or --filter-like.
#include <algorithm>
#include <array>

#include "problem/draft.hpp"

namespace convgrad::making {
namespace {

using Shape = std::vector<std::int64_t>;

// Depthwise has a group for each channel; without channels it has one, which is empty.
std::int64_t depthwise_groups(const WgradProblem& pb) { return std::max<std::int64_t>(pb.C, 1); }

void set_groups(Draft& draft, const std::string& flag, std::int64_t groups) {
  WgradProblem& pb = draft.problem;
  if (groups < 1) bad_input(flag, " is ", groups, ", expected at least 1");
  if (pb.op == Op::depthwise && groups != depthwise_groups(pb)) {
    bad_input(flag, " is ", groups, ", but depthwise has one group per channel: C=", pb.C,
              Hint("leave it out"));
  }
  if (pb.C % groups != 0) {
    bad_input(flag, ": ", groups, " groups do not divide the input's C=", pb.C);
  }
  if (pb.K % groups != 0) {
    bad_input(flag, ": ", groups, " groups do not divide out_backprop's K=", pb.K, " (",
              draft.dy.name, ")");
  }
  pb.groups = groups;
}

void read_kernel(Draft& draft) {
  const Shape& kernel = draft.attributes.kernel;
  const WgradProblem& pb = draft.problem;
  const std::size_t rank = draft.rank();
  if (kernel.size() != 1 && kernel.size() != rank) {
    bad_input("--kernel: ", counted(kernel.size(), "number"), " ", bracketed(kernel),
              ", expected 1", rank > 1 ? cat(" or ", rank) : "", " (",
              std::string_view("T,R,S").substr(2 * draft.first()), ")");
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t a = draft.first() + i;
    const std::int64_t taps = kernel.size() == 1 ? kernel[0] : kernel[i];
    check_range(cat("--kernel: ", kAxisNames[a].taps), taps, 1);
    draft.problem.axis[a].taps = taps;
  }
  if (pb.op == Op::depthwise && pb.C == 0) {
    bad_input("--kernel: C is 0 (", draft.x.name, "), so the multiplier does not follow from K",
              Hint("give --filter-sizes R,S,0,M"));
  }
  if (pb.op == Op::depthwise && pb.K % pb.C != 0) {
    bad_input(draft.dy.name, ": axis ", draft.channel_position(), " (K) is ", pb.K,
              ", expected a multiple of C=", pb.C, " as ", draft.x.name, " has");
  }
  set_groups(draft, "--groups",
             draft.attributes.groups.value_or(pb.op == Op::depthwise ? pb.C : 1));
}

// Reads TensorFlow's [.., C, M].
void read_depthwise_channels(Draft& draft, const std::string& flag, std::int64_t c,
                             std::int64_t m) {
  WgradProblem& pb = draft.problem;
  if (c != pb.C)
    bad_input(flag, "[2] (C) is ", c, ", expected ", pb.C, " as ", draft.x.name, " has");
  if (checked_mul(c, m, flag) != pb.K) {
    bad_input(draft.dy.name, ": axis ", draft.channel_position(), " (K) is ", pb.K, ", expected ",
              c * m, " = C*M from ", flag, " C=", c, " M=", m);
  }
  if (c == 0) pb.empty_multiplier = m;
  set_groups(draft, flag, depthwise_groups(pb));
}

void read_channels(Draft& draft, const std::string& flag, const Shape& shape, std::size_t in,
                   std::size_t out) {
  const WgradProblem& pb = draft.problem;
  // A depthwise filter that is not HWIO has 1 channel for each group, also where C is 0.
  const std::int64_t of_none = pb.op == Op::depthwise ? 1 : 0;
  if (pb.C == 0 && shape[in] != of_none) {
    bad_input(flag, "[", in, "] (C/groups) is ", shape[in], ", expected ", of_none,
              ", as C is 0 in ", draft.x.name);
  }
  if (pb.C > 0 && (shape[in] == 0 || pb.C % shape[in] != 0)) {
    bad_input(flag, "[", in, "] (C/groups) is ", shape[in],
              ", expected a divisor of the input's C=", pb.C, " (", draft.x.name, ")");
  }
  if (shape[out] != pb.K) {
    bad_input(flag, "[", out, "] (K) is ", shape[out], ", expected ", pb.K, " as ", draft.dy.name,
              " has");
  }
  // No channels can be any number of empty groups.
  set_groups(draft, flag, pb.C > 0 ? pb.C / shape[in] : draft.attributes.groups.value_or(1));
}

void read_shape(Draft& draft, const std::string& flag, const Shape& shape, FilterFormat format) {
  const WgradProblem& pb = draft.problem;
  const std::size_t rank = draft.rank();
  if (shape.size() != rank + 2) {
    bad_input(flag, ": ", counted(shape.size(), "number"), " ", bracketed(shape), ", expected ",
              rank + 2, " for ", op_name(pb.op));
  }
  struct Places {
    std::size_t taps, in, out;
  };
  const Places at = format == FilterFormat::hwio   ? Places{0, rank, rank + 1}
                    : format == FilterFormat::oihw ? Places{2, 1, 0}
                                                   : Places{1, rank + 1, 0};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool is_tap = at.taps <= i && i < at.taps + rank;
    check_range(cat(flag, "[", i, "]"), shape[i], is_tap ? 1 : 0);
    if (is_tap) draft.problem.axis[draft.first() + i - at.taps].taps = shape[i];
  }
  if (pb.op == Op::depthwise && format == FilterFormat::hwio) {
    read_depthwise_channels(draft, flag, shape[at.in], shape[at.out]);
  } else {
    read_channels(draft, flag, shape, at.in, at.out);
  }
  const std::optional<std::int64_t>& groups = draft.attributes.groups;
  if (groups && *groups != pb.groups) {
    bad_input("--groups is ", *groups, ", but C=", pb.C, " and ", flag, " ", bracketed(shape),
              " give ", pb.groups);
  }
}

}  // namespace

void read_filter(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  const auto count = std::ranges::count(
      std::array{given.filter_sizes.empty(), given.kernel.empty(), given.filter_like.empty()},
      false);
  if (count != 1) {
    misuse(count == 0 ? "the filter's size is missing" : "the filter's size is given twice",
           ", expected one of --kernel 3,3, --filter-sizes ",
           std::string_view("T,R,S,C,K").substr(2 * draft.first()), " and --filter-like W.npy");
  }
  if (!given.kernel.empty()) return read_kernel(draft);
  if (!given.filter_sizes.empty()) {
    return read_shape(draft, given.filter_sizes_name, given.filter_sizes, FilterFormat::hwio);
  }
  read_shape(draft, given.filter_like_name, given.filter_like, draft.problem.filter_format);
}

}  // namespace convgrad::making
