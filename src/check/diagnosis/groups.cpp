// groups.cpp - groups that stand in another order, whatever it is.
#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

constexpr std::int64_t kMostGroups = 2048;
constexpr std::size_t kMostNamed = 16;

// Whether all that stands at group `at` is what belongs to group `of`.
bool same_group(const Evidence& evidence, std::int64_t at, std::int64_t of) {
  const Suspect& s = evidence.suspect();
  const WgradProblem& pb = evidence.problem();
  for (std::int64_t row = 0; row < pb.taps() * pb.group_c(); ++row) {
    for (std::int64_t j = 0; j < pb.group_k(); ++j) {
      const auto here = static_cast<std::size_t>(row * pb.K + at * pb.group_k() + j);
      const auto there = static_cast<std::size_t>(row * pb.K + of * pb.group_k() + j);
      if (!evidence.fits(here, s.expected.values[there], s.expected.scales[there])) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<Explanation> find_group_order(const Evidence& evidence) {
  const WgradProblem& pb = evidence.problem();
  if (!evidence.whole() || pb.groups < 2 || pb.groups > kMostGroups) return std::nullopt;
  std::vector<std::int64_t> order;
  std::vector<bool> used(static_cast<std::size_t>(pb.groups));
  for (std::int64_t at = 0; at < pb.groups; ++at) {
    std::int64_t of = 0;
    // Its own place first: equal groups must not look as if they had changed places.
    if (!used[static_cast<std::size_t>(at)] && same_group(evidence, at, at)) of = at;
    for (; of < pb.groups; ++of) {
      if (!used[static_cast<std::size_t>(of)] && same_group(evidence, at, of)) break;
    }
    if (of == pb.groups) return std::nullopt;
    used[static_cast<std::size_t>(of)] = true;
    order.push_back(of);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMostNamed); ++i) {
    text += cat(i > 0 ? "," : "", order[i]);
  }
  if (order.size() > kMostNamed) text += ",...";
  Explanation result;
  result.fault = "group_order";
  result.text = cat("its groups are in the order ", text);
  result.reading = plain_reading(pb);
  result.moved = [pb, order](std::int64_t index) {
    const std::int64_t k = index % pb.K, group = order[static_cast<std::size_t>(k / pb.group_k())];
    return index / pb.K * pb.K + group * pb.group_k() + k % pb.group_k();
  };
  return result;
}

}  // namespace convgrad::diagnosis
