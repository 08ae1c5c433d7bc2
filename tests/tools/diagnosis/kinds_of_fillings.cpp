// kinds_of_fillings.cpp - see fault_kinds.hpp: what stands in the place of right sums.
#include <algorithm>
#include <cmath>

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
                {"result_precision"}, [=](Draft& d) {
                  const bool is_own = d.pb.out_dtype == type;
                  const bool wider = unit_roundoff(d.pb.out_dtype) < unit_roundoff(type);
                  if (own ? !is_own : !wider) return d.skip();
                  d.words = "cut off";
                  d.values = exact(d.c);
                  for (double& v : d.values) v = cut_off(v, type == DType::bf16 ? 8 : 11);
                });
    }
  }
}

void add_numbers(Kinds& kinds) {
  for (const auto& [factor, cause] :
       {std::pair{2.0, "added to what was there"}, std::pair{3.0, "added to what was there"},
        std::pair{-1.0, "a sign"}, std::pair{65536.0, "a loss scale"},
        std::pair{1.0 / 12, "a mean"}}) {
    kinds.add_part(cat("multiplied by ", factor), {"scale_factor"},
                   [factor = factor, cause = cause](Draft& d, Values& dw) {
                     if (d.pb.out_dtype == DType::f16 && factor > 100) return d.skip();
                     d.words = cause;
                     dw = scaled(d.pb, dw, factor);
                   });
  }
  for (const bool zero : {false, true}) {
    for (const double value : {std::nan(""), HUGE_VAL}) {
      kinds.add(cat(std::isnan(value) ? "NaN" : "Inf", zero ? " becomes 0" : " is skipped"),
                {"nonfinite_suppressed"}, [=](Draft& d) {
                  const std::int64_t place = draw(d.random, std::ssize(d.c.dy));
                  at(d.seen().dy, place) = 0;
                  d.values = d.gradient();
                  at(d.c.dy, place) = value;
                  const Values bad = gradient(d.c, right(d.c));
                  for (std::int64_t i = 0; i < std::ssize(bad); ++i) {
                    if (zero && !std::isfinite(at(bad, i))) at(d.values, i) = 0;
                  }
                });
    }
  }
}

}  // namespace

void add_fillings(Kinds& kinds) {
  add_roundings(kinds);
  add_numbers(kinds);
}

}  // namespace convgrad::testing
