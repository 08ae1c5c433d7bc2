// reference_test.cpp - the reference against hand-worked numbers and against a second definition,
// written with whole-array views instead of loops over pixels.
#include "convgrad/reference.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

using Array = xt::xarray<double>;

Array as_array(DType dtype, const std::vector<std::byte>& bytes,
               const std::vector<std::int64_t>& shape) {
  const std::vector<double> values = widened(dtype, bytes);
  std::vector<std::size_t> sizes(shape.begin(), shape.end());
  return xt::adapt(values, sizes);
}

// dw by definition: x padded with zeros, then for every tap and channel pair the sum of a strided
// view times dy. Channels-last tensors of a 3-D problem.
std::vector<double> by_views(const WgradProblem& pb, const Array& x, const Array& dy) {
  const auto& [d, h, w] = pb.axis;
  const auto reach = [](const SpatialAxis& a) {
    const std::int64_t seen = (a.out - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
    return static_cast<std::size_t>(std::max(seen, a.pad_before + a.in));
  };
  const auto inside = [](const SpatialAxis& a) {
    return xt::range(a.pad_before, a.pad_before + a.in);
  };
  Array padded = xt::zeros<double>({static_cast<std::size_t>(pb.N), reach(d), reach(h), reach(w),
                                    static_cast<std::size_t>(pb.C)});
  xt::view(padded, xt::all(), inside(d), inside(h), inside(w), xt::all()) = x;
  const auto taps = [](const SpatialAxis& a, std::int64_t tap) {
    const std::int64_t begin = tap * a.dilation;
    return xt::range(begin, begin + (a.out - 1) * a.stride + 1, a.stride);
  };
  std::vector<double> dw;
  for (std::int64_t t = 0; t < d.taps; ++t)
    for (std::int64_t r = 0; r < h.taps; ++r)
      for (std::int64_t s = 0; s < w.taps; ++s)
        for (std::int64_t c = 0; c < pb.group_c(); ++c)
          for (std::int64_t k = 0; k < pb.K; ++k) {
            const std::int64_t channel = k / pb.group_k() * pb.group_c() + c;
            const auto seen =
                xt::view(padded, xt::all(), taps(d, t), taps(h, r), taps(w, s), channel);
            const auto gradient = xt::view(dy, xt::all(), xt::all(), xt::all(), xt::all(), k);
            dw.push_back(xt::sum(seen * gradient)());
          }
  return dw;
}

}  // namespace

TEST_CASE("numbers worked out by hand") {
  // x = 1..4 in a row, dy = 10, 20, 30, 40; 3 taps, SAME: the outer taps miss one product each.
  WgradAttributes a;
  a.op = "conv2d";
  a.kernel = {1, 3};
  a.padding = "SAME";
  const WgradProblem problem =
      make_problem({"x", DType::f32, {1, 1, 4, 1}}, {"dy", DType::f32, {1, 1, 4, 1}}, a);
  const float x[] = {1, 2, 3, 4}, dy[] = {10, -20, 30, 40};
  const Expected r = reference_of(problem, x, dy);
  CHECK(r.values == std::vector<double>{-20 + 2 * 30 + 3 * 40, 10 - 40 + 90 + 160, 20 - 60 + 120});
  CHECK(r.magnitudes ==
        std::vector<double>{20 + 2 * 30 + 3 * 40, 10 + 40 + 90 + 160, 20 + 60 + 120});
}

TEST_CASE("the reference agrees with sums of views") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    if (thinned.skips()) continue;
    const WgradProblem problem = make(spec, DType::f64, true);
    if (term_count(problem) == 0) continue;
    CAPTURE(spec.name);
    const auto& [d, h, w] = problem.axis;
    const auto x = filled(DType::f64, problem.x_count(), Fill::small_integers, 21);
    const auto dy = filled(DType::f64, problem.dy_count(), Fill::small_integers, 22);
    const std::vector<double> want =
        by_views(problem, as_array(DType::f64, x, {problem.N, d.in, h.in, w.in, problem.C}),
                 as_array(DType::f64, dy, {problem.N, d.out, h.out, w.out, problem.K}));
    CHECK(reference_of(problem, x.data(), dy.data()).values == want);
  }
}

TEST_CASE("the reference is the plain one, in any layout, and so is what it says of rounding") {
  for_each_case(
      basic_problems(), kDTypes, Fill::normal,
      [](const WgradProblem& problem, const auto& x, const auto& dy) {
        // Restarted nowhere, with batches of eight and between them.
        for (const std::int64_t longest : {0, 64, 13}) {
          const Summation summation = {
              longest, longest == 0 ? Summation::Adders::usual : Summation::Adders::ieee};
          CHECK(is_plain(reference_of(problem, x.data(), dy.data(), 2, summation), problem, x, dy,
                         summation));
        }
      },
      kThin);
}

TEST_CASE("float64 sums and products are compensated") {
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& dy) {
    const auto count = static_cast<std::int64_t>(x.size());
    WgradAttributes a;
    a.op = "conv2d";
    a.kernel = {1};
    a.padding = "VALID";
    const WgradProblem problem =
        make_problem({"x", DType::f64, {count, 1, 1, 1}}, {"dy", DType::f64, {count, 1, 1, 1}}, a);
    return reference_of(problem, x.data(), dy.data()).values[0];
  };
  // 1e16 + 1 - 1e16 + ...: plain summation loses every 1.
  std::vector<double> x, dy;
  for (int i = 0; i < 1000; ++i) {
    x.insert(x.end(), {1e16, 1, -1e16});
    dy.insert(dy.end(), {1, 1, 1});
  }
  CHECK(dot(x, dy) == 1000);
  // (1 + e)(1 - e) - 1 = -e^2: a plain product rounds to 1.
  CHECK(dot({1 + 0x1p-30, -1}, {1 - 0x1p-30, 1}) == -0x1p-60);
}

TEST_CASE("threads do not change the reference") {
  const WgradProblem problem =
      make({"3x3", "conv2d", 3, 7, 21, 1, {{9, 3}, {10, 3}}}, DType::f64, false);
  const auto x = filled(DType::f64, problem.x_count(), Fill::normal, 7);
  const auto dy = filled(DType::f64, problem.dy_count(), Fill::normal, 8);
  const Expected one = reference_of(problem, x.data(), dy.data(), 1);
  for (const int threads : {2, 3, 8}) {
    const Expected many = reference_of(problem, x.data(), dy.data(), threads);
    CHECK(many.values == one.values);
    CHECK(many.magnitudes == one.magnitudes);
  }
}
