// groups.hpp - which taps and channels the entries of a gradient belong to.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

// The places of an entry: its index, tap, x channel in its group, x channel and dy channel.
struct EntryPlaces {
  std::size_t index, tap, c, x, k;
};

// Returns the index of the entry at a position among those at indices, or all if there are none.
inline std::int64_t index_at(std::span<const std::int64_t> indices, std::size_t at) {
  return indices.empty() ? static_cast<std::int64_t>(at) : indices[at];
}

// Returns the place of a pixel of dy, counted over these: n, z, p, q.
inline std::array<std::int64_t, 4> pixel_place(const WgradProblem& pb, std::int64_t pixel) {
  const auto& [z, p, q] = pb.axis;
  return {pixel / q.out / p.out / z.out, pixel / q.out / p.out % z.out, pixel / q.out % p.out,
          pixel % q.out};
}

// Returns the index of the group of that kind to which an entry there belongs.
inline std::size_t group_of(GroupKind kind, const EntryPlaces& at) {
  return kind == GroupKind::all              ? 0
         : kind == GroupKind::tap            ? at.tap
         : kind == GroupKind::input_channel  ? at.x
         : kind == GroupKind::output_channel ? at.k
                                             : at.index;
}

// Calls visit(i, places) for `count` entries in their order: those at indices, in [tap][c][k]
// order, or all where there are none.
template <typename Visit>
void visit_entries(const WgradProblem& pb, std::span<const std::int64_t> indices, std::size_t count,
                   Visit&& visit) {
  const auto Cg = static_cast<std::size_t>(pb.group_c()), K = static_cast<std::size_t>(pb.K);
  const auto Kg = static_cast<std::size_t>(pb.group_k());
  for (std::size_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(index_at(indices, i));
    const std::size_t cell = index / K, k = index % K, c = cell % Cg;
    visit(i, EntryPlaces{index, cell / Cg, c, k / Kg * Cg + c, k});
  }
}

// Adds up squares, for their root mean square.
struct Squares {
  double sum = 0, count = 0;
  void add(double value) {
    sum += value * value;
    ++count;
  }
  double rms() const { return count > 0 ? std::sqrt(sum / count) : 0; }
};

// Holds sums of the whole gradient, each tap, x channel and dy channel, in GroupKind's order.
template <typename Sum>
struct GroupSums {
  explicit GroupSums(const WgradProblem& pb) {
    const std::int64_t counts[] = {1, pb.taps(), pb.C, pb.K};
    for (std::size_t kind = 0; kind < of.size(); ++kind) {
      of[kind].resize(static_cast<std::size_t>(counts[kind]));
    }
  }
  // Calls use(sum) for those to which an entry there belongs.
  template <typename Use>
  void visit(const EntryPlaces& at, Use&& use) {
    use(of[0][0]);
    use(of[1][at.tap]);
    use(of[2][at.x]);
    use(of[3][at.k]);
  }
  template <typename Is>
  bool any(const Is& is) const {
    return std::ranges::any_of(of, [&](const auto& sums) { return std::ranges::any_of(sums, is); });
  }
  std::array<std::vector<Sum>, 4> of;
};

}  // namespace convgrad
