// fillings.cpp - see search.hpp: finds what may stand in the place of what a fault predicts.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <set>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;
using Number = Filling::Number;

// To choose one of the parts of the gradient, or one of some types and roundings, costs so many
// bits; scripts/measure_diagnosis names as many faults with none and with twice as many.
constexpr double kInsteadBits = 8, kNarrowBits = 4;
// Fewer numbers than that may have few digits for reasons of their own: sums of ones.
constexpr std::size_t kLeastDifferent = 8;

// Counts the bits of the significand that a value needs.
int digits_of(double value) {
  int exponent = 0;
  const auto bits = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  return bits == 0 ? 0 : 53 - std::countr_zero(static_cast<std::uint64_t>(bits));
}

int digits_of(DType dtype) { return static_cast<int>(-std::log2(unit_roundoff(dtype))); }

}  // namespace

std::string digits(double value, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", count, value);
  return text;
}

// Adds a grid to whose numbers values are rounded or cut off. The suspect's own type may round.
void Evidence::add_grids(Grid grid, const std::string& name) {
  for (const bool cut : {false, true}) {
    if (grid.own && !cut) continue;
    grid.cut = cut;
    grid.text = {"result_precision", "", "a result that was stored in that type"};
    if (cut) {
      const bool upper_half = grid.like == DType::bf16 && grid.part == 1;
      grid.text.cause =
          upper_half ? "taking the upper half of a float32" : "a conversion that rounds towards 0";
    }
    if (name.empty()) {
      const int lost = static_cast<int>(std::log2(grid.part));
      grid.text.text =
          cat("its low ", lost, lost == 1 ? " bit of " : " bits of ", dtype_name(grid.like),
              lost == 1 ? " is " : " are ", cut ? "cut off" : "rounded off");
      grid.text.cause = "a conversion through fewer bits";
    } else {
      grid.text.text = cat("it is ", cut ? "cut off" : "rounded", " to ", name, " once");
    }
    grids_.push_back(grid);
  }
}

// Finds the types of which all of these values are, but not the right ones.
void Evidence::find_grids(const Positions& positions, bool in_place) {
  const DType out = problem().out_dtype;
  struct Type {
    const char* name;
    DType like;
    double part;
    Treatment treatment;
  };
  std::set<double> different;
  int needed = 0;
  for (const std::size_t at : positions) {
    if (!std::isfinite(got(at))) continue;
    needed = std::max(needed, digits_of(got(at)));
    if (different.size() < kLeastDifferent) different.insert(got(at));
  }
  if (!in_place) digits_ = needed;
  // Returns the part of the right values that need more than that. Where few do, a suspect of short
  // numbers tells nothing.
  const auto longer = [&](const auto& kept) {
    double nonzero = 0, others = 0;
    for (const std::size_t at : positions) {
      nonzero += want(at) != 0 ? 1 : 0;
      others += kept(rounded(out, want(at))) ? 0 : 1;
    }
    return others / std::max(nonzero, 1.0);
  };
  const auto add = [&](Grid grid, const std::string& name) {
    grid.in_place = in_place;
    add_grids(std::move(grid), name);
  };
  // Types come from the narrowest on, and only the first that holds every value counts.
  int known = digits_of(out);
  for (const Type& type : {Type{"bfloat16", DType::bf16, 1, Treatment::bf16},
                           Type{"float16", DType::f16, 1, Treatment::f16},
                           Type{"TF32", DType::bf16, 1.0 / 8, Treatment::tf32_cut},
                           Type{"float32", DType::f32, 1, Treatment::f32}}) {
    const double u = unit_roundoff(type.like) * type.part;
    if (u <= unit_roundoff(out) || known < digits_of(out)) continue;
    const auto kept = [&](double v) {
      return !std::isfinite(v) || treated(type.treatment, out, v) == v;
    };
    const bool holds = std::all_of(positions.begin(), positions.end(),
                                   [&](std::size_t at) { return kept(got(at)); });
    if (!holds || longer(kept) <= 0.5) continue;
    // Both have 11 bits; numbers within float16's range do not tell them apart.
    const bool either = type.like == DType::f16 && unit_roundoff(out) < unit_roundoff(DType::f16);
    add({type.like, type.part}, either ? "float16 or TF32" : type.name);
    known = static_cast<int>(-std::log2(u));
  }
  const auto short_enough = [&](double v) { return !std::isfinite(v) || digits_of(v) <= needed; };
  if (different.size() == kLeastDifferent && needed < known && longer(short_enough) >= 0.25) {
    add({out, std::ldexp(1.0, digits_of(out) - needed)}, "");
  }
  if (!in_place && unit_roundoff(out) > unit_roundoff(accumulator_dtype(problem().dtype))) {
    Grid own = {out};
    own.own = true;
    add_grids(own, std::string(dtype_name(out)));
  }
}

// Finds that the largest numbers are one and the same: a type's largest, or that at which a sum
// stops since what is added to it is less than half a step.
std::vector<Filling> Evidence::clamped() const {
  const DType out = problem().out_dtype;
  double most = 0, largest = 0;
  for (const std::size_t at : all_) {
    if (std::isfinite(got(at))) most = std::max(most, std::fabs(got(at)));
    if (std::isfinite(want(at))) largest = std::max(largest, std::fabs(want(at)));
  }
  // Some right value must be larger, or the largest number is no limit.
  const bool reached = std::any_of(all_.begin(), all_.end(), [&](std::size_t at) {
    return std::fabs(got(at)) == most && !(std::fabs(want(at)) <= most) &&
           std::signbit(got(at)) == std::signbit(want(at)) && errors_[at] > 0;
  });
  if (most == 0 || !reached) return {};
  std::vector<Filling> result;
  const auto add = [&](bool known, double bits, const Fit::Part& part) {
    Filling& filling = result.emplace_back();
    filling.most = most;
    filling.known_most = known;
    filling.bits = bits;
    filling.alone = true;
    filling.parts.push_back(part);
  };
  // Sums of terms that are all the same are whole multiples of them, where the scale tells.
  const std::vector<double>& sizes = suspect_.expected.magnitudes;
  const auto multiples = [&](double term) {
    return std::all_of(all_.begin(), all_.end(), [&](std::size_t at) {
      const double size = std::fabs(want(at)), count = std::round(size / term);
      return scale(at) < term / 8 && std::fabs(size - count * term) <= 8 * scale(at) &&
             std::fabs(size - sizes[at]) <= 8 * scale(at);
    });
  };
  const double terms = static_cast<double>(term_count(problem()));
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const double term = most * unit_roundoff(type);
    if (term * terms != largest && !(largest <= term * terms && multiples(term))) continue;
    add(true, kInsteadBits,
        {"low_precision_sums",
         cat("sums are rounded to ", dtype_name(type), " after each addition, and stop at ",
             digits(most, 9)),
         "an accumulator of that type"});
  }
  std::string name;
  for (const DType type :
       {DType::f16, DType::bf16, DType::f32, DType::e5m2, DType::e4m3fn, DType::e4m3fnuz}) {
    if (most == largest_finite(type)) name = cat(", the largest ", dtype_name(type));
  }
  const bool overflows = most == largest_finite(out);
  add(overflows, name.empty() ? kMostBits : kInsteadBits,
      {"saturated",
       cat("it is cut off at ", digits(most, 9), name, ", where it should ",
           overflows ? "overflow" : "be larger"),
       "a saturating conversion"});
  return result;
}

// Lists parts that are 0 or not finite, and places, by themselves and with numbers of a narrow
// type; then all of them with a number that is added or multiplied. judge() takes the first that
// fits, so the simplest come first.
void Evidence::make_fillings() {
  std::vector<Filling> parts(1);
  const auto add_part = [&](Instead instead, const Place& place, const Fit::Part& part) {
    // NaN and Inf of x and dy are anywhere.
    if (place.text.empty() || (!place.pattern && instead != Instead::finite)) return;
    Filling& filling = parts.emplace_back();
    filling.instead = instead;
    filling.bits = instead == Instead::plain ? std::max(kInsteadBits, place.bits) : kInsteadBits;
    filling.alone = place.everything;
    if (!part.name.empty()) filling.parts.push_back(part);
  };
  const auto in_place = [](const Place& place, const std::string& value) {
    return place.everything ? cat("every element is set to ", value)
                            : cat(value, " is in place of ", place.text);
  };
  add_part(Instead::zero, zeros_,
           {"zero", in_place(zeros_, "0"), "a part that no block of threads wrote, or a mask"});
  add_part(Instead::nan, nans_,
           {"nan", in_place(nans_, "NaN"), "memory that was never written, or 0 * Inf"});
  for (Filling& filling : clamped()) parts.push_back(std::move(filling));
  add_part(
      Instead::finite, finite_,
      {"nonfinite_suppressed",
       cat("NaN and Inf are suppressed: it is finite where the reference is not, ", finite_.text),
       "nan_to_num, a mask, or minimum and maximum that drop NaN"});
  if (!where_.everything) add_part(Instead::plain, where_, {});
  if (parts.back().instead == Instead::plain) parts.back().only = where_.text;
  for (const Number number : {Number::none, Number::offset, Number::factor}) {
    for (Filling filling : parts) {
      if (number != Number::none && std::isfinite(filling.most)) continue;
      filling.number = number;
      if (number == Number::offset) {
        filling.alone = true;
        filling.bits += kMostBits;
      }
      fillings_.push_back(filling);
      for (const Grid& grid : grids_) {
        if (number != Number::none && (grid.own || grid.in_place)) continue;
        if (grid.in_place && filling.instead != Instead::plain) continue;
        Filling narrow = filling;
        narrow.grid = &grid;
        narrow.bits += kNarrowBits;
        narrow.parts.push_back(grid.text);
        narrow.alone = narrow.alone || grid.own || grid.in_place;
        fillings_.push_back(std::move(narrow));
      }
    }
  }
}

}  // namespace convgrad::diagnosis
