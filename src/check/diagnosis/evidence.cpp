// evidence.cpp - see evidence.hpp.
#include "check/diagnosis/evidence.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <unordered_map>

#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

// Returns the last bit that is set, as a number.
double last_bit(double value) {
  int exponent = 0;
  const auto bits =
      static_cast<std::uint64_t>(std::ldexp(std::frexp(std::fabs(value), &exponent), 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(bits));
}

// So much of a place must be seen to be wrong; scripts/measure_diagnosis says the same with 0.05.
constexpr double kLeastSeen = 0.25;
// So much, where single entries show another place: test_one_rounding_in_one_place fails with 1.
constexpr double kMostSeen = 0.75;
constexpr std::size_t kMostChosen = 4096;
// Half of normal numbers are smaller than that times their root mean square.
constexpr double kMedian = 0.6745;

// Tells whether the errors of a tap, a channel or all are larger than usual ones may be.
bool are_large(const Squares& errors, double usual = 1) {
  return errors.rms() > kSlack * group_factor(errors.count) * usual;
}

}  // namespace

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

Evidence::Evidence(const Suspect& suspect, double seconds)
    : suspect_(suspect), seconds_(seconds), all_(size()) {
  std::iota(all_.begin(), all_.end(), std::size_t{0});
  std::unordered_map<double, std::size_t> first;
  for (const std::size_t at : all_) {
    const double error = unexplained(at, want(at));
    errors_.push_back(error > 0 ? error / scale(at) : 0);
    if (errors_[at] > kWrong) wrong_.push_back(at);
    if (std::isfinite(want(at)) && want(at) != 0) {
      const double bit = last_bit(want(at));
      grain_ = grain_ == 0 ? bit : std::min(grain_, bit);
    }
    alike_.push_back(first.emplace(want(at), at).first->second);
  }
  are_different_ = first.size() == size();
  find_where();
  draw();
}

// Draws entries with weights (Efraimidis, Spirakis: Weighted random sampling with a reservoir,
// 2006). Beyond kWrong a larger error is no more certain.
void Evidence::draw() {
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
}

GroupSums<Squares> Evidence::groups_of(const std::vector<double>& errors) const {
  GroupSums<Squares> groups(problem());
  visit_entries(problem(), suspect_.indices, size(), [&](std::size_t at, const EntryPlaces& of) {
    if (std::isnan(errors[at])) return;
    groups.visit(of, [&](Squares& group) { group.add(errors[at]); });
  });
  return groups;
}

bool Evidence::is_even() const {
  std::vector<double> errors;  // NaN: it cannot be told
  for (const std::size_t at : all_) {
    const double error = std::fabs(got(at) - want(at)) / scale(at);
    errors.push_back(!std::isfinite(want(at)) ? NAN : std::isfinite(error) ? error : HUGE_VAL);
  }
  const GroupSums<Squares> groups = groups_of(errors);
  std::erase_if(errors, [](double error) { return std::isnan(error); });
  if (errors.empty()) return false;
  const double usual = median(errors) / kMedian;
  return std::ranges::max(errors) <= kWrong * usual &&
         !groups.any([&](const Squares& group) { return are_large(group, usual); });
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

void Evidence::find_where() {
  std::vector<Marked> marks;
  for (const std::size_t at : all_) {
    marks.push_back({index(at), errors_[at] > kWrong   ? Mark::in
                                : errors_[at] > kRight ? Mark::either
                                                       : Mark::out});
    inside_.push_back(marks[at].mark == Mark::in);
  }
  where_ = place_of(problem(), marks);
  const bool found = where_.pattern && !where_.text.empty();
  const double seen = mark_planes(marks);
  if (seen < kLeastSeen) return;
  const Place by_planes = place_of(problem(), marks);
  // Where a few entries look right by chance, the planes say in fewer words what is wrong, if any
  // do.
  const bool better = !by_planes.everything && !by_planes.text.empty() && seen >= kMostSeen &&
                      by_planes.bits < where_.bits;
  if (found && !better) return;
  for (const std::size_t at : all_) inside_[at] = marks[at].mark == Mark::in;
  where_ = by_planes;
}

// If single entries do not show the place, planes do: it is where those of the tap and both
// channels are wrong. Returns how much of it is seen to be wrong, or 0 where the other entries do
// not look right together: then the place does not hold all of the fault.
double Evidence::mark_planes(std::vector<Marked>& marks) const {
  const GroupSums<Squares> planes = groups_of(errors_);
  Squares others;
  double in = 0, seen = 0;
  visit_entries(problem(), suspect_.indices, size(), [&](std::size_t at, const EntryPlaces& of) {
    const bool wrong = are_large(planes.of[1][of.tap]) && are_large(planes.of[2][of.x]) &&
                       are_large(planes.of[3][of.k]);
    marks[at].mark = wrong ? Mark::in : Mark::out;
    in += wrong ? 1 : 0;
    seen += wrong && errors_[at] > kSlack ? 1 : 0;
    if (!wrong) others.add(errors_[at]);
  });
  if (are_large(others)) return 0;
  return in > 0 ? seen / in : 1;
}

Positions Evidence::choose(std::size_t count) const {
  Positions result(drawn_.begin(),
                   drawn_.begin() + static_cast<std::ptrdiff_t>(std::min(count, drawn_.size())));
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace convgrad::diagnosis
