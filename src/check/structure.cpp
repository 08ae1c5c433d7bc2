// structure.cpp - see structure.hpp.
#include "check/structure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "check/block_walk.hpp"
#include "check/groups.hpp"
#include "check/rounding.hpp"

namespace convgrad {
namespace {

// What right sums do not have by chance, were there 10^6 of them with 10^3 groups each.
constexpr double kLeastBits = 40;
// Elements that are the same to a sixtieth may be sums of the same terms: in an octave there are so
// many others.
constexpr double kOctave = 44;
// The pattern makes a quarter of the squares of the errors, or systematic parts of rounding would
// do, and is four roundings, as those of one large term are in all elements (right sums of a
// captured layer had 0.6 in a channel). Of fewer elements it is not known how many are independent.
// Of right sums in other orders, which walk further, it made up to 0.73, and 0.89 in 16 elements,
// and was up to 11 roundings: more is asked first, and then of those alone.
constexpr Sought kSought[] = {{0.9, 32, 16}, {1.0 / 4, 4, 64}};
// Groups of right sums in other orders had up to 1.9 times the errors of the others, in units of
// group_factor (the widest order of one need not be that of another); a part that is wrong alone
// has more. Groups of more than a quarter of the elements are not judged by the others.
constexpr double kMostUneven = 3;

// A pixel that is left out, or there twice, has -1 or 1 but for what rounding adds.
constexpr double kTimesOff = 0.3;

std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

// One for each pattern, in a pass over all of them: pattern(i, entry) is its value at an entry.
template <typename... Patterns>
std::vector<GroupSums<Products>> sums_of(const WgradProblem& pb, const EntryErrors& entries,
                                         const Patterns&... patterns) {
  std::vector<GroupSums<Products>> sums(sizeof...(patterns), GroupSums<Products>(pb));
  visit_entries(pb, entries.indices, entries.count, [&](std::size_t i, const EntryPlaces& at) {
    const EntryError entry = entries.at(i);
    const double per_unit = 1 / entry.unit, error = entry.error * per_unit;
    std::size_t p = 0;
    const auto add = [&](double pattern) {
      const double like = pattern * per_unit;
      GroupSums<Products>& own = sums[p++];
      if (!std::isfinite(error) || !std::isfinite(like) || like == 0) return;
      own.visit(at, [&](Products& group) { group.add(error, like); });
    };
    (add(patterns(i, entry)), ...);
  });
  return sums;
}

// Elements that have about the same terms have about the same errors: under other taps, in other
// channels of x or dy, in other groups. How many of them count as one shows in the sums over those,
// of what is left when the pattern is taken away, in the group that was found; and in how many have
// values of their own. 0: nothing is left.
template <typename Pattern>
double dependent_elements(const WgradProblem& pb, const EntryErrors& entries,
                          const Pattern& pattern, const Structure& found) {
  const std::size_t taps = size_of(pb.taps()), Cg = size_of(pb.group_c()), K = size_of(pb.K);
  const std::size_t C = size_of(pb.C), Kg = size_of(pb.group_k());
  std::array<std::vector<double>, 4> alike = {
      std::vector<double>(Cg * K), std::vector<double>(taps * K), std::vector<double>(taps * C),
      std::vector<double>(taps * Cg * Kg)};
  double all = 0, count = 0;
  std::set<double> different;
  visit_entries(pb, entries.indices, entries.count, [&](std::size_t i, const EntryPlaces& at) {
    if (group_of(found.kind, at) != size_of(found.index)) return;
    const EntryError entry = entries.at(i);
    const double error = entry.error / entry.unit, like = pattern(i, entry) / entry.unit;
    if (!std::isfinite(error) || !std::isfinite(like) || like == 0) return;
    ++count;
    const double octave = std::log2(std::fabs(entry.value));
    different.insert(std::copysign(std::rint(kOctave * octave), entry.value));
    const double left = (error - found.size * like) * like;
    all += left * left;
    alike[0][at.c * K + at.k] += left;
    alike[1][at.tap * K + at.k] += left;
    alike[2][at.tap * C + at.x] += left;
    alike[3][(at.tap * Cg + at.c) * Kg + at.k % Kg] += left;
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

struct Resemblance {
  Structure structure;
  double share = 0;  // of the squares of the errors
};

// The sums are those of the pattern.
template <typename Pattern>
std::optional<Resemblance> resemblance(const WgradProblem& pb, const EntryErrors& entries,
                                       const Pattern& pattern, const GroupSums<Products>& sums,
                                       std::span<const Sought> sought, Expected::Bias bias) {
  std::optional<Resemblance> found;
  const auto judge = [&](const Sought& least, GroupKind kind, std::int64_t index,
                         const Products& products) {
    double bits = products.bits(1);
    // As nearly always: how many elements are independent need not be known.
    if (!(products.share() >= least.share) || bits < kLeastBits) return;
    if (products.size() < 0 && bias == Expected::Bias::smaller) return;
    if (std::fabs(products.size()) < least.size) return;
    Structure each = {Structure::Form::factor, kind, index, products.size(), bits, ""};
    const double dependent = dependent_elements(pb, entries, pattern, each);
    each.bits = products.bits(dependent);
    const bool known = dependent > 0 && products.count / dependent >= least.elements;
    if (!known || each.bits < kLeastBits || (found && each.bits <= found->structure.bits)) return;
    found = {each, products.share()};
  };
  for (const Sought& least : sought) {
    for (std::size_t kind = 0; kind < sums.of.size(); ++kind) {
      if (found) return found;
      for (std::size_t i = 0; i < sums.of[kind].size(); ++i) {
        judge(least, static_cast<GroupKind>(kind), static_cast<std::int64_t>(i), sums.of[kind][i]);
      }
    }
  }
  return found;
}

}  // namespace

EntryErrors errors_of(std::span<const std::int64_t> indices, const Expected& expected,
                      std::span<const double> got, DType out) {
  const auto at = [&expected, got, out](std::size_t i) -> EntryError {
    const double want = expected.values[i], scale = expected.scales[i];
    const double tail = expected.tails.empty() ? 0 : expected.tails[i];
    const double half = rounding_step(out, got[i]) / 2, error = (got[i] - want) - tail;
    // The reference itself is off by so much: such an error holds no digit of want.
    if (std::fabs(error) <= kReferenceNoise * scale) return {error, HUGE_VAL, want};
    return {error, std::sqrt(scale * scale + half * half), want};
  };
  return {indices, expected.values.size(), at};
}

std::optional<Structure> resemblance(const WgradProblem& pb, const EntryErrors& entries,
                                     std::span<const double> pattern, const Sought& sought,
                                     Expected::Bias bias) {
  if (bias == Expected::Bias::any) return {};
  const auto like = [&](std::size_t i, const EntryError&) { return pattern[i]; };
  const GroupSums<Products> sums = sums_of(pb, entries, like)[0];
  const auto found = resemblance(pb, entries, like, sums, {{sought}}, bias);
  return found ? std::optional(found->structure) : std::nullopt;
}

std::optional<Structure> factor_or_digits(const WgradProblem& pb, const EntryErrors& entries,
                                          DType out, Expected::Bias bias, bool wide) {
  if (bias == Expected::Bias::any) return {};
  const double u = unit_roundoff(accumulator_dtype(pb.dtype));
  const auto half = [&](std::size_t, const EntryError& entry) {
    return std::copysign(rounding_step(out, entry.value) / 2, entry.value);
  };
  const auto rounding = [u](std::size_t, const EntryError& entry) { return u * entry.value; };
  const std::vector<GroupSums<Products>> sums = sums_of(pb, entries, half, rounding);
  const auto sought = std::span(kSought).first(wide ? 1 : 2);
  auto digits = resemblance(pb, entries, half, sums[0], sought, bias);
  auto factor = resemblance(pb, entries, rounding, sums[1], sought, bias);
  // Both resemble each other; the one that is there leaves less of the errors.
  if (factor && !(digits && digits->share > factor->share)) {
    factor->structure.size *= u;
    return factor->structure;
  }
  if (!digits) return {};
  digits->structure.form = Structure::Form::digits;
  return digits->structure;
}

bool is_uneven(const WgradProblem& pb, const EntryErrors& entries) {
  const auto unit = [](std::size_t, const EntryError& entry) { return entry.unit; };
  const GroupSums<Products> sums = sums_of(pb, entries, unit)[0];
  const Products& all = sums.of[0][0];
  const auto stands_out = [&](const Products& group) {
    if (!(group.count <= all.count / 4)) return false;
    const double others = (all.errors - group.errors) / (all.count - group.count);
    const double most = kMostUneven * group_factor(group.count);
    return group.errors / group.count > most * most * others;
  };
  if (sums.any(stands_out)) return true;
  for (std::size_t i = 0; i < entries.count; ++i) {
    const EntryError entry = entries.at(i);
    Products element;
    element.add(entry.error / entry.unit, 1);
    if (std::isfinite(element.errors) && stands_out(element)) return true;
  }
  return false;
}

PixelSum::PixelSum(const WgradProblem& problem, TaskPool& pool, const EntryErrors& entries)
    : problem_(problem), pool_(pool), errors_(entries.count), weights_(entries.count) {
  const auto each = [&](const auto& use) {
    for (std::size_t i = 0; i < entries.count; ++i) {
      const EntryError e = entries.at(i);
      if (std::isfinite(e.error) && std::isfinite(e.unit) && e.unit > 0) use(i, e);
    }
  };
  // Units differ from what errors are by one factor, which the errors tell.
  Squares in_units;
  unit_ = HUGE_VAL;
  each([&](std::size_t, const EntryError& e) {
    in_units.add(e.error / e.unit);
    unit_ = std::min(unit_, e.unit);
  });
  rms_ = in_units.rms();
  each([&](std::size_t i, const EntryError& e) {
    const double part = unit_ / e.unit;
    errors_[i] = static_cast<float>(e.error / e.unit * part);
    weights_[i] = static_cast<float>(part * part);
  });
}

template <typename Scalar>
PixelError PixelSum::line(const Block& block, std::int64_t n, std::int64_t z,
                          std::int64_t p) const {
  const WgradProblem& pb = problem_;
  const auto& [ad, ah, aw] = pb.axis;
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  std::vector<float> forward(static_cast<std::size_t>(pb.K)), squares(forward.size());
  PixelError worst;
  for (std::int64_t q = block.pixels[3].begin; q < block.pixels[3].end; ++q) {
    std::ranges::fill(forward, 0.0F);
    std::ranges::fill(squares, 0.0F);
    for (std::int64_t tap = 0; tap < pb.taps(); ++tap) {
      const auto& [t, r, s] = tap_place(pb, tap);
      const std::int64_t d = input_at(ad, z, t), h = input_at(ah, p, r), w = input_at(aw, q, s);
      if (d < 0 || d >= ad.in || h < 0 || h >= ah.in || w < 0 || w >= aw.in) continue;
      const Scalar* const pixel = x_at<Scalar>(block, n, d, h, w);
      for (std::int64_t c = 0; c < pb.C; ++c) {
        const auto v = static_cast<float>(to_double(pixel[c * block.x_strides.c]));
        const std::int64_t first = c / Cg * Kg, cell = (tap * Cg + c % Cg) * pb.K + first;
        const float* const e = errors_.data() + cell;
        const float* const u = weights_.data() + cell;
        float* const f = forward.data() + first;
        float* const g = squares.data() + first;
        for (std::int64_t k = 0; k < Kg; ++k) {
          f[k] += v * e[k];
          g[k] += v * v * u[k];
        }
      }
    }
    const Scalar* const out = dy_at<Scalar>(block, n, z, p, q);
    double projection = 0, norm = 0;
    for (std::int64_t k = 0; k < pb.K; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double value = to_double(out[k * block.dy_strides.c]);
      projection += forward[at] * value;
      norm += squares[at] * value * value;
    }
    const double times = projection * unit_ / norm;
    const double spreads = std::fabs(projection) / (rms_ * std::sqrt(norm));
    if (!(std::fabs(std::fabs(times) - 1) <= kTimesOff) || !(spreads > worst.spreads)) continue;
    worst = {((n * ad.out + z) * ah.out + p) * aw.out + q, times, spreads};
  }
  return worst;
}

void PixelSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const Range& z = block.pixels[1];
  const Range& p = block.pixels[2];
  const std::int64_t lines = block.pixels[0].size() * z.size() * p.size();
  std::vector<PixelError> found(static_cast<std::size_t>(lines));
  run_tasks(pool_, problem_.dtype, lines, progress, [&](std::int64_t task, auto scalar) {
    found[static_cast<std::size_t>(task)] =
        line<decltype(scalar)>(block, block.pixels[0].begin + task / p.size() / z.size(),
                               z.begin + task / p.size() % z.size(), p.begin + task % p.size());
  });
  for (const PixelError& each : found) {
    if (each.spreads > worst_.spreads) worst_ = each;
  }
}

}  // namespace convgrad
