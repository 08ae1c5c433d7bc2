// structure.cpp - see structure.hpp.
#include "check/structure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace convgrad {
namespace {

// What right sums do not have by chance, were there 10^6 of them with 10^3 groups each; the pattern
// makes a quarter of the squares of the errors, or systematic parts of rounding would do.
constexpr double kLeastBits = 40, kLeastShare = 1.0 / 4;
// Elements that are the same to a sixtieth may be sums of the same terms: in an octave there are so
// many others.
constexpr double kOctave = 44;
// Of fewer it is not known how many are independent; what inputs lose looks random in each.
constexpr double kLeastElements = 64, kLeastOfInputs = 16;

// The places of an entry: its tap, channel of a group, x channel, dy channel and channel of a
// group.
struct EntryPlaces {
  std::size_t tap, c, x, k, in_group;
  double value = 0;
};

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

EntryPlaces places_of(const WgradProblem& pb, std::int64_t index, double value) {
  const std::int64_t k = index % pb.K, c = index / pb.K % pb.group_c();
  return {size_of(index / pb.K / pb.group_c()),
          size_of(c),
          size_of(k / pb.group_k() * pb.group_c() + c),
          size_of(k),
          size_of(k % pb.group_k()),
          value};
}

// Calls visit(error, pattern, places), both in units, for each entry that has them.
template <typename Visit>
void for_each_entry(const WgradProblem& pb, const EntryErrors& entries,
                    std::span<const double> pattern, const Visit& visit) {
  for (std::size_t i = 0; i < entries.errors.size(); ++i) {
    const double error = entries.errors[i] / entries.units[i];
    const double like = pattern[i] / entries.units[i];
    if (!std::isfinite(error) || !std::isfinite(like) || like == 0) continue;
    const std::int64_t index =
        entries.indices.empty() ? static_cast<std::int64_t>(i) : entries.indices[i];
    visit(error, like, places_of(pb, index, entries.values[i]));
  }
}

// Sums of the gradient as a whole, of each tap, each x channel or each dy channel.
using Groups = std::vector<Products>;

std::size_t group_of(GroupKind kind, const EntryPlaces& at) {
  return kind == GroupKind::tap             ? at.tap
         : kind == GroupKind::input_channel ? at.x
         : kind == GroupKind::all           ? 0
                                            : at.k;
}

// Elements that have about the same terms have about the same errors: under other taps, in other
// channels of x or dy, in other groups. How many of them count as one shows in the sums over those,
// of what is left when the pattern is taken away, in the group that was found; and in how many have
// values of their own. 0: nothing is left.
double dependent_elements(const WgradProblem& pb, const EntryErrors& entries,
                          std::span<const double> pattern, const Structure& found) {
  const std::size_t taps = size_of(pb.taps()), Cg = size_of(pb.group_c()), K = size_of(pb.K);
  const std::size_t C = size_of(pb.C), Kg = size_of(pb.group_k());
  std::array<std::vector<double>, 4> alike = {
      std::vector<double>(Cg * K), std::vector<double>(taps * K), std::vector<double>(taps * C),
      std::vector<double>(taps * Cg * Kg)};
  double all = 0, count = 0;
  std::set<double> different;
  for_each_entry(pb, entries, pattern, [&](double error, double like, const EntryPlaces& at) {
    if (group_of(found.kind, at) != size_of(found.index)) return;
    ++count;
    different.insert(std::copysign(std::rint(kOctave * std::log2(std::fabs(at.value))), at.value));
    const double left = (error - found.size * like) * like;
    all += left * left;
    alike[0][at.c * K + at.k] += left;
    alike[1][at.tap * K + at.k] += left;
    alike[2][at.tap * C + at.x] += left;
    alike[3][(at.tap * Cg + at.c) * Kg + at.in_group] += left;
  });
  if (all == 0) return 0;
  double dependent = count / static_cast<double>(different.size());
  for (const std::vector<double>& sums : alike) {
    double squares = 0;
    for (const double sum : sums) squares += sum * sum;
    dependent *= std::max(1.0, squares / all);
  }
  return dependent;
}

}  // namespace

std::optional<Structure> resemblance(const WgradProblem& pb, const EntryErrors& entries,
                                     std::span<const double> pattern, Structure::Form form,
                                     Expected::Bias bias) {
  if (bias == Expected::Bias::any) return {};
  std::optional<Structure> found;
  const auto judge = [&](GroupKind kind, const Groups& groups) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const Products& products = groups[i];
      double bits = products.bits(1);
      // As nearly always: how many elements are independent need not be known.
      if (!(products.share() >= kLeastShare) || bits < kLeastBits) continue;
      if (products.size() < 0 && bias == Expected::Bias::smaller) continue;
      Structure each = {form, kind, static_cast<std::int64_t>(i), products.size(), bits, ""};
      const double dependent = dependent_elements(pb, entries, pattern, each);
      each.bits = products.bits(dependent);
      const double least = form == Structure::Form::inputs ? kLeastOfInputs : kLeastElements;
      const bool known = dependent > 0 && products.count / dependent >= least;
      if (!known || each.bits < kLeastBits || (found && found->bits >= each.bits)) continue;
      found = each;
    }
  };
  const std::pair<GroupKind, std::int64_t> kinds[] = {{GroupKind::all, 1},
                                                      {GroupKind::tap, pb.taps()},
                                                      {GroupKind::input_channel, pb.C},
                                                      {GroupKind::output_channel, pb.K}};
  std::array<Groups, std::size(kinds)> sums;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].resize(size_of(kinds[i].second));
  for_each_entry(pb, entries, pattern, [&](double error, double like, const EntryPlaces& at) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i][group_of(kinds[i].first, at)].add(error, like);
    }
  });
  for (std::size_t i = 0; i < sums.size() && !found; ++i) judge(kinds[i].first, sums[i]);
  return found;
}

}  // namespace convgrad
