#include "check/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/groups.hpp"
#include "check/order_walk.hpp"
#include "check/reference_sum.hpp"
#include "check/rounding.hpp"
#include "check/sample.hpp"

namespace convgrad {
namespace {

// So many entries of a group that fails are looked at, to rule out other orders.
constexpr std::size_t kLooked = 64;
// One in 10^15 normal numbers, which the errors of right sums are about, is beyond that. A pixel
// that is left out has the root of the number of elements, if its terms are as large as errors.
constexpr double kMostPixelSpreads = 8;
// Digits that adders cut off are at least that part of what is granted: 0.33 to 0.75 where 3xTF32
// was simulated (tests/cli/test_orders.py does it), of data of one sign and of both.
constexpr double kLeastCut = 0.3;
// Sums of terms of one sign lose the same part in all elements, or 9 % more or less (simulated);
// without a pixel they differ more: by a sixth here.
constexpr double kMostUneven = 1 + 1.0 / 36;
// Errors that their own order explains are that part of what is allowed, or less; beyond it another
// is looked for. (None of 2,655 right sums of different bits then fails, of which one did.)
constexpr double kWellExplained = 1.0 / 3;
// The normal number that is exceeded once in 256 times.
constexpr double kOfOneSign = 2.66;
// So many multiply-adds are spent at what may be right.
constexpr double kSecondLookBudget = 0x1p27;
// So many waves are summed in a pass: then their sums take no more memory than the reference did.
constexpr std::size_t kWavesAtOnce = 4;

Diagnosis diagnosed(const Suspect& suspect, const Images& images, double multiply_adds) {
  return diagnose(suspect, images, multiply_adds, HUGE_VAL, true);
}

// Takes a second look at gradients whose errors are too large for the order n, z, p, q.
struct SecondLook {
  using Positions = std::vector<std::size_t>;  // in the arrays of the gradients

  const WgradProblem& problem;
  const std::span<const std::int64_t> indices;
  const Expected& expected;
  const Rules& rules;
  Passes& passes;
  std::vector<Wave> waves = {};
  bool alike = false;  // terms are, of some group that was looked at

  // Returns the verdicts of the first look, with what other orders or adders explain.
  Verdicts judge(std::span<const Subject> subjects, std::vector<Verdict> verdicts) {
    const std::vector<std::size_t> open = open_verdicts(subjects, verdicts);
    if (open.empty()) return {std::move(verdicts), {}};
    Expected wide = expected;
    // Large sums of one sign lose more than they gain: a factor near 1 is no fault there.
    wide.bias = Expected::Bias::any;
    std::size_t known = 0;
    do {  // Other groups may walk by other waves than those that failed first.
      known = waves.size();
      wide.scales = widened(expected.scales, walks_of(indices));
      for (const std::size_t i : open) {
        const GroupError worst = compare_wide(subjects[i], wide).rounding->worst;
        if (!(worst.score() <= kWellExplained)) find_waves(looked_at(worst));
      }
    } while (waves.size() > known);
    bool explained = false;
    for (const std::size_t i : open) {
      const Subject& subject = subjects[i];
      Comparison comparison = compare_wide(subject, wide);
      if (!comparison.match()) continue;
      const EntryErrors errors = errors_of(indices, wide, subject.values, subject.dtype);
      if (is_uneven(problem, errors)) continue;
      comparison.structure = structure_of(subject, errors, wide);
      explained = true;
      const RoundingErrors& narrow = *verdicts[i].comparison.rounding;
      verdicts[i].order_assumed = {
          narrow.worst.rms, narrow.worst.allowed * narrow.all.rms / comparison.rounding->all.rms};
      verdicts[i].comparison = std::move(comparison);
    }
    if (!explained) return {std::move(verdicts), {}};
    wide.bias = expected.bias;
    return {std::move(verdicts), std::move(wide)};
  }

  // Returns the verdicts that other orders explain at some of their entries, and notes in the
  // others whether the adders of tensor cores explain them.
  std::vector<std::size_t> open_verdicts(std::span<const Subject> subjects,
                                         std::vector<Verdict>& verdicts) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      const Comparison& c = verdicts[i].comparison;
      if (!c.rounding || c.match()) continue;
      // A fault that leaves no more than the order n, z, p, q makes tells more than an order.
      if (rules.any_order && !c.structure && is_ordered_at(subjects[i], c.rounding->worst) &&
          found_by(diagnosed, subjects[i], expected).findings.empty()) {
        open.push_back(i);
      } else {
        verdicts[i].cut = cut_by_adders(subjects[i]);
      }
    }
    return open;
  }

  // Tells whether an order explains some entries of a group.
  bool is_ordered_at(const Subject& subject, const GroupError& group) {
    const Positions some = looked_at(group);
    find_waves(some);
    if (waves.empty()) return false;
    const std::vector<double> scales = picked(std::span(expected.scales), some);
    return compare(subject, some, widened(scales, walks_of(indices_at(some)))).match();
  }

  std::vector<std::int64_t> indices_at(std::span<const std::size_t> positions) const {
    std::vector<std::int64_t> result;
    result.reserve(positions.size());
    for (const std::size_t at : positions) result.push_back(index_at(indices, at));
    return result;
  }

  // Returns entries of the group, spread over it.
  Positions looked_at(const GroupError& group) const {
    Positions inside;
    const auto add = [&](std::size_t at, const EntryPlaces& of) {
      if (group_of(group.kind, of) == static_cast<std::size_t>(group.index)) inside.push_back(at);
    };
    visit_entries(problem, indices, expected.values.size(), add);
    Positions some = spread_positions(inside.size(), kLooked);
    for (std::size_t& at : some) at = inside[at];
    return some;
  }

  // Finds the waves by which these entries may be summed, beside those of before.
  void find_waves(const Positions& positions) {
    TermLayout layout(problem, passes.pool, indices_at(positions), passes.memory);
    passes.run(layout, layout.memory_bytes());
    for (const Wave& wave : layout.waves()) {
      if (std::ranges::find(waves, wave) == waves.end()) waves.push_back(wave);
    }
    waves.resize(std::min(waves.size(), TermLayout::kMostWaves));
    alike = alike || layout.are_alike();
  }

  std::vector<OrderWalk> walks_of(std::span<const std::int64_t> at) {
    std::vector<OrderWalk> widest;
    for (std::size_t first = 0; first < waves.size(); first += kWavesAtOnce) {
      const auto some =
          std::span(waves).subspan(first, std::min(kWavesAtOnce, waves.size() - first));
      WaveSum sum(problem, passes.pool, at, {some.begin(), some.end()}, rules.summation);
      passes.run(sum, sum.memory_bytes());
      if (first == 0) widest = sum.walks();
      for (std::size_t i = 0; i < widest.size(); ++i) {
        widest[i].walk = std::max(widest[i].walk, sum.walks()[i].walk);
      }
    }
    return widest;
  }

  std::vector<double> widened(std::vector<double> scales,
                              const std::vector<OrderWalk>& walks) const {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const auto& [walk, terms] = walks[i];
      scales[i] =
          std::max(scales[i], walk_scale(terms, walk, alike, problem.dtype, rules.summation));
    }
    return scales;
  }

  Comparison compare_wide(const Subject& subject, const Expected& wide) const {
    return compare_gradients(problem, subject.dtype, indices, subject.values, wide,
                             rules.tolerance);
  }

  // Returns the summation by tensor cores whose cut digits explain some entries: most errors make
  // them smaller, and are no larger than such sums'.
  std::optional<Summation> cut_by_adders(const Subject& subject) {
    using Adders = Summation::Adders;
    const bool narrow = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
    Summation cut = rules.summation;
    if (narrow ? !cut.cuts(problem.dtype)
               : problem.dtype != DType::f32 || cut.adders != Adders::usual) {
      return {};
    }
    const Positions some = looked_at({});
    double smaller = 0, lost = 0, squares = 0;
    for (const std::size_t at : some) {
      const double part = 1 - subject.values[at] / expected.values[at];
      smaller += part > 0 ? 1 : 0;
      lost += part;
      squares += part * part;
    }
    // By chance once in 256 times, of 8 entries all.
    const auto count = static_cast<double>(some.size());
    if (smaller < count / 2 + kOfOneSign * std::sqrt(count) / 2) return {};
    if (smaller == count && squares * count > kMostUneven * lost * lost) return {};
    const auto explains = [&](const Summation& summation) {
      const Expected exact = exact_entries(problem, indices_at(some), summation, passes);
      const Comparison c = compare(subject, some, exact.scales);
      return c.match() && (narrow || c.rounding->all.rms >= kLeastCut);
    };
    std::int64_t longest = kUsualCutRun;
    if (!narrow) {
      cut.adders = Adders::tensor_core;
    } else {
      // The shortest power of two that does, up to the one that holds all terms.
      do {
        cut.longest_sum = longest *= 2;
      } while (longest < term_count(problem) && !explains(cut));
    }
    if (!explains(cut) || found_by(rounded_inputs, subject, expected)) return {};
    return cut;
  }

  Comparison compare(const Subject& subject, const Positions& positions,
                     std::vector<double> scales) const {
    Expected some = picked(expected, positions);
    some.bias = Expected::Bias::any;  // of which the whole gradient tells more
    some.scales = std::move(scales);
    return compare_gradients(problem, subject.dtype, indices_at(positions),
                             picked(subject.values, positions), some, rules.tolerance);
  }

  // Returns what is found in a gradient, or nothing where it cannot be looked for.
  template <typename Found>
  Found found_by(Found (*look)(const Suspect&, const Images&, double), const Subject& subject,
                 const Expected& by) const {
    Found found;
    if (!passes.images) return found;
    const auto entries = static_cast<double>(expected.values.size());
    const double budget =
        std::max(kSecondLookBudget, entries * static_cast<double>(term_count(problem)));
    with_own_part(problem, subject, indices, by, rules.summation.factor,
                  [&](const Suspect& suspect) { found = look(suspect, *passes.images, budget); });
    return found;
  }

  // Looks for structure in errors whose size the wide scales allow.
  std::optional<Structure> structure_of(const Subject& subject, const EntryErrors& errors,
                                        const Expected& wide) {
    if (expected.bias == Expected::Bias::any) return {};
    if (auto seen = factor_or_digits(problem, errors, subject.dtype, expected.bias, true)) {
      return seen;
    }
    if (auto inputs = found_by(rounded_inputs, subject, wide)) return inputs;
    if (!indices.empty()) return {};
    PixelSum sum(problem, passes.pool, errors);
    passes.run(sum, 8 * static_cast<std::int64_t>(errors.count));
    const PixelError& worst = sum.worst();
    if (worst.spreads < kMostPixelSpreads) return {};
    const double bits = worst.spreads * worst.spreads / 2 / std::log(2.0);  // of a normal number
    return Structure{Structure::Form::pixel, GroupKind::all, worst.pixel, worst.times, bits, ""};
  }
};

// Says what else would match where half of the gradient, or zeros, would: then nothing was tested.
std::string would_match_too(const WgradProblem& problem, std::span<const std::int64_t> indices,
                            const Expected& expected, const Subject& subject, const Rules& rules,
                            const Comparison& comparison) {
  // Where right results are 0 the data cannot show more, which is said elsewhere.
  const bool zero = std::ranges::all_of(
      expected.values, [&](double value) { return rounded(subject.dtype, value) == 0; });
  if (zero || (comparison.rounding && comparison.rounding->zero)) return "";
  const auto matches = [&](double part) {
    std::vector<double> values = expected.values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double added = expected.added.empty() ? 0 : expected.added[i];
      values[i] = rounded(subject.dtype, added + part * (values[i] - added));
    }
    const Comparison c =
        compare_gradients(problem, subject.dtype, indices, values, expected, rules.tolerance);
    return c.mismatches == 0 && (!c.rounding || c.rounding->worst.score() <= 1);
  };
  if (!matches(0.5)) return "";
  std::string text = matches(0) ? "zeros would match too" : "half of it would match too";
  const double terms = static_cast<double>(term_count(problem));
  const double most = 1 / unit_roundoff(accumulator_dtype(problem.dtype));
  const bool stops = rules.tolerance.criterion == Criterion::rounding &&
                     rules.summation.longest_sum == 0 && terms > most / 4 &&
                     expected.bias == Expected::Bias::any;
  if (!stops) return text;
  return cat(text, ", as a ", dtype_name(accumulator_dtype(problem.dtype)),
             " sum of equal terms stops at ", static_cast<std::int64_t>(most),
             " of them (--longest-sum 512 judges sums that do not)");
}

}  // namespace

void with_own_part(const WgradProblem& problem, const Subject& subject,
                   std::span<const std::int64_t> indices, const Expected& expected, double factor,
                   const std::function<void(const Suspect&)>& use) {
  WgradProblem pb = problem;
  pb.out_dtype = subject.dtype;
  if (factor == 1 && expected.added.empty()) return use({pb, indices, subject.values, expected});
  pb.out_dtype = DType::f64;  // which has all of these numbers
  std::vector<double> values(subject.values.begin(), subject.values.end()), halves;
  Expected own = expected;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double added = expected.added.empty() ? 0 : expected.added[i];
    const double half = rounding_step(subject.dtype, values[i]) / 2;
    const double tail = expected.tails.empty() ? 0 : expected.tails[i];
    values[i] = (values[i] - added) / factor;
    own.values[i] = ((expected.values[i] - added) + tail) / factor;
    own.magnitudes[i] /= std::fabs(factor);
    own.scales[i] /= std::fabs(factor);
    own.limits[i] = (own.limits[i] + half) / std::fabs(factor);
    halves.push_back(half / std::fabs(factor));
  }
  own.tails.assign(own.tails.size(), 0);
  own.added.clear();
  own.squares /= factor * factor;
  use({pb, indices, values, own, halves});
}

Expected exact_entries(const WgradProblem& problem, const std::vector<std::int64_t>& indices,
                       const Summation& summation, Passes& passes) {
  SampledSum sum(problem, passes.pool, indices, summation);
  passes.run(sum, SampledSum::memory_bytes(std::ssize(indices)));
  return sum.take_expected();
}

Verdicts judge(const WgradProblem& problem, std::span<const std::int64_t> indices,
               const Expected& expected, std::span<const Subject> subjects, const Rules& rules,
               Passes* passes) {
  Verdicts verdicts;
  for (const Subject& subject : subjects) {
    verdicts.all.push_back({compare_gradients(problem, subject.dtype, indices, subject.values,
                                              expected, rules.tolerance)});
  }
  if (passes != nullptr && rules.tolerance.criterion == Criterion::rounding) {
    verdicts = SecondLook{problem, indices, expected, rules, *passes}.judge(
        subjects, std::move(verdicts.all));
  }
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    Verdict& v = verdicts.all[i];
    if (!v.comparison.match()) continue;
    const Expected& by = v.order_assumed ? *verdicts.wide : expected;
    v.vacuous = would_match_too(problem, indices, by, subjects[i], rules, v.comparison);
  }
  return verdicts;
}

Verdict judge_gradient(const WgradProblem& problem, const void* x, const void* dy,
                       std::span<const double> got, const Rules& rules,
                       const GradientOptions& options) {
  const Expected expected = expected_gradient(problem, x, dy, options, rules.summation);
  PlanOptions planned = {.backend = Backend::reference,
                         .threads = options.threads,
                         .memory_limit_bytes = options.memory_limit_bytes,
                         .in_memory = true};
  MemorySource source(x, dy);
  const Plan images = image_plan(problem, std::int64_t{8} << 20);
  TaskPool pool(make_plan(problem, this_machine(), planned).threads);
  const auto run = [&](BlockSum& sum, std::int64_t bytes) {
    planned.check_bytes = bytes;
    sum_blocks(make_plan(problem, this_machine(), planned), source, sum);
    sum.finish();
  };
  const std::int64_t limit = options.memory_limit_bytes;
  Passes passes = {pool, run, Images{images, source, pool},
                   limit > 0 ? limit : this_machine().memory_bytes};
  const Subject subject = {problem.out_dtype, got};
  return std::move(judge(problem, {}, expected, {&subject, 1}, rules, &passes).all[0]);
}

}  // namespace convgrad
