#include "check/untested.hpp"

#include <bit>
#include <cmath>
#include <map>
#include <numeric>

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

// Calls visit(element) for the first element of each line along an axis, until it returns false.
template <typename Scalar, typename Visit>
void visit_lines(const Scalar* data, const std::array<std::int64_t, 5>& strides,
                 const std::array<Range, 5>& box, std::size_t axis, Visit&& visit) {
  std::array<std::int64_t, 5> at = {};
  for (const Range& range : box) {
    if (range.size() <= 0) return;
  }
  while (true) {
    if (!visit(data)) return;
    std::size_t a = 5;
    while (a-- > 0) {
      if (a == axis) continue;
      data += strides[a];
      if (++at[a] < box[a].size()) break;
      data -= at[a] * strides[a];
      at[a] = 0;
    }
    if (a >= 5) return;
  }
}

}  // namespace

// Looks at the axis' lines until all slices differ.
template <typename Scalar>
void Untested::Slices::split(const Elements& e, std::size_t axis) {
  if (open.empty()) return;
  const auto* const data = static_cast<const Scalar*>(e.data);
  visit_lines(data, e.strides, e.box, axis, [&](const Scalar* line) {
    const auto bits = [&](std::int64_t i) { return bits_of(line[i * e.strides[axis]]); };
    std::map<std::pair<std::int64_t, std::uint64_t>, std::int64_t> firsts;
    std::erase_if(open, [&](std::int64_t i) {
      std::int64_t& first = like[static_cast<std::size_t>(i)];
      const std::uint64_t mine = bits(i);
      if (mine == bits(first)) return false;
      const auto [found, is_first] = firsts.try_emplace({first, mine}, i);
      first = found->second;
      return is_first;
    });
    // Some rows that are the same are usual; images and channels are not.
    known = firsts.empty() || axis == kImages || axis == kChannels;
    return known && !open.empty();
  });
}

// Images of later blocks are compared with the first one, where those of its block are alike.
template <typename Scalar>
void Untested::Pattern::add_images(const Elements& e, bool first_box) {
  Slices& slices = axes[kImages];
  const auto image = [&](std::int64_t i) {
    std::vector<std::uint64_t> bits;
    const auto* const data = static_cast<const Scalar*>(e.data) + i * e.strides[kImages];
    visit_lines(data, e.strides, e.box, kImages, [&](const Scalar* element) {
      bits.push_back(bits_of(*element));
      return true;
    });
    return bits;
  };
  if (first_box) {
    slices.split<Scalar>(e, kImages);
    const bool alike = slices.all_alike() && e.box[kImages].size() < images;
    if (alike) first_image = image(0);
    return;
  }
  slices.known = !first_image.empty();
  for (std::int64_t i = 0; i < e.box[kImages].size() && slices.known; ++i) {
    slices.known = image(i) == first_image;
  }
}

template <typename Scalar>
void Untested::Pattern::add(const Elements& e) {
  if (constant) {
    const auto* const data = static_cast<const Scalar*>(e.data);
    visit_lines(data, e.strides, e.box, kChannels, [&](const Scalar* line) {
      if (!first) first = to_double(*line);
      for (std::int64_t i = 0; i < e.box[kChannels].size() && constant; ++i) {
        constant = bits_of(line[i * e.strides[kChannels]]) == bits_of(*first);
      }
      return constant;
    });
  }
  for (std::size_t a = axes.size(); a-- > 0;) {  // images last, when it is known what a block holds
    Slices& slices = axes[a];
    if (!slices.range) {
      slices.range = e.box[a];
      slices.like.resize(static_cast<std::size_t>(e.box[a].size()));
      slices.open.resize(slices.like.size());
      std::iota(slices.open.begin(), slices.open.end(), 0);
      if (!slices.open.empty()) slices.open.erase(slices.open.begin());
    }
    const bool first_box =
        e.box[a].begin == slices.range->begin && e.box[a].end == slices.range->end;
    in_pieces = in_pieces || (a != kImages && !first_box);
    slices.known = slices.known && (first_box || (a == kImages && !in_pieces));
    if (constant || !slices.known) continue;
    if (a == kImages) {
      add_images<Scalar>(e, first_box);
    } else {
      slices.split<Scalar>(e, a);
    }
  }
}

void Untested::Pattern::say(const std::string& name, std::vector<std::string>& texts) const {
  const bool several =
      images > 1 || std::ranges::any_of(axes, [](const Slices& s) { return s.like.size() > 1; });
  if (constant) {
    if (several) texts.push_back(name + " is constant, so no order of its elements");
    return;
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const Slices& slices = axes[a];
    if (!slices.known || slices.open.empty()) continue;
    if (slices.all_alike()) {
      texts.push_back(cat(name, " is the same in all ", kSliceNames[a], ", so not their order"));
    } else if (a == kImages || a == kChannels) {
      texts.push_back(cat(slices.open.size(), " of ", name, "'s ", slices.like.size(), " ",
                          kSliceNames[a], ", which are the same as others"));
    }
  }
}

void Untested::add(const Block& block, std::int64_t, const Progress&) {
  const auto elements = [&](const void* data, const Strides& s, const std::array<Range, 3>& box,
                            std::int64_t channels) {
    return Elements{data,
                    {s.n, s.spatial[0], s.spatial[1], s.spatial[2], s.c},
                    {block.pixels[0], box[0], box[1], box[2], Range{0, channels}}};
  };
  const Elements x = elements(block.x, block.x_strides, block.input, problem_.C);
  const Elements dy = elements(block.dy, block.dy_strides,
                               {block.pixels[1], block.pixels[2], block.pixels[3]}, problem_.K);
  with_scalar(problem_.dtype, [&](auto scalar) {
    x_.add<decltype(scalar)>(x);
    dy_.add<decltype(scalar)>(dy);
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
