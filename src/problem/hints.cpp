// hints.cpp - finds what would fit instead of a request that does not. One or more usual slips are
// undone, and the validator itself tries the result.
#include <algorithm>

#include "problem/draft.hpp"

namespace convgrad::making {
namespace {

using Shape = std::vector<std::int64_t>;

struct Reading {
  bool exchanged = false;   // x and dy are
  bool other_data = false;  // channels first instead of last, or the reverse
  std::size_t filter = 0;   // which other order the filter's shape has; 0: none
  int slips() const { return int{exchanged} + int{other_data} + int{filter != 0}; }
};

// Reorders [K,C,taps] or [K,taps,C] as [taps,C,K].
Shape in_hwio_order(const Shape& shape, FilterFormat format) {
  const auto taps = shape.begin() + (format == FilterFormat::oihw ? 2 : 1);
  Shape result(taps, taps + std::ssize(shape) - 2);
  result.push_back(format == FilterFormat::oihw ? shape[1] : shape.back());
  result.push_back(shape.front());
  return result;
}

// Tells whether the filter's shape can be read in the reading's order. The changed request goes
// into attributes, and the change into words.
bool read_filter_as(const Reading& reading, Op op, WgradAttributes& attributes,
                    std::string& words) {
  if (reading.filter == 0) return true;
  const Names names = filter_formats(op);
  const bool like = !attributes.filter_like.empty();
  const std::size_t given =
      like ? static_cast<std::size_t>(parse_filter_format(op, attributes.filter_format)) : 0;
  const std::size_t other = (given + reading.filter) % names.size();
  if (like) {
    attributes.filter_format = names[other];
    words = cat("use --filter-format ", names[other]);
    return true;
  }
  Shape& sizes = attributes.filter_sizes;
  if (sizes.size() < 3) return false;
  const std::string was = bracketed(sizes);
  const Shape as_oihw = in_hwio_order(sizes, FilterFormat::oihw);
  const Shape as_ohwi = in_hwio_order(sizes, FilterFormat::ohwi);
  const bool is_either = as_oihw == as_ohwi;
  if (is_either && other == 2) return false;  // the other reading says it
  sizes = other == 1 ? as_oihw : as_ohwi;
  const std::string now = bracketed(sizes);
  words = cat("use --filter-sizes ", now.substr(1, now.size() - 2), ", since ", was, " is ",
              is_either ? cat(names[1], " or ", names[2]) : names[other]);
  return true;
}

// Describes the request without the slips; returns "" if it does not fit either.
std::string words_if_it_fits(const Reading& reading, const TensorInfo& x, const TensorInfo& dy,
                             WgradAttributes attributes) {
  const Op op = parse_op(attributes.op);
  std::string words;
  const auto add = [&](const std::string& more) {
    if (!more.empty()) words += cat(words.empty() ? "" : " and ", more);
  };
  if (reading.exchanged) add("exchange --input and --out-backprop");
  if (reading.other_data) {
    const bool last = parse_data_format(op, attributes.data_format);
    attributes.data_format = data_formats(op)[last ? 1 : 0];
    add("use --data-format " + attributes.data_format);
  }
  std::string filter;
  if (!read_filter_as(reading, op, attributes, filter)) return "";
  add(filter);
  const bool good = reading.exchanged ? fits(dy, x, attributes) : fits(x, dy, attributes);
  return good ? words : "";
}

// Returns what would fit if one tensor alone is in the other data format, or C and K of
// --filter-sizes change places; "" if neither does.
std::string rare_slip(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& given) {
  const Op op = parse_op(given.op);
  const bool last = parse_data_format(op, given.data_format);
  for (const bool of_x : {true, false}) {
    TensorInfo turned = of_x ? x : dy;
    Shape& shape = turned.shape;
    if (shape.size() < 3) continue;
    std::rotate(shape.begin() + 1, last ? shape.begin() + 2 : shape.end() - 1, shape.end());
    if (of_x ? fits(turned, dy, given) : fits(x, turned, given)) {
      return cat("turn ", of_x ? "--input" : "--out-backprop", " to ",
                 data_formats(op)[last ? 0 : 1], ", as the other one is");
    }
  }
  WgradAttributes exchanged = given;
  Shape& sizes = exchanged.filter_sizes;
  if (sizes.size() < 2) return "";
  std::swap(sizes.back(), sizes[sizes.size() - 2]);
  const std::string now = bracketed(sizes);
  return fits(x, dy, exchanged) ? cat("use --filter-sizes ", now.substr(1, now.size() - 2)) : "";
}

}  // namespace

Hint transposed_hint(const Draft& draft) {
  if (upper(draft.attributes.padding).starts_with("SAME")) return {};
  std::string pairs;
  for (std::size_t a = draft.first(); a < 3; ++a) {
    SpatialAxis axis = draft.problem.axis[a];
    const std::int64_t found = draft.dy.shape[draft.position(a)];
    if (found != axis.out) {
      if (found < 1 || found > axis.out) return {};  // more outputs do not fit, however many
      const std::int64_t all = axis.in + axis.pad_before + axis.pad_after;
      const std::int64_t more =
          all - ((axis.taps - 1) * axis.dilation + 1) - (found - 1) * axis.stride;
      if (more >= std::max(axis.stride, axis.dilation)) return {};
      axis.pad_after -= more;
    }
    pairs += cat(pairs.empty() ? "[" : ",[", axis.pad_before, ",", axis.pad_after, "]");
  }
  return Hint("-p '[", pairs, "]': then it fits, as a transposed layer's output_padding needs it");
}

Hint hint(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& given) {
  // --kernel has no channels, so its order cannot be mistaken.
  const std::size_t orders = given.kernel.empty() ? 3 : 1;
  std::string found;
  int fewest = 4;
  for (int i = 1; i < 4 * static_cast<int>(orders); ++i) {
    const Reading reading = {(i & 1) != 0, (i & 2) != 0, static_cast<std::size_t>(i / 4)};
    // Readings with equally few slips are all named.
    if (reading.slips() > fewest) continue;
    const std::string words = words_if_it_fits(reading, x, dy, given);
    if (words.empty()) continue;
    found = reading.slips() < fewest ? words : cat(found, ", or ", words);
    fewest = reading.slips();
  }
  if (found.empty()) found = rare_slip(x, dy, given);
  return found.empty() ? Hint() : Hint(found, ": then it fits");
}

Hint rank_hint(const Draft& draft, const std::vector<std::int64_t>& shape) {
  if (shape.size() == draft.rank() + 1) {
    return Hint("x[None] for one image, ",
                draft.problem.channels_last ? "x[..., None]" : "x[:, None]", " for one channel");
  }
  if (shape.size() != 5 || draft.rank() != 2 || shape[4] % 4 != 0) return {};
  return Hint("conv3d has 5; of blocks of channels (nChw", shape[4],
              "c) x.transpose(0, 1, 4, 2, 3).reshape(", shape[0], ", -1, ", shape[2], ", ",
              shape[3], ") is NCHW");
}

}  // namespace convgrad::making
