// crop.cpp - see crop.hpp.
#include "check/crop.hpp"

#include <algorithm>

namespace convgrad {

Crop whole_crop(const WgradProblem& pb) {
  Crop crop = {{0, pb.N}, {0, pb.groups}, {0, pb.group_c()}, {0, pb.group_k()}, {}, {}};
  for (std::size_t a = 0; a < 3; ++a) {
    crop.out[a] = {0, pb.axis[a].out};
    crop.taps[a] = {0, pb.axis[a].taps};
  }
  return crop;
}

std::optional<CroppedProblem> cropped(const WgradProblem& problem, const Crop& crop) {
  CroppedProblem result = {problem, {}};
  WgradProblem& pb = result.problem;
  pb.N = crop.images.size();
  pb.groups = crop.groups.size();
  pb.C = crop.c.size() * pb.groups;
  pb.K = crop.k.size() * pb.groups;
  result.origin.image = crop.images.begin;
  result.origin.x_channel = crop.groups.begin * problem.group_c() + crop.c.begin;
  result.origin.dy_channel = crop.groups.begin * problem.group_k() + crop.k.begin;
  for (std::size_t a = 0; a < 3; ++a) {
    SpatialAxis& axis = pb.axis[a];
    const Range out = crop.out[a], taps = crop.taps[a];
    // What the taps see, from x's first position on.
    const std::int64_t begin =
        out.begin * axis.stride - axis.pad_before + taps.begin * axis.dilation;
    const std::int64_t end =
        (out.end - 1) * axis.stride - axis.pad_before + (taps.end - 1) * axis.dilation + 1;
    const Range seen = {std::clamp<std::int64_t>(begin, 0, axis.in),
                        std::clamp<std::int64_t>(end, 0, axis.in)};
    if (out.size() <= 0 || seen.size() <= 0) return std::nullopt;
    axis.in = seen.size();
    axis.out = out.size();
    axis.taps = taps.size();
    axis.pad_before = seen.begin - begin;
    axis.pad_after = end - seen.end;
    result.origin.x[a] = seen.begin;
    result.origin.dy[a] = out.begin;
  }
  return result;
}

std::int64_t whole_index(const WgradProblem& problem, const Crop& crop, const WgradProblem& part,
                         std::int64_t index) {
  const std::int64_t k = index % part.K, c = index / part.K % part.group_c();
  const std::int64_t tap = index / part.K / part.group_c();
  const std::int64_t S = part.axis[2].taps, R = part.axis[1].taps;
  const std::int64_t t = tap / S / R + crop.taps[0].begin;
  const std::int64_t r = tap / S % R + crop.taps[1].begin;
  const std::int64_t s = tap % S + crop.taps[2].begin;
  const std::int64_t whole_tap = (t * problem.axis[1].taps + r) * problem.axis[2].taps + s;
  const std::int64_t whole_c = c + crop.c.begin;
  const std::int64_t whole_k = crop.groups.begin * problem.group_k() + crop.k.begin + k;
  return (whole_tap * problem.group_c() + whole_c) * problem.K + whole_k;
}

}  // namespace convgrad
