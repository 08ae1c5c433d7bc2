// places.cpp - says in words where some entries of a gradient lie.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/integers.hpp"
#include "check/diagnosis/faults.hpp"
#include "check/groups.hpp"

namespace convgrad::diagnosis {
namespace {

using Values = std::vector<std::int64_t>;
using Box = std::vector<std::set<std::int64_t>>;  // of each axis

// For each entry of a box that is wrong so many may look right by chance; scripts/measure_diagnosis
// says the same with 0.1.
constexpr double kMostRight = 0.02;
// Nobody reads more places, or more numbers in a list.
constexpr std::size_t kMostBoxes = 3, kMostListed = 6;

// Returns "c % 8 == 7", or "" without a period that says all.
std::string period_text(char letter, std::int64_t extent, const Values& values) {
  for (std::int64_t period = 2; 2 * period <= extent; ++period) {
    std::set<std::int64_t> rests;
    for (const std::int64_t v : values) rests.insert(v % period);
    const std::int64_t low = *rests.begin(), high = *rests.rbegin();
    if (high - low + 1 != std::ssize(rests) || std::ssize(rests) == period) continue;
    std::int64_t all = 0;
    for (std::int64_t v = 0; v < extent; ++v) all += rests.count(v % period) > 0 ? 1 : 0;
    if (all != std::ssize(values)) continue;
    if (low < high) return cat(letter, " % ", period, " in ", low, "-", high);
    return cat(letter, " % ", period, " == ", low, " (every ", period,
               period == 2   ? "nd"
               : period == 3 ? "rd"
                             : "th",
               ")");
  }
  return "";
}

struct Describer {
  const WgradProblem& problem;
  const std::vector<EntryAxis> axes = entry_axes(problem);
  std::vector<EntryPlace> in = {}, out = {};

  // Says where those that are in lie, of so many entries.
  Place place(std::size_t count) const {
    Place result;
    if (in.empty()) return result;
    result.everything = out.empty();
    std::vector<Box> boxes = {box_of(in)};
    // One box is the shortest text; then a box for each place on one axis, then for each tap.
    for (std::size_t a = 0; !exact(boxes) && a < axes.size(); ++a) {
      boxes = boxes_by(std::vector<std::size_t>{a});
    }
    std::vector<std::size_t> taps(axes.size() - 2);
    std::iota(taps.begin(), taps.end(), std::size_t{0});
    if (!exact(boxes)) boxes = boxes_by(taps);
    result.pattern = exact(boxes);
    if (!result.pattern) boxes = {box_of(in)};
    for (const Box& box : boxes) {
      result.text += (result.text.empty() ? "" : ", and ") + text(box);
      result.bits += bits(box);
    }
    if (!result.pattern) {
      result.text = cat(in.size(), " of ", count, " elements, scattered over ", result.text);
    }
    return result;
  }

  Box box_of(const std::vector<EntryPlace>& some) const {
    Box box(axes.size());
    for (std::size_t a = 0; a < box.size(); ++a) {
      std::vector<bool> seen(static_cast<std::size_t>(axes[a].extent));
      for (const EntryPlace& at : some) seen[static_cast<std::size_t>(at[a])] = true;
      for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i]) box[a].insert(static_cast<std::int64_t>(i));
      }
    }
    return box;
  }

  // Returns the boxes of the entries that have their places on these axes in common; boxes that are
  // alike but for those are one.
  std::vector<Box> boxes_by(const std::vector<std::size_t>& common) const {
    std::map<Values, std::vector<EntryPlace>> parts;
    for (const EntryPlace& at : in) {
      Values key;
      for (const std::size_t a : common) key.push_back(at[a]);
      parts[key].push_back(at);
    }
    std::map<Box, Box> merged;
    for (const auto& [key, some] : parts) {
      const Box own = box_of(some);
      Box others = own;
      for (const std::size_t a : common) others[a].clear();
      Box& all = merged.emplace(others, own).first->second;
      for (const std::size_t a : common) all[a].insert(own[a].begin(), own[a].end());
    }
    std::vector<Box> result;
    result.reserve(merged.size());
    for (const auto& [others, box] : merged) result.push_back(box);
    return result;
  }
  // Tells whether the boxes hold hardly anything else.
  bool exact(const std::vector<Box>& boxes) const {
    if (boxes.size() > kMostBoxes) return false;
    const auto has = [](const auto& values, std::int64_t v) { return values.count(v) > 0; };
    const auto right = std::ranges::count_if(out, [&](const EntryPlace& at) {
      return std::ranges::any_of(boxes, [&](const Box& box) {
        return std::equal(box.begin(), box.end(), at.begin(), has);
      });
    });
    return static_cast<double>(right) <= kMostRight * static_cast<double>(in.size());
  }

  // Returns log2 of how many ranges, single places, or sets of as many there are of an axis;
  // periods count as ranges.
  double bits(const Box& box) const {
    double result = 0;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const auto all = static_cast<double>(axes[a].extent),
                 some = static_cast<double>(box[a].size());
      if (some == all) continue;
      const bool range = *box[a].rbegin() - *box[a].begin() + 1 == std::ssize(box[a]) ||
                         !period_text('k', axes[a].extent, {box[a].begin(), box[a].end()}).empty();
      const double sets =
          std::lgamma(all + 1) - std::lgamma(some + 1) - std::lgamma(all - some + 1);
      const double ranges = std::log(some == 1 ? all : all * (all + 1) / 2);
      result += (range ? std::min(ranges, sets) : sets) / std::log(2.0);
    }
    return result;
  }

  std::string text(const Box& box) const {
    const auto is_one = [](const auto& values) { return values.size() == 1; };
    if (std::ranges::all_of(box, is_one)) {
      std::string element;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        element += cat(a > 0 ? ", " : "", axes[a].letter, " ", *box[a].begin());
      }
      return "the element " + element;
    }
    const std::string channels = channels_text(box), taps = taps_text(box);
    if (taps.empty()) return channels.empty() ? "every element" : channels;
    return channels.empty() ? taps : cat(channels, " of ", taps);
  }

  bool is_whole(const Box& box, std::size_t a) const {
    return std::ssize(box[a]) == axes[a].extent;
  }

  // Returns "" where all channels are meant.
  std::string channels_text(const Box& box) const {
    std::string text;
    for (std::size_t a = axes.size(); a-- > axes.size() - 2;) {
      if (is_whole(box, a)) continue;
      const Values values(box[a].begin(), box[a].end());
      const std::int64_t group =
          axes[a].letter == 'k' && problem.groups > 1 ? problem.group_k() : 0;
      text += cat(text.empty() ? "" : ", ", axes[a].name, values.size() > 1 ? "s " : " ",
                  values_text(axes[a].letter, axes[a].extent, values, group));
    }
    return text;
  }

  // Returns "" where all taps are meant.
  std::string taps_text(const Box& box) const {
    bool one = true, every = true;
    std::string position, others;
    for (std::size_t a = 0; a < axes.size() - 2; ++a) {
      one = one && box[a].size() == 1;
      every = every && is_whole(box, a);
      position += cat(a > 0 ? "," : "", *box[a].begin());
      if (is_whole(box, a)) continue;
      others += (others.empty() ? "" : ", ") +
                values_text(axes[a].letter, axes[a].extent, Values(box[a].begin(), box[a].end()));
    }
    if (every) return "";
    return one ? cat("tap (", position, ")") : "the taps " + others;
  }
};

// Says "the pixel p 2, q 5" of a pixel of an image.
std::string place_text(const WgradProblem& pb, std::int64_t pixel) {
  const auto [n, z, p, q] = pixel_place(pb, pixel);
  return cat("the pixel ", pb.spatial_rank() > 2 ? cat("z ", z, ", ") : "", "p ", p, ", q ", q);
}

std::string tile_text(const WgradProblem& pb, const Pixels& pixels) {
  const std::int64_t P = pb.axis[1].out, Q = pb.axis[2].out, tile = pixels.unit;
  const std::int64_t across = ceil_div(Q, tile), each = ceil_div(P, tile) * across;
  const std::int64_t id = pixels.range.begin % each, p = id / across * tile, q = id % across * tile;
  return cat(
      "the tile p ", p, "-", std::min(p + tile, P) - 1, ", q ", q, "-", std::min(q + tile, Q) - 1,
      " of ",
      pixels.by == Pixels::By::tile ? "every image" : cat("image ", pixels.range.begin / each));
}

}  // namespace

std::string values_text(char letter, std::int64_t extent, const Values& values,
                        std::int64_t group) {
  const auto count = std::ssize(values);
  const std::int64_t first = values.front(), last = values.back();
  if (count == 1) return cat(letter, " ", first);
  if (last - first + 1 == count) {
    std::string note;
    // Tiles and vectors have these widths. The largest that fits names the note.
    for (const std::int64_t tile : {4, 8, 16, 32, 64, 128}) {
      const bool remainder = last == extent - 1 && first > 0 && first % tile == 0 && count < tile;
      if (remainder)
        note = cat(" (the last ", count, " of ", extent, ", a remainder of ", tile, ")");
      if (count == tile && first % tile == 0) note = cat(" (a whole tile of ", tile, ")");
    }
    if (group == count && first % group == 0) note = cat(" (group ", first / group, ")");
    return cat(letter, " ", first, "-", last, note);
  }
  std::string period = period_text(letter, extent, values);
  if (!period.empty()) return period;
  std::string list;
  for (std::size_t i = 0; i < std::min(values.size(), kMostListed); ++i) {
    list += cat(i > 0 ? ", " : "", values[i]);
  }
  if (values.size() <= kMostListed) return cat(letter, " ", list);
  return cat(letter, " ", list, ", ... (", count, " of ", extent, ")");
}

std::vector<EntryAxis> entry_axes(const WgradProblem& pb) {
  std::vector<EntryAxis> axes;
  if (pb.spatial_rank() > 2) axes.push_back({'t', pb.axis[0].taps, "taps"});
  if (pb.spatial_rank() > 1) axes.push_back({'r', pb.axis[1].taps, "taps"});
  axes.push_back({'s', pb.axis[2].taps, "taps"});
  const bool depthwise = pb.op == Op::depthwise;
  axes.push_back({'c', depthwise ? pb.C : pb.group_c(), "input channel"});
  axes.push_back(depthwise ? EntryAxis{'m', pb.group_k(), "multiple"}
                           : EntryAxis{'k', pb.K, "output channel"});
  return axes;
}

EntryPlace entry_place(const std::vector<EntryAxis>& axes, std::int64_t index) {
  EntryPlace place = {};
  for (std::size_t a = axes.size(); a-- > 0;) {  // in the order of indices
    place[a] = index % axes[a].extent;
    index /= axes[a].extent;
  }
  return place;
}

Place place_of(const WgradProblem& problem, const std::vector<Marked>& entries) {
  Describer describer = {problem};
  for (const Marked& e : entries) {
    if (e.mark == Mark::either) continue;
    (e.mark == Mark::in ? describer.in : describer.out)
        .push_back(entry_place(describer.axes, e.index));
  }
  return describer.place(entries.size());
}

std::string pixels_text(const WgradProblem& pb, const Pixels& pixels, const std::string& verb) {
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const std::int64_t first = pixels.range.begin, last = pixels.range.end - 1;
  const auto one = [&](const std::string& what) {
    return verb.empty() ? what : cat(what, " is ", verb);
  };
  // Says "row 3", or "rows 3 to 5", with what comes after.
  const auto some = [&](const char* name, std::int64_t from, std::int64_t to,
                        const std::string& after) {
    if (from == to) return one(cat(name, " ", from, after));
    return cat(name, "s ", from, " to ", to, after, verb.empty() ? "" : " are ", verb);
  };
  switch (pixels.by) {
    case Pixels::By::line:
      return some(kLines[pixels.unit], first, last, " of every image");
    case Pixels::By::place:
      return one(place_text(pb, first) + " of every image");
    case Pixels::By::border:
      return some("ring", first, last, " of every image (0 is its border)");
    case Pixels::By::tile:
    case Pixels::By::image_tile:
      return one(tile_text(pb, pixels));
    case Pixels::By::lane:
    case Pixels::By::image_lane:
      return some("lane", first, last,
                  cat(" of ", pixels.unit, " that take ",
                      pixels.by == Pixels::By::lane ? "pixels" : "images", " in turns"));
    default:
      break;
  }
  const std::string of_image = cat(" of image ", first / image);
  const auto whole = [&](std::int64_t unit) { return first % unit == 0 && (last + 1) % unit == 0; };
  if (whole(image)) return some("image", first / image, last / image, "");
  if (whole(row) && first / image == last / image) {
    return some("row", first % image / row, last % image / row, of_image);
  }
  if (first == last) return one(place_text(pb, first % image) + of_image);
  return some("pixel", first, last,
              cat(" of N*P*Q = ", pb.N * image,
                  pixels.range.size() % kPixelChunk == 0 ? " (chunks of 512)" : ""));
}

}  // namespace convgrad::diagnosis
