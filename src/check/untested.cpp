#include "check/untested.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "check/block_walk.hpp"

namespace convgrad {
namespace {

constexpr std::size_t kImages = 0, kChannels = 4;
constexpr const char* kSliceNames[] = {"images", "planes", "rows", "columns", "channels"};

// A product sees both zeros as one number, and every NaN as one.
template <typename Scalar>
std::uint64_t bits_of(Scalar element) {
  const double value = to_double(element);
  return std::bit_cast<std::uint64_t>(std::isnan(value) ? NAN : value + 0.0);
}

}  // namespace

Untested::Pattern::Pattern(const std::array<std::int64_t, 5>& extents) {
  std::mt19937_64 random(1);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    axes[a].resize(static_cast<std::size_t>(extents[a]));
    for (Slice& slice : axes[a]) slice.key = random();
  }
}

template <typename Scalar>
void Untested::Pattern::add(const Scalar* elements, const std::array<std::int64_t, 5>& strides,
                            const std::array<Range, 5>& box) {
  if (std::ranges::any_of(box, [](const Range& range) { return range.size() <= 0; })) return;
  if (!first) first = to_double(*elements);
  const std::uint64_t first_bits = bits_of(*first);
  const auto slice = [&](std::size_t axis, std::int64_t at) -> Slice& {
    return axes[axis][static_cast<std::size_t>(box[axis].begin + at)];
  };
  Slice* const channels = &slice(kChannels, 0);
  std::array<std::int64_t, 4> at{};
  const auto add_pixel = [&] {
    const Scalar* from = elements;
    std::uint64_t keys = 0, sum = 0, by_channels = 0;
    for (std::size_t a = 0; a < at.size(); ++a) {
      from += at[a] * strides[a];
      keys += slice(a, at[a]).key;
    }
    bool same = true;
    for (std::int64_t c = 0; c < box[kChannels].size(); ++c) {
      const std::uint64_t bits = bits_of(from[c * strides[kChannels]]);
      same = same && bits == first_bits;
      // The low bits of most numbers are 0.
      const std::uint64_t mixed = bits * 0x9e3779b97f4a7c15, hash = mixed ^ mixed >> 32;
      sum += hash;
      by_channels += hash * channels[c].key;
      channels[c].sum += hash * keys;
    }
    constant = constant && same;
    for (std::size_t a = 0; a < at.size(); ++a) {
      Slice& own = slice(a, at[a]);
      own.sum += by_channels + sum * (keys - own.key);
    }
  };
  for (at[0] = 0; at[0] < box[0].size(); ++at[0]) {
    for (at[1] = 0; at[1] < box[1].size(); ++at[1]) {
      for (at[2] = 0; at[2] < box[2].size(); ++at[2]) {
        for (at[3] = 0; at[3] < box[3].size(); ++at[3]) add_pixel();
      }
    }
  }
}

void Untested::Pattern::say(const std::string& name, std::vector<std::string>& texts) const {
  if (constant) {
    const bool several =
        std::ranges::any_of(axes, [](const auto& axis) { return axis.size() > 1; });
    if (several) texts.push_back(name + " is constant, so no order of its elements");
    return;
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::set<std::uint64_t> different;
    for (const Slice& slice : axes[a]) different.insert(slice.sum);
    const std::size_t extent = axes[a].size();
    if (different.size() == extent) continue;
    if (different.size() == 1) {
      texts.push_back(cat(name, " is the same in all ", kSliceNames[a], ", so not their order"));
    } else if (a == kImages || a == kChannels) {  // some rows that are the same are usual
      texts.push_back(cat(extent - different.size(), " of ", name, "'s ", extent, " ",
                          kSliceNames[a], ", which are the same as others"));
    }
  }
}

Untested::Untested(const WgradProblem& pb)
    : problem_(pb),
      x_({pb.N, pb.axis[0].in, pb.axis[1].in, pb.axis[2].in, pb.C}),
      dy_({pb.N, pb.axis[0].out, pb.axis[1].out, pb.axis[2].out, pb.K}) {}

void Untested::add(const Block& block, std::int64_t, const Progress&) {
  with_scalar(problem_.dtype, [&](auto scalar) {
    const auto add_to = [&](Pattern& tensor, const void* data, const Strides& s,
                            const std::array<Range, 3>& box, std::int64_t channels) {
      tensor.add(static_cast<const decltype(scalar)*>(data),
                 {s.n, s.spatial[0], s.spatial[1], s.spatial[2], s.c},
                 {block.pixels[0], box[0], box[1], box[2], Range{0, channels}});
    };
    add_to(x_, block.x, block.x_strides, block.input, problem_.C);
    add_to(dy_, block.dy, block.dy_strides, {block.pixels[1], block.pixels[2], block.pixels[3]},
           problem_.K);
  });
}

std::vector<std::string> Untested::texts() const {
  std::vector<std::string> texts;
  x_.say("x", texts);
  dy_.say("dy", texts);
  std::int64_t seen = 1;
  for (const SpatialAxis& axis : problem_.axis) {
    std::int64_t taps = 0;
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
      taps += outputs_inside(axis, tap).size() > 0 ? 1 : 0;
    }
    seen *= taps;
  }
  if (seen < problem_.taps()) {
    texts.push_back(
        cat(problem_.taps() - seen, " of ", problem_.taps(), " taps, which see padding alone"));
  }
  return texts;
}

}  // namespace convgrad
