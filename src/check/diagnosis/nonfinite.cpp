// nonfinite.cpp - finds the NaN and Inf in x and dy that a suspect should show, and does not.
#include <cmath>
#include <set>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

using Index = std::vector<std::int64_t>;

// Returns "dy[3,2,2,5]", in the order of the file.
std::string element_text(const WgradProblem& pb, bool of_x, const EntryTerms& entry,
                         std::int64_t pixel) {
  Index at;
  std::int64_t rest = pixel;
  for (std::size_t a = 3; a-- > 0;) {
    const SpatialAxis& axis = pb.axis[a];
    const std::int64_t out = rest % axis.out;
    rest /= axis.out;
    if (static_cast<int>(a) < 3 - pb.spatial_rank()) continue;
    at.insert(at.begin(), of_x ? input_at(axis, out, entry.tap[a]) : out);
  }
  at.insert(at.begin(), rest);
  at.insert(pb.channels_last ? at.end() : at.begin() + 1,
            of_x ? entry.x_channel : entry.dy_channel);
  std::string text = of_x ? "x[" : "dy[";
  for (std::size_t i = 0; i < at.size(); ++i) text += cat(i > 0 ? "," : "", at[i]);
  return text + "]";
}

}  // namespace

std::string nonfinite_text(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  std::set<std::string> sources;
  bool zeros = true, sums = true;
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const double got = evidence.got(at);
    if (std::isfinite(evidence.want(at)) || !std::isfinite(got)) continue;
    const EntryTerms entry = entry_terms(pb, evidence.index(at));
    double sum = 0, magnitude = 0;
    for (std::size_t i = 0; i < sample.terms[e].x.size(); ++i) {
      const double x = sample.terms[e].x[i], dy = sample.terms[e].dy[i];
      for (const bool of_x : {true, false}) {
        if (std::isfinite(of_x ? x : dy)) continue;
        sources.insert(element_text(pb, of_x, entry, static_cast<std::int64_t>(i)));
      }
      if (!std::isfinite(x * dy)) continue;
      sum += x * dy;
      magnitude += std::fabs(x * dy);
    }
    zeros = zeros && got == 0;
    sums = sums && std::fabs(got - sum) <= error_bound(pb, pb.out_dtype, sum, magnitude);
  }
  std::string text;
  if (!sources.empty()) text = cat(", as ", *sources.begin());
  if (sources.size() > 1) text += cat(" and ", sources.size() - 1, " more");
  if (!text.empty()) text += sources.size() > 1 ? " have" : " has";
  return text + (zeros  ? "; it is 0 there"
                 : sums ? "; it is the sum of the other terms there"
                        : "");
}

}  // namespace convgrad::diagnosis
