// kinds_of_fillings.cpp - see fault_kinds.hpp: what stands in the place of right sums.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

// The exact gradient, before it is rounded.
Values exact(const Case& c) {
  Case wide = c;
  wide.pb.out_dtype = DType::f64;
  Wrong wrong = right(wide);
  wrong.add = [](double sum, double product) { return sum + product; };
  return gradient(wide, wrong);
}

double largest(const Values& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double most, double v) { return std::max(most, std::fabs(v)); });
}

// The number of so many bits next to value, towards 0.
double cut_off(double value, int bits) {
  if (value == 0) return value;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(value, &exponent), bits);
  return std::ldexp(std::trunc(scaled), exponent - bits);
}

void add_roundings(Kinds& kinds) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const bool own : {true, false}) {
      kinds.add(cat("result cut off, ", dtype_name(type), own ? " file" : " in another"),
                {"result_precision"}, [=](Case& c, Random&, std::string& words) {
                  const bool is_own = c.pb.out_dtype == type;
                  const bool wider = unit_roundoff(c.pb.out_dtype) < unit_roundoff(type);
                  if (own ? !is_own : !wider) return Values();
                  words = "cut off";
                  Values dw = exact(c);
                  for (double& v : dw) v = cut_off(v, type == DType::bf16 ? 8 : 11);
                  return dw;
                });
    }
  }
  for (const int lost : {3, 8, 10}) {
    kinds.add(cat("low ", lost, " bits cut off"), {"result_precision"},
              [=](Case& c, Random&, std::string& words) {
                const int all = static_cast<int>(-std::log2(unit_roundoff(c.pb.out_dtype)));
                if (all - lost < 4 || (all == 24 && lost < 8) || all == 53) return Values();
                words = "cut off";
                Values dw = gradient(c, right(c));
                for (double& v : dw) v = cut_off(v, all - lost);
                return dw;
              });
  }
}

void add_limits(Kinds& kinds) {
  const auto clamp = [](const WgradProblem& pb, Values dw, double most) {
    for (double& v : dw) v = std::clamp(v, -most, most);
    return rounded_all(pb, dw);
  };
  kinds.add("float16 saturates", {"saturated"}, [=](Case& c, Random&, std::string& words) {
    if (c.pb.out_dtype != DType::f16) return Values();
    const double factor = std::exp2(std::round(std::log2(65504 / largest(exact(c)))) + 1);
    for (double& v : c.dy) v = rounded(DType::f16, v * std::sqrt(factor));
    for (double& v : c.x) v = rounded(DType::f16, v * std::sqrt(factor));
    words = "at 65504, the largest float16";
    return clamp(c.pb, exact(c), 65504);
  });
  for (const double most : {65504.0, 57344.0, 448.0}) {
    kinds.add(cat("a wider file saturates at ", most), {"saturated"},
              [=](Case& c, Random&, std::string& words) {
                if (unit_roundoff(c.pb.out_dtype) >= 0x1p-11) return Values();
                const double factor = 2 * most / largest(exact(c));
                for (double& v : c.dy) v = rounded(c.pb.dtype, v * std::sqrt(factor));
                for (double& v : c.x) v = rounded(c.pb.dtype, v * std::sqrt(factor));
                words = cat("it is cut off at ", most);
                return clamp(c.pb, exact(c), most);
              });
  }
}

void add_numbers(Kinds& kinds) {
  for (const auto& [factor, cause] :
       {std::pair{2.0, "added to what was there"}, std::pair{3.0, "added to what was there"},
        std::pair{-1.0, "a sign"}, std::pair{65536.0, "a loss scale"},
        std::pair{1.0 / 12, "a mean"}}) {
    kinds.add(cat("multiplied by ", factor), {"scale_factor"},
              [factor = factor, cause = cause](Case& c, Random&, std::string& words) {
                if (c.pb.out_dtype == DType::f16 && factor > 100) return Values();
                words = cause;
                return scaled(c.pb, gradient(c, right(c)), factor);
              });
  }
  for (const bool zero : {false, true}) {
    for (const double value : {std::nan(""), HUGE_VAL}) {
      kinds.add(cat(std::isnan(value) ? "NaN" : "Inf", zero ? " becomes 0" : " is skipped"),
                {"nonfinite_suppressed"}, [=](Case& c, Random& random, std::string& words) {
                  Case clean = c;
                  const auto at = static_cast<std::size_t>(draw(random, std::ssize(c.dy)));
                  c.dy[at] = value;
                  clean.dy[at] = 0;
                  Values dw = gradient(clean, right(clean));
                  const Values bad = gradient(c, right(c));
                  for (std::size_t i = 0; i < dw.size(); ++i) {
                    if (zero && !std::isfinite(bad[i])) dw[i] = 0;
                  }
                  words = "as dy[";
                  return dw;
                });
    }
  }
}

}  // namespace

void add_fillings(Kinds& kinds) {
  add_roundings(kinds);
  add_limits(kinds);
  add_numbers(kinds);
}

}  // namespace convgrad::testing
