#include "check/crop.hpp"

#include <algorithm>

#include "base/buffer.hpp"
#include "check/block_walk.hpp"
#include "convgrad/array_file.hpp"

namespace convgrad {
namespace {

std::vector<std::int64_t> origin_in_file(const WgradProblem& pb, std::int64_t channel,
                                         const std::array<std::int64_t, 3>& spatial) {
  std::vector<std::int64_t> origin = {0};
  if (!pb.channels_last) origin.push_back(channel);
  origin.insert(origin.end(), spatial.end() - pb.spatial_rank(), spatial.end());
  if (pb.channels_last) origin.push_back(channel);
  return origin;
}

}  // namespace

Crop element_crop(const WgradProblem& pb, std::int64_t index) {
  const auto [t, r, s] = tap_place(pb, index / pb.K / pb.group_c());
  return {index / pb.K % pb.group_c(), index % pb.K, {{{t, t + 1}, {r, r + 1}, {s, s + 1}}}};
}

std::optional<CroppedProblem> cropped(const WgradProblem& whole, const Crop& crop) {
  CroppedProblem result = {whole, {}, {}};
  WgradProblem& pb = result.problem;
  pb.groups = pb.C = pb.K = 1;
  std::array<std::int64_t, 3> first = {};
  for (std::size_t a = 0; a < 3; ++a) {
    SpatialAxis& axis = pb.axis[a];
    const Range taps = crop.taps[a];
    // The taps see this, counted from x's first position.
    const std::int64_t begin = taps.begin * axis.dilation - axis.pad_before;
    const std::int64_t end =
        (axis.out - 1) * axis.stride - axis.pad_before + (taps.end - 1) * axis.dilation + 1;
    const Range seen = {std::clamp<std::int64_t>(begin, 0, axis.in),
                        std::clamp<std::int64_t>(end, 0, axis.in)};
    if (axis.out <= 0 || seen.size() <= 0) return std::nullopt;
    axis.in = seen.size();
    axis.taps = taps.size();
    axis.pad_before = seen.begin - begin;
    axis.pad_after = end - seen.end;
    first[a] = seen.begin;
  }
  result.x = origin_in_file(whole, crop.k / whole.group_k() * whole.group_c() + crop.c, first);
  result.dy = origin_in_file(whole, crop.k, {});
  return result;
}

std::int64_t whole_index(const WgradProblem& problem, const Crop& crop, const WgradProblem& part,
                         std::int64_t tap) {
  const TapPlace place = tap_place(part, tap);
  std::int64_t whole_tap = 0;
  for (std::size_t a = 0; a < 3; ++a) {
    whole_tap = whole_tap * problem.axis[a].taps + place[a] + crop.taps[a].begin;
  }
  return (whole_tap * problem.group_c() + crop.c) * problem.K + crop.k;
}

void write_part(const std::string& path, NpyReader& whole, DType dtype,
                const std::vector<std::int64_t>& origin, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> begin = origin, end = origin;
  std::int64_t bytes = dtype_bytes(dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) {
    end[i] += shape[i];
    bytes *= shape[i];
  }
  const Buffer image(bytes, "an image of the small problem");
  ArrayFile file(path, dtype, shape, {.no_clobber = true});
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    begin[0] = n;
    end[0] = n + 1;
    whole.read_box(begin, end, image.data());
    file.write(image.data(), static_cast<std::size_t>(bytes));
  }
  file.commit();
}

}  // namespace convgrad
