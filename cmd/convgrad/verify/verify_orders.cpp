#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "check/order_sum.hpp"
#include "check/pixel_sum.hpp"
#include "check/rounding.hpp"
#include "check/structure.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// So many entries of a group that fails are looked at, to rule out other orders.
constexpr std::size_t kLooked = 64;
constexpr std::size_t kLeastLooked = 16;  // with fewer, errors of one sign tell nothing
// One in 10^15 normal numbers, which the errors of right sums are about, is beyond that. A pixel
// that is left out has the root of the number of elements, where its terms are of the size of the
// errors.
constexpr double kMostPixelSpreads = 8;

constexpr const char* kAlike = "of terms that are alike, which round one way";

bool in_group(const WgradProblem& pb, const GroupError& group, std::int64_t index) {
  switch (group.kind) {
    case GroupKind::tap:
      return index / pb.K / pb.group_c() == group.index;
    case GroupKind::input_channel:
      return index % pb.K / pb.group_k() * pb.group_c() + index / pb.K % pb.group_c() ==
             group.index;
    case GroupKind::output_channel:
      return index % pb.K == group.index;
    case GroupKind::all:
      return true;
    default:
      return index == group.index;
  }
}

// Digits that adders cut off are at least that part of what is granted: 0.33 to 0.75 where 3xTF32
// was simulated (tests/cli/test_orders.py does it), of data of one sign and of both.
constexpr double kLeastCut = 0.3;

// Takes a second look at gradients whose errors are too large for the order n, z, p, q.
class OtherOrders {
 public:
  OtherOrders(Job& job, const VerifyCommand& options, const Judged& judged,
              const Tolerance& tolerance)
      : job_(job),
        options_(options),
        judged_(judged),
        tolerance_(tolerance),
        summation_(summation_of(job, options)) {}

  // Returns the verdicts of the first look, with what other orders explain.
  Verdicts judge(const std::vector<const Gradient*>& subjects, std::vector<Compared> verdicts) {
    const std::vector<std::size_t> open = open_verdicts(subjects, verdicts);
    if (open.empty()) return {std::move(verdicts), {}};
    Positions all(judged_.expected.values.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    const std::vector<OrderWalk> walks = walks_of(all);
    Expected wide = judged_.expected;
    wide.scales = widened(all, walks, false);
    // The order n, z, p, q may be lucky with terms that are alike, where others are not.
    const bool alike = std::ranges::any_of(walks, &OrderWalk::alike) &&
                       !std::ranges::all_of(open, [&](std::size_t i) {
                         return compare_wide(*subjects[i], wide).match();
                       });
    if (alike) wide.scales = widened(all, walks, true);
    bool explained = false;
    for (const std::size_t i : open) {
      const Gradient& subject = *subjects[i];
      Comparison comparison = compare_wide(subject, wide);
      if (!comparison.match()) continue;
      const EntryErrors errors =
          errors_of(judged_.sample.indices, wide, subject.values, subject.dtype);
      if (is_uneven(job_.problem, errors)) continue;
      comparison.structure = structure_of(subject, errors, wide);
      explained = true;
      const RoundingErrors& narrow = *verdicts[i].comparison.rounding;
      verdicts[i].order = {alike ? kAlike : order_text(widest(walks)), narrow.worst.rms,
                           narrow.worst.allowed * narrow.all.rms / comparison.rounding->all.rms};
      verdicts[i].comparison = std::move(comparison);
    }
    if (!explained) return {std::move(verdicts), {}};
    return {std::move(verdicts), std::move(wide)};
  }

 private:
  using Positions = std::vector<std::size_t>;  // in the arrays of the gradients

  // Returns the verdicts that other orders explain at some of their entries, and notes in the
  // others whether the adders of tensor cores explain them.
  std::vector<std::size_t> open_verdicts(const std::vector<const Gradient*>& subjects,
                                         std::vector<Compared>& verdicts) {
    std::vector<Positions> looked(verdicts.size());
    std::set<std::size_t> together;
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      const Comparison& c = verdicts[i].comparison;
      if (!c.rounding || c.match() || c.structure) continue;
      looked[i] = looked_at(c.rounding->worst);
      together.insert(looked[i].begin(), looked[i].end());
    }
    const Positions some(together.begin(), together.end());
    const std::vector<double> some_scales = widened(some, walks_of(some), true);
    const auto scales_at = [&](const Positions& positions) {
      std::vector<double> scales;
      for (const std::size_t at : positions) {
        const auto place = std::ranges::lower_bound(some, at) - some.begin();
        scales.push_back(some_scales[static_cast<std::size_t>(place)]);
      }
      return scales;
    };
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      const Comparison& c = verdicts[i].comparison;
      if (!c.rounding || c.match()) continue;
      if (!looked[i].empty() && compare(*subjects[i], looked[i], scales_at(looked[i])).match()) {
        // A fault that leaves no more than the order n, z, p, q makes tells more than an order.
        if (!is_known_fault(job_, options_, judged_, *subjects[i])) open.push_back(i);
      } else {
        verdicts[i].cut = is_cut_off(*subjects[i], looked_at({}));
      }
    }
    return open;
  }

  std::int64_t index(std::size_t at) const {
    const std::vector<std::int64_t>& indices = judged_.sample.indices;
    return indices.empty() ? static_cast<std::int64_t>(at) : indices[at];
  }

  // Returns entries of the group, spread over it.
  Positions looked_at(const GroupError& group) const {
    Positions inside, some;
    for (std::size_t at = 0; at < judged_.expected.values.size(); ++at) {
      if (in_group(job_.problem, group, index(at))) inside.push_back(at);
    }
    const std::size_t count = std::min(inside.size(), kLooked);
    for (std::size_t i = 0; i < count; ++i) some.push_back(inside[i * inside.size() / count]);
    return some;
  }

  // Makes as many passes over x and dy as the memory for them asks for.
  std::vector<OrderWalk> walks_of(const Positions& positions) {
    std::vector<OrderWalk> walks;
    const auto most = static_cast<std::size_t>(OrderSum::kEntriesAtOnce);
    for (std::size_t first = 0; first < positions.size(); first += most) {
      std::vector<std::int64_t> indices;
      for (std::size_t i = first; i < std::min(first + most, positions.size()); ++i) {
        indices.push_back(index(positions[i]));
      }
      const Plan plan = plan_again(job_, options_, OrderSum::memory_bytes(indices.size()));
      TaskPool pool(plan.threads);
      OrderSum sum(job_.problem, pool, indices, summation_);
      run_job(job_, plan, nullptr, &sum);
      sum.finish();
      walks.insert(walks.end(), sum.walks().begin(), sum.walks().end());
    }
    return walks;
  }

  std::vector<double> widened(const Positions& positions, const std::vector<OrderWalk>& walks,
                              bool alike) {
    std::vector<double> scales;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const OrderWalk& walk = walks[i];
      const double wide =
          walk_scale(walk.terms, walk.walk, alike && walk.alike, job_.problem.dtype, summation_);
      scales.push_back(std::max(judged_.expected.scales[positions[i]], wide));
    }
    return scales;
  }

  // Large sums of one sign lose more than they gain: a factor near 1 is no fault there.
  Comparison compare_wide(const Gradient& subject, Expected& wide) const {
    const Expected::Bias bias = std::exchange(wide.bias, Expected::Bias::any);
    Comparison comparison = compare_gradients(job_.problem, subject.dtype, judged_.sample.indices,
                                              subject.values, wide, tolerance_);
    wide.bias = bias;
    return comparison;
  }

  // Returns true if float32 sums by tensor cores explain these entries: most errors make them
  // smaller, and are no larger than such sums'.
  bool is_cut_off(const Gradient& subject, const Positions& positions) {
    if (job_.problem.dtype != DType::f32 || !options_.verify.adders.empty()) return false;
    if (positions.size() < kLeastLooked) return false;
    std::vector<std::int64_t> indices;
    std::size_t smaller = 0;
    for (const std::size_t at : positions) {
      const double want = judged_.expected.values[at], error = subject.values[at] - want;
      smaller += error * want < 0 ? 1 : 0;
      indices.push_back(index(at));
    }
    if (3 * smaller < 2 * positions.size()) return false;
    Summation cut = summation_;
    cut.adders = Summation::Adders::tensor_core;
    const Comparison c =
        compare(subject, positions, exact_entries(job_, options_, indices, cut).scales);
    return c.match() && c.rounding->all.rms >= kLeastCut &&
           !rounded_inputs(job_, options_, judged_, judged_.expected, subject);
  }

  // Compares these entries, with other scales.
  Comparison compare(const Gradient& subject, const Positions& positions,
                     std::vector<double> scales) {
    const Expected& e = judged_.expected;
    Expected some;
    some.bias = Expected::Bias::any;  // of which the whole gradient tells more
    some.scales = std::move(scales);
    std::vector<std::int64_t> indices;
    std::vector<double> got;
    for (const std::size_t at : positions) {
      indices.push_back(index(at));
      got.push_back(subject.values[at]);
      some.values.push_back(e.values[at]);
      if (!e.tails.empty()) some.tails.push_back(e.tails[at]);
      some.magnitudes.push_back(e.magnitudes[at]);
      some.limits.push_back(e.limits[at]);
    }
    return compare_gradients(job_.problem, subject.dtype, indices, got, some, tolerance_);
  }

  // Returns the order that widens scales most.
  static std::size_t widest(const std::vector<OrderWalk>& walks) {
    std::vector<double> shares;
    for (const OrderWalk& walk : walks) {
      shares.resize(std::max(shares.size(), walk.order + 1));
      shares[walk.order] += walk.terms * walk.walk;
    }
    return static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
  }

  // Looks for structure in errors whose size the wide scales allow.
  std::optional<Structure> structure_of(const Gradient& subject, const EntryErrors& errors,
                                        const Expected& wide) {
    const Expected::Bias bias = wide.bias;
    if (bias == Expected::Bias::any) return {};
    if (auto seen = factor_or_digits(job_.problem, errors, subject.dtype, bias, true)) {
      return seen;
    }
    if (auto inputs = rounded_inputs(job_, options_, judged_, wide, subject)) return inputs;
    if (!judged_.sample.indices.empty()) return {};
    std::vector<double> values, units;
    for (std::size_t i = 0; i < errors.count; ++i) {
      const EntryError entry = errors.at(i);
      values.push_back(entry.error);
      units.push_back(entry.unit);
    }
    const Plan plan = plan_again(job_, options_, 8 * std::ssize(values));
    TaskPool pool(plan.threads);
    PixelSum sum(job_.problem, pool, values, units);
    run_job(job_, plan, nullptr, &sum);
    const PixelError& worst = sum.worst();
    if (worst.spreads < kMostPixelSpreads) return {};
    const double bits = worst.spreads * worst.spreads / 2 / std::log(2.0);  // of a normal number
    return Structure{Structure::Form::pixel, GroupKind::all, worst.pixel, worst.times, bits, ""};
  }

  Job& job_;
  const VerifyCommand& options_;
  const Judged& judged_;
  const Tolerance& tolerance_;
  const Summation summation_;
};

}  // namespace

Verdicts judge(Job& job, const VerifyCommand& options, const Judged& judged,
               const Tolerance& tolerance, const std::vector<const Gradient*>& subjects) {
  std::vector<Compared> first_look;
  first_look.reserve(subjects.size());
  const bool golden = judged.golden && !tolerance.needs_terms();
  for (const Gradient* subject : subjects) {
    first_look.push_back({subject->name, golden ? judged.golden->name : kReferenceName,
                          subject->dtype,
                          compare_gradients(judged.problem, subject->dtype, judged.sample.indices,
                                            subject->values, judged.expected, tolerance)});
  }
  if (options.verify.order == "natural" || !why_read_once(job).empty()) {
    return {std::move(first_look), {}};
  }
  return OtherOrders(job, options, judged, tolerance).judge(subjects, std::move(first_look));
}

}  // namespace convgrad::cli
