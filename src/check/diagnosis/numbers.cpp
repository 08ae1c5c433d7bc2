// numbers.cpp - see judge.hpp: finds the number that multiplies predicted values.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "check/diagnosis/judge.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;

// A known factor is one of about 2^4 that are within reach of what is measured.
constexpr double kFactorBits = 4;
// Sums that are added to over and over are whole multiples, up to this; loss scales begin at 2^16
// and double as long as nothing overflows (Apex stops at 2^24).
constexpr int kMostAdded = 16, kLargestScale = 24;

struct Factor {
  double value;
  std::string name;  // " (1/N)"
};

std::vector<Factor> known_factors(const WgradProblem& pb) {
  std::vector<Factor> factors;
  // Small whole numbers are sums that were added to, whatever else has that value.
  for (const double small : {2.0, 3.0, 4.0}) factors.push_back({small, ""});
  const auto add = [&](double count, const std::string& name) {
    if (!(count > 1)) return;
    factors.push_back({1 / count, cat(" (1/", name, ")")});
    factors.push_back({count, cat(" (", name, ")")});
  };
  const double N = static_cast<double>(pb.N), pixels = static_cast<double>(pb.out_pixels());
  const int rank = pb.spatial_rank();
  const char* const out = rank > 2 ? "Z*P*Q)" : rank > 1 ? "P*Q)" : "Q)";
  add(N, "N");
  add(N * pixels, cat("(N*", out));
  add(pixels, cat("(", out));
  add(static_cast<double>(pb.taps()), rank > 2 ? "(T*R*S)" : rank > 1 ? "(R*S)" : "S");
  add(static_cast<double>(pb.groups), "groups");
  add(static_cast<double>(pb.C), "C");
  add(static_cast<double>(pb.K), "K");
  for (int count = 2; count <= kMostAdded; ++count) {
    factors.push_back({1.0 / count, cat(" (1/", count, ")")});
  }
  for (int power = 5; power <= kLargestScale; ++power) {
    add(std::ldexp(1.0, power), cat("2^", power));
  }
  return factors;
}

// Says what usually brings a factor about; most numbers have no cause.
std::string cause_of(double factor) {
  const double size = std::fabs(factor), inverse = 1 / size;
  const auto whole = [](double v) { return std::fabs(v - std::round(v)) <= 1e-6 * v; };
  int exponent = 0;
  const bool power = std::frexp(size, &exponent) == 0.5 && std::abs(exponent - 1) >= 5;
  std::string cause;
  if (factor < 0) cause = "a sign: the gradient of -loss, or an update in place of a gradient";
  const auto add = [&](const char* more) {
    cause += (cause.empty() ? "" : "; ") + std::string(more);
  };
  if (power) {
    add("a loss scale that was left in, or divided out twice");
  } else if (size > 1 && size <= kMostAdded && whole(size)) {
    add("a sum that is added to what was there: beta = 1, backward twice without zeroing, a "
        "warm-up run, or atomics on a buffer that was not set to 0");
  } else if (size > 1 && whole(size)) {
    add("a sum in place of a mean");
  }
  if (size < 1 && whole(inverse) && !(power && exponent > 0)) add("a mean in place of a sum");
  return cause;
}

Fit::Part factor_part(double value, const std::string& text) {
  return {"scale_factor", "it is multiplied by " + text, cause_of(value)};
}

}  // namespace

// Returns by which number the predicted values are multiplied to be nearest to what was got, or 0
// where that cannot be told.
double Judge::fitted_factor(const Trial& trial) const {
  struct Ratio {
    double ratio, value, got, unit;
  };
  std::vector<Ratio> ratios;
  for (std::size_t i = 0; i < trial.at.size(); ++i) {
    const std::size_t at = trial.at[i];
    const double value = trial.predicted.values[i];
    const double unit = trial.predicted.scales[i] + rounding_step(e_.problem().out_dtype, value);
    if (trial.filling.instead == Instead::plain && e_.error(at) <= kWrong) continue;
    // The ratio of small values is mostly rounding.
    if (!std::isfinite(e_.got(at)) || !(std::fabs(value) > 4 * unit)) continue;
    if (trial.filling.instead == Instead::zero && e_.got(at) == 0) continue;
    ratios.push_back({e_.got(at) / value, value, e_.got(at), unit});
  }
  if (ratios.empty()) return 0;
  // The median finds the factor among entries of which some are wrong in other ways; the mean of
  // those near it is sharper.
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end(),
                   [](const Ratio& a, const Ratio& b) { return a.ratio < b.ratio; });
  const double median = middle->ratio;
  double products = 0, squares = 0;
  for (const Ratio& r : ratios) {
    if (std::fabs(r.got - median * r.value) > 30 * r.unit + 0.02 * std::fabs(r.got)) continue;
    products += r.value / r.unit * (r.got / r.unit);
    squares += r.value / r.unit * (r.value / r.unit);
  }
  const double fitted = products / squares;
  return std::isfinite(fitted) ? fitted : 0;
}

// Finds what the predicted values are multiplied by: a known factor, or the number of the fewest
// digits that explains everything.
bool Judge::find_factor(Trial& trial) const {
  const double fitted = fitted_factor(trial);
  if (fitted == 0) return false;
  // A factor that changes no number by more than its rounding is none.
  const std::optional<Grid>& grid = trial.filling.grid;
  const double u =
      grid ? unit_roundoff(grid->like) * grid->part : unit_roundoff(e_.problem().out_dtype);
  if (std::fabs(fitted - 1) <= u) return false;
  const double bits = trial.bits;
  const auto good = [&](double value, double more) {
    trial.factor = value;
    trial.bits = bits + more;
    return misfit(trial).has_value();
  };
  for (const Factor& known : known_factors(e_.problem())) {
    if (std::fabs(known.value / fitted - 1) > 0.1 || !good(known.value, kFactorBits)) continue;
    trial.number = factor_part(known.value, digits(known.value, 9) + known.name);
    return true;
  }
  // The fitted number itself need not be the one: it has the errors of what it was fitted to.
  for (int count = 1; count <= kMostDigits; ++count) {
    const std::string text = digits(fitted, count);
    const double value = std::strtod(text.c_str(), nullptr);
    if (value == 1 || !good(value, kFactorBits + count * kDigitBits)) continue;
    trial.number = factor_part(value, text);
    return true;
  }
  return false;
}

}  // namespace convgrad::diagnosis
