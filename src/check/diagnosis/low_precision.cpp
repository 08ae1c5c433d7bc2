// low_precision.cpp - sums that were rounded to a narrower type after each addition. Added pixel by
// pixel they can be repeated to the bit. In any other order only their errors' size can tell.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

constexpr std::size_t kEntries = 32;
// Rounding after each addition takes about as long as this many multiply-adds.
constexpr double kRoundingCost = 8;
// Errors count as those of narrow sums within these factors of the simulated ones: sums in pieces
// or trees have smaller ones.
constexpr double kLeastSize = 1.0 / 6, kMostSize = 3;
// ... and only if at least this part of all entries is wrong.
constexpr double kLeastFailing = 0.25;

struct Variant {
  DType sum;           // type of the sum
  bool inputs, fused;  // x and dy are rounded to it too; the product is not
};

std::vector<Variant> variants(const WgradProblem& pb) {
  std::vector<DType> types;
  if (pb.dtype != DType::bf16) types.push_back(DType::f16);
  if (pb.dtype != DType::f16) types.push_back(DType::bf16);
  types.push_back(DType::f32);
  if (pb.dtype == DType::f64) types.push_back(DType::f64);
  std::vector<Variant> result;
  for (const DType type : types) {
    for (const bool fused : {false, true}) {
      result.push_back({type, false, fused});
      const bool narrows = unit_roundoff(type) > unit_roundoff(pb.dtype);
      if (narrows) result.push_back({type, true, fused});
    }
  }
  return result;
}

double simulated(const TensorView& view, DType dtype, const EntryTerms& terms,
                 const Variant& variant, double sum) {
  with_scalar(dtype, [&](auto scalar) {
    visit_terms<decltype(scalar)>(view, terms, [&](double x, double dy) {
      if (variant.inputs) {
        x = rounded(variant.sum, x);
        dy = rounded(variant.sum, dy);
      }
      const double product = variant.fused ? std::fma(x, dy, sum) : rounded(variant.sum, x * dy);
      sum = rounded(variant.sum, variant.fused ? product : sum + product);
    });
  });
  return sum;
}

// [variant][entry]
std::vector<std::vector<double>> simulate(const Evidence& evidence, const Positions& entries,
                                          const std::vector<Variant>& list, const Plan& images,
                                          BlockSource& source, TaskPool& pool) {
  const WgradProblem& pb = evidence.problem();
  std::vector<std::vector<double>> sums(list.size(), std::vector<double>(entries.size()));
  const auto count = static_cast<std::int64_t>(entries.size());
  Timing timing;
  const auto use = [&](const Block& block, std::int64_t) {
    const TensorView view = view_of(pb, plain_reading(pb), block);
    pool.run(static_cast<std::int64_t>(list.size()) * count, [&](std::int64_t task, int) {
      const auto v = static_cast<std::size_t>(task / count),
                 i = static_cast<std::size_t>(task % count);
      const EntryTerms terms = entry_terms(pb, evidence.index(entries[i]));
      sums[v][i] = simulated(view, pb.dtype, terms, list[v], sums[v][i]);
    });
  };
  stream_blocks(images, source, use, timing);
  return sums;
}

bool same_bits(const Evidence& evidence, const Positions& entries,
               const std::vector<double>& sums) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const double value = rounded(evidence.problem().out_dtype, sums[i]);
    const double got = evidence.suspect().got[entries[i]];
    if (!(value == got || (std::isnan(value) && std::isnan(got)))) return false;
  }
  return true;
}

// Root mean square of the errors of values, in units of sum |x||dy|.
double error_size(const Evidence& evidence, const Positions& entries,
                  const std::function<double(std::size_t)>& value) {
  double squares = 0, count = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const double size = evidence.suspect().expected.magnitudes[entries[i]];
    const double error = value(i) - evidence.suspect().expected.values[entries[i]];
    if (!std::isfinite(error) || !(size > 0)) continue;
    squares += std::pow(error / size, 2);
    ++count;
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

// Everything about the gradient is as sums in this type would leave it.
bool plausible(const Evidence& evidence, DType type) {
  const Suspect& s = evidence.suspect();
  const DType out = evidence.problem().out_dtype;
  const bool narrower = unit_roundoff(type) > unit_roundoff(out);
  const double terms = static_cast<double>(term_count(evidence.problem()));
  for (std::size_t at = 0; at < evidence.size(); ++at) {
    const double error = unexplained_error(out, s.got[at], s.expected.values[at]);
    const double bound =
        kBoundFactor * std::sqrt(terms) *
        (unit_roundoff(type) * s.expected.magnitudes[at] + smallest_subnormal(type));
    if (!(error <= bound)) return false;
    if (narrower && rounded(type, s.got[at]) != s.got[at]) return false;
  }
  return static_cast<double>(evidence.failing().size()) >=
         kLeastFailing * static_cast<double>(evidence.size());
}

}  // namespace

std::optional<Finding> find_low_precision(const Evidence& evidence, const Plan& images,
                                          BlockSource& source, TaskPool& pool, Budget& budget) {
  const WgradProblem& pb = evidence.problem();
  const std::vector<Variant> list = variants(pb);
  const double each =
      kRoundingCost * static_cast<double>(list.size()) * static_cast<double>(term_count(pb));
  const auto affordable = static_cast<std::size_t>(std::min(budget.left / each, 1e6));
  const Positions entries = evidence.choose(std::min(kEntries, affordable));
  if (entries.empty()) return std::nullopt;
  budget.take(each * static_cast<double>(entries.size()));
  const auto sums = simulate(evidence, entries, list, images, source, pool);
  for (std::size_t v = 0; v < list.size(); ++v) {
    if (!same_bits(evidence, entries, sums[v])) continue;
    return Finding{"low_precision_sums",
                   cat("sums are rounded to ", dtype_name(list[v].sum),
                       " after each addition, pixel by pixel"),
                   Certainty::bits, static_cast<std::int64_t>(entries.size())};
  }
  std::optional<Finding> result;
  double best = std::numeric_limits<double>::infinity();
  const double got = error_size(evidence, entries,
                                [&](std::size_t i) { return evidence.suspect().got[entries[i]]; });
  for (std::size_t v = 0; v < list.size(); ++v) {
    const DType type = list[v].sum;
    if (unit_roundoff(type) <= unit_roundoff(accumulator_dtype(pb.dtype))) continue;
    if (list[v].fused || list[v].inputs) continue;
    const double sim = error_size(evidence, entries, [&](std::size_t i) { return sums[v][i]; });
    const double distance = std::fabs(std::log(got / sim));
    const bool of_that_size = got >= kLeastSize * sim && got <= kMostSize * sim;
    if (!of_that_size || distance >= best || !plausible(evidence, type)) continue;
    best = distance;
    result = Finding{"low_precision_sums", cat("sums are rounded to ", dtype_name(type)),
                     Certainty::size, static_cast<std::int64_t>(evidence.size())};
  }
  return result;
}

}  // namespace convgrad::diagnosis
