// evidence.cpp - see search.hpp: finds the suspect's errors, and where they are.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <unordered_map>

#include "check/diagnosis/search.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

// So much of a place must be seen to be wrong; scripts/measure_diagnosis says the same with 0.05.
constexpr double kLeastSeen = 0.25;
// So much, where single entries show another place: test_one_rounding_in_one_place fails with 1.
constexpr double kMostSeen = 0.75;
constexpr std::size_t kMostChosen = 4096;

}  // namespace

Evidence::Evidence(const Suspect& suspect, Clock::time_point end)
    : suspect_(suspect), end_(end), all_(size()) {
  std::iota(all_.begin(), all_.end(), std::size_t{0});
  for (const std::size_t at : all_) {
    const double error = unexplained(at, want(at), nullptr);
    errors_.push_back(error > 0 ? error / scale(at) : 0);
    if (errors_[at] > kWrong) wrong_.push_back(at);
  }
  where_ = find_where();
  const auto place_where = [&](const std::function<Mark(std::size_t)>& mark) {
    std::vector<Marked> marks;
    bool any = false;
    for (const std::size_t at : all_) {
      marks.push_back({index(at), mark(at)});
      any = any || marks.back().mark == Mark::in;
    }
    return any ? place_of(problem(), marks) : Place();
  };
  zeros_ = place_where([&](std::size_t at) {
    // A 0 that may be right may belong to the place or not.
    const bool lost = errors_[at] > kWrong && want(at) != 0 && std::isfinite(want(at));
    return got(at) != 0 ? Mark::out : lost ? Mark::in : Mark::either;
  });
  nans_ = place_where([&](std::size_t at) {
    return !std::isnan(got(at)) ? Mark::out : std::isnan(want(at)) ? Mark::either : Mark::in;
  });
  finite_ = place_where([&](std::size_t at) {
    return !std::isfinite(want(at)) && std::isfinite(got(at)) ? Mark::in : Mark::out;
  });
  find_alike();
  // Entries are drawn with weights (Efraimidis, Spirakis: Weighted random sampling with a
  // reservoir, 2006). Beyond kWrong a larger error is no more certain.
  std::mt19937_64 random(1);
  std::vector<std::pair<double, std::size_t>> keys;
  for (const std::size_t at : all_) {
    const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    const double most = std::min(errors_[at], 30.0);
    keys.emplace_back(std::log(u) / (1 + most * most), at);
  }
  const std::size_t count = std::min(kMostChosen, size());
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end(),
                    std::greater<>());
  for (std::size_t i = 0; i < count; ++i) drawn_.push_back(keys[i].second);
  find_grids(all_, false);
  // A kernel may round in one place what another stores right: a channel, a tap, a tile.
  if (grids_.empty() && where_.pattern && !where_.everything) {
    Positions inside;
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(inside),
                 [&](std::size_t at) { return inside_[at]; });
    if (!inside.empty()) find_grids(inside, true);
  }
  make_fillings();
}

bool Evidence::in_some_taps() const {
  std::set<std::int64_t> taps;
  for (const std::size_t at : all_) {
    if (inside_[at]) taps.insert(index(at) / (problem().group_c() * problem().K));
  }
  return std::ssize(taps) < problem().taps();
}

double Evidence::scale(std::size_t at) const {
  const double scale = suspect_.expected.scales[at], least = smallest_subnormal(DType::f64);
  return std::isfinite(scale) ? std::max(scale, least) : least;
}

// Elements that hold the same numbers, as of equal channels, are one piece of evidence.
void Evidence::find_alike() {
  std::unordered_map<double, std::size_t> first;
  for (const std::size_t at : all_) alike_.push_back(first.emplace(want(at), at).first->second);
  if (first.size() == size()) alike_.clear();
}

Place Evidence::find_where() {
  std::vector<Marked> marks;
  for (const std::size_t at : all_) {
    marks.push_back({index(at), errors_[at] > kWrong   ? Mark::in
                                : errors_[at] > kRight ? Mark::either
                                                       : Mark::out});
  }
  for (const std::size_t at : all_) inside_.push_back(marks[at].mark == Mark::in);
  Place by_entries = place_of(problem(), marks);
  const bool found = by_entries.pattern && !by_entries.text.empty();
  if (!mark_planes(marks)) return by_entries;
  Place by_planes = place_of(problem(), marks);
  double in = 0, seen = 0;
  for (const std::size_t at : all_) {
    if (marks[at].mark != Mark::in) continue;
    ++in;
    seen += errors_[at] > kSlack ? 1 : 0;
  }
  // Where a few entries look right by chance, the planes say in fewer words what is wrong.
  const bool better =
      !by_planes.everything && seen >= kMostSeen * in && by_planes.bits < by_entries.bits;
  if (found && !better) return by_entries;
  for (const std::size_t at : all_) inside_[at] = marks[at].mark == Mark::in;
  return by_planes;
}

// If single entries do not show the place, planes do: it is where every axis' are wrong. Returns
// whether the place holds all of the fault: the other entries look right together, and enough of
// those inside are seen to be wrong.
bool Evidence::mark_planes(std::vector<Marked>& marks) const {
  const std::vector<EntryAxis> axes = entry_axes(problem());
  struct Group {
    double squares = 0, count = 0;
    bool wrong() const { return std::sqrt(squares / count) > kSlack * group_factor(count); }
    void add(double error) {
      squares += error * error;
      ++count;
    }
  };
  std::vector<std::vector<Group>> planes;
  planes.reserve(axes.size());
  for (const EntryAxis& axis : axes) planes.emplace_back(static_cast<std::size_t>(axis.extent));
  const auto plane = [&](std::size_t a, std::size_t at) -> Group& {
    return planes[a][static_cast<std::size_t>(entry_place(axes, index(at))[a])];
  };
  for (const std::size_t at : all_) {
    for (std::size_t a = 0; a < axes.size(); ++a) plane(a, at).add(errors_[at]);
  }
  Group others;
  double in = 0, seen = 0;
  for (const std::size_t at : all_) {
    bool wrong = true;
    for (std::size_t a = 0; a < axes.size(); ++a) wrong = wrong && plane(a, at).wrong();
    marks[at].mark = wrong ? Mark::in : Mark::out;
    in += wrong ? 1 : 0;
    seen += wrong && errors_[at] > kSlack ? 1 : 0;
    if (!wrong) others.add(errors_[at]);
  }
  return (others.count == 0 || !others.wrong()) && seen >= kLeastSeen * in;
}

Positions Evidence::choose(std::size_t count) const {
  Positions result(drawn_.begin(),
                   drawn_.begin() + static_cast<std::ptrdiff_t>(std::min(count, drawn_.size())));
  std::sort(result.begin(), result.end());
  return result;
}

Positions Evidence::choose_any(std::size_t count) const {
  const std::size_t stride = golden_stride(size());
  Positions result;
  for (std::size_t i = 0; i < std::min(count, size()); ++i) result.push_back(i * stride % size());
  std::sort(result.begin(), result.end());
  return result;
}

Finding finding(const Fit::Part& fault, const Fit& fit, Certainty certainty, std::size_t checked) {
  Finding result;
  std::vector<Fit::Part> parts = fit.parts;
  if (!fault.name.empty()) parts.insert(parts.begin(), fault);
  for (const Fit::Part& part : parts) {
    const bool first = &part == &parts.front();
    result.fault += (first ? "" : "+") + part.name;
    result.text += (first ? "" : ", and ") + part.text;
    if (part.cause.empty()) continue;
    result.cause += (result.cause.empty() ? "" : "; ") + part.cause;
  }
  if (!fit.only.empty()) result.text += ", in " + fit.only + " alone";
  result.certainty = certainty;
  result.checked = static_cast<std::int64_t>(checked);
  return result;
}

}  // namespace convgrad::diagnosis
