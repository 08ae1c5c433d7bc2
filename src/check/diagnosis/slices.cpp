// slices.cpp - finds parts of the gradient that stand in another's place, by the gradient itself.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// The tile is that of WMMA fragments; the other numbers bound the time, and the length of a line.
constexpr std::int64_t kMostSlices = 1 << 16, kTile = 16;
constexpr std::size_t kMostComparisons = std::size_t{1} << 24;
constexpr std::size_t kMostNamed = 4;
constexpr const char* kTapOrder = "tap_order";

// A slicing cuts the gradient into equal parts: all entries of a tap, a channel, a group, a tile.
struct Slicing {
  std::string order, name;  // "tap_order", "tap"
  std::int64_t count;
  Fault::Map slice;                               // of an index
  std::function<std::string(std::size_t)> label;  // of a slice
};

std::vector<Slicing> slicings(const WgradProblem& pb) {
  const std::int64_t K = pb.K, Cg = pb.group_c(), Kg = pb.group_k();
  const auto number = [](const char* letter) {
    return [letter](std::int64_t i) { return cat(letter, i); };
  };
  const auto tap_label = [axes = entry_axes(pb), cells = Cg * K](std::int64_t tap) {
    const EntryPlace place = entry_place(axes, tap * cells);
    std::string text;
    for (std::size_t a = 0; a + 2 < axes.size(); ++a) text += cat(a > 0 ? "," : "", place[a]);
    return cat("(", text, ")");
  };
  const std::int64_t tiles_k = ceil_div(K, kTile), tiles = ceil_div(Cg, kTile) * tiles_k;
  const auto tile_label = [=](std::int64_t tile) {
    const auto part = [](char letter, std::int64_t at, std::int64_t extent) {
      const std::int64_t first = at * kTile;
      return cat(letter, " ", first, "-", std::min(first + kTile, extent) - 1);
    };
    return cat(part('c', tile % tiles / tiles_k, Cg), ", ", part('k', tile % tiles_k, K),
               " of tap ", tap_label(tile / tiles));
  };
  // find_slices() takes the first that explains all, so larger parts come before smaller ones.
  return {
      {"group_order", "group", pb.groups, [=](std::int64_t i) { return i % K / Kg; }, number("")},
      {kTapOrder, "tap", pb.taps(), [=](std::int64_t i) { return i / (Cg * K); }, tap_label},
      {"channel_order", "output channel", K, [=](std::int64_t i) { return i % K; }, number("k ")},
      {"channel_order", "input channel", Cg, [=](std::int64_t i) { return i / K % Cg; },
       number("c ")},
      {"tile_order", "16x16 tile", pb.taps() * tiles,
       [=](std::int64_t i) {
         return i / (Cg * K) * tiles + i / K % Cg / kTile * tiles_k + i % K / kTile;
       },
       tile_label}};
}

using Slices = std::vector<Positions>;

// Tells whether all that stands at `at` is what belongs to `of`.
bool holds(const Evidence& evidence, const Positions& at, const Positions& of) {
  return std::ranges::equal(at, of, [&](std::size_t one, std::size_t other) {
    return evidence.fits(one, evidence.want(other), evidence.scale(other));
  });
}

// Returns what each slice holds, or nothing if that is its own everywhere, or cannot be told.
std::vector<std::size_t> contents(const Evidence& evidence, const Slices& slices) {
  std::vector<std::size_t> result;
  std::size_t moved = 0;
  for (std::size_t at = 0; at < slices.size(); ++at) {
    std::size_t of = at;
    if (!holds(evidence, slices[at], slices[at])) {
      if (++moved * slices.size() > kMostComparisons) return {};
      for (of = 0; of < slices.size(); ++of) {
        if (holds(evidence, slices[at], slices[of])) break;
      }
      if (of == slices.size()) return {};
    }
    result.push_back(of);
  }
  return moved > 0 ? result : std::vector<std::size_t>();
}

std::string contents_text(const Slicing& s, const std::vector<std::size_t>& from) {
  std::string text;
  std::size_t moved = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == i || moved++ >= kMostNamed) continue;
    text += cat(text.empty() ? "" : ", ", s.name, " ", s.label(i), " holds ", s.label(from[i]));
  }
  return moved > kMostNamed ? cat(text, " and ", moved - kMostNamed, " more hold others") : text;
}

// Returns the fault if each slice, of these pairs of channels, holds itself or another.
std::optional<Fault> moved_slices(const Evidence& evidence, const Slicing& s,
                                  const std::vector<bool>& pairs, const Place& place) {
  const auto has = [&](std::size_t at) { return pairs[at % pairs.size()]; };
  Slices slices(static_cast<std::size_t>(s.count));
  Positions offset(evidence.size());  // of each entry in its slice
  for (const std::size_t at : evidence.all()) {
    if (!has(at)) continue;
    Positions& slice = slices[static_cast<std::size_t>(s.slice(static_cast<std::int64_t>(at)))];
    offset[at] = slice.size();
    slice.push_back(at);
  }
  const std::vector<std::size_t> from = contents(evidence, slices);
  if (from.empty()) return std::nullopt;
  const bool permuted = std::set(from.begin(), from.end()).size() == from.size();
  const auto sources = std::make_shared<std::vector<std::int64_t>>();
  std::size_t moved = 0;
  for (std::size_t i = 0; i < from.size(); ++i) moved += from[i] != i ? 1 : 0;
  for (const std::size_t at : evidence.all()) {
    const auto own = static_cast<std::size_t>(s.slice(static_cast<std::int64_t>(at)));
    const std::size_t source = has(at) ? slices[from[own]][offset[at]] : at;
    sources->push_back(static_cast<std::int64_t>(source));
  }
  Fault fault = {permuted ? s.order : "copied", contents_text(s, from),
                 permuted ? "an index that is computed in another order"
                          : "a wrong offset, or a stale tile of shared memory: a missing "
                            "__syncthreads",
                 plain_reading(evidence.problem()), [sources](std::int64_t index) {
                   return (*sources)[static_cast<std::size_t>(index)];
                 }};
  fault.bits = static_cast<double>(moved) * std::log2(static_cast<double>(s.count));
  fault.bits += place.bits;
  if (place.is_part()) fault.text += cat(", in ", place.text, " alone");
  return fault;
}

}  // namespace

std::vector<Fault> find_slices(const Evidence& evidence) {
  // A sample lacks most entries of a slice.
  if (!evidence.whole()) return {};
  const WgradProblem& pb = evidence.problem();
  const std::vector<bool> all(static_cast<std::size_t>(pb.group_c() * pb.K), true);
  std::vector<bool> wrong(all.size());  // in some tap
  for (const std::size_t at : evidence.all()) {
    if (evidence.is_inside(at)) wrong[at % wrong.size()] = true;
  }
  std::vector<Marked> marks;
  for (const std::size_t at : evidence.all()) {
    marks.push_back({evidence.index(at), wrong[at % wrong.size()] ? Mark::in : Mark::out});
  }
  const Place place = place_of(pb, marks);
  for (const bool in_place : {false, true}) {
    if (in_place && !place.is_part()) break;
    for (const Slicing& slicing : slicings(pb)) {
      if (slicing.count < 2 || slicing.count > kMostSlices) continue;
      // Within some channels the taps alone have an order of their own.
      if (in_place && slicing.order != kTapOrder) continue;
      auto fault =
          moved_slices(evidence, slicing, in_place ? wrong : all, in_place ? place : Place());
      if (fault) return {*std::move(fault)};
    }
  }
  return {};
}

}  // namespace convgrad::diagnosis
