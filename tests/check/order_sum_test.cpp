// order_sum_test.cpp - how large sums grow in other orders, against loops over each entry's terms.
#include "check/order_sum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "check/entry_sum.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

struct Term {
  std::int64_t n, z, p, q;
  double value;
};

// The terms of an entry, as the definition has them.
std::vector<Term> terms_of(const WgradProblem& pb, std::int64_t index, const float* x,
                           const float* dy) {
  const EntryTerms at = entry_terms(pb, index);
  const auto& [ad, ah, aw] = pb.axis;
  const auto& [t, r, s] = at.tap;
  std::vector<Term> terms;
  for (std::int64_t i = 0; i < pb.N * ad.out * ah.out * aw.out; ++i) {
    const std::int64_t q = i % aw.out, p = i / aw.out % ah.out, z = i / aw.out / ah.out % ad.out;
    const std::int64_t n = i / aw.out / ah.out / ad.out;
    const std::int64_t d = z * ad.stride - ad.pad_before + t * ad.dilation;
    const std::int64_t h = p * ah.stride - ah.pad_before + r * ah.dilation;
    const std::int64_t w = q * aw.stride - aw.pad_before + s * aw.dilation;
    if (d < 0 || d >= ad.in || h < 0 || h >= ah.in || w < 0 || w >= aw.in) continue;
    const std::int64_t from = (((n * ad.in + d) * ah.in + h) * aw.in + w) * pb.C + at.x_channel;
    terms.push_back({n, z, p, q, 1.0 * x[from] * dy[i * pb.K + at.dy_channel]});
  }
  return terms;
}

using Number = std::function<std::int64_t(const Term&)>;

// A third of the mean square of the sums of parts.
double apart(const std::vector<Term>& terms, std::int64_t parts, const Number& part) {
  std::vector<double> sums(static_cast<std::size_t>(parts));
  for (const Term& t : terms) sums[static_cast<std::size_t>(part(t))] += t.value;
  return std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0) / 3 /
         static_cast<double>(parts);
}

// The mean square of a sum as it grows from part to part.
double walk(const std::vector<Term>& terms, std::int64_t parts, const Number& part) {
  std::vector<double> sums(static_cast<std::size_t>(parts));
  for (const Term& t : terms) sums[static_cast<std::size_t>(part(t))] += t.value;
  double sum = 0, squares = 0;
  for (const double each : sums) {
    squares += sum * sum + sum * each + each * each / 3;  // the integral of (sum + t*each)^2
    sum += each;
  }
  return squares / static_cast<double>(parts);
}

std::vector<OrderWalk> walks_of(const WgradProblem& pb, const std::vector<std::int64_t>& indices,
                                const void* x, const void* dy, std::int64_t block_bytes = 0) {
  TaskPool pool(2);
  OrderSum sum(pb, pool, indices, {});
  MemorySource source(x, dy);
  sum_blocks(reference_plan(pb, block_bytes), source, sum);
  sum.finish();
  return sum.walks();
}

std::vector<std::int64_t> all_of(const WgradProblem& pb) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(pb.dw_count()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

}  // namespace

TEST_CASE("sums in other orders are those of the definition") {
  for (const ProblemSpec& spec : basic_problems()) {
    const WgradProblem pb = make(spec, DType::f32, true);
    const std::int64_t D = pb.axis[0].out, P = pb.axis[1].out, Q = pb.axis[2].out;
    if (pb.dw_count() == 0 || term_count(pb) == 0) continue;
    if (D * P * Q > 32) continue;  // parts are larger there
    CAPTURE(describe(pb));
    const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 1);
    const auto dy = filled(DType::f32, pb.dy_count(), Fill::normal, 2);
    const std::vector<OrderWalk> walks = walks_of(pb, all_of(pb), x.data(), dy.data());
    const std::vector<OrderWalk> tiled = walks_of(pb, all_of(pb), x.data(), dy.data(), 1);
    for (std::size_t i = 0; i < walks.size(); ++i) {
      const std::vector<Term> terms =
          terms_of(pb, static_cast<std::int64_t>(i), reinterpret_cast<const float*>(x.data()),
                   reinterpret_cast<const float*>(dy.data()));
      const auto place = [&](const Term& t) { return (t.z * P + t.p) * Q + t.q; };
      const auto pixel = [&](const Term& t) { return t.n * D * P * Q + place(t); };
      std::vector<double> wide = {walk(terms, D * P * Q, place),
                                  walk(terms, P, [](const Term& t) { return t.p; }),
                                  walk(terms, Q, [](const Term& t) { return t.q; }),
                                  walk(terms, D, [](const Term& t) { return t.z; })};
      std::vector<Term> even, odd;
      for (const Term& t : terms) (t.n % 2 == 0 ? even : odd).push_back(t);
      wide.push_back((walk(even, D * P * Q, place) + walk(odd, D * P * Q, place)) / 2);
      for (const std::int64_t m : {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32}) {
        const std::pair<std::int64_t, Number> turns[] = {
            {pb.N, [](const Term& t) { return t.n; }},
            {pb.N * D * P, [&](const Term& t) { return (t.n * D + t.z) * P + t.p; }},
            {pb.N * D * P * Q, pixel},
            {Q, [](const Term& t) { return t.q; }}};
        for (const auto& each : turns) {
          if (m > each.first) continue;
          wide.push_back(apart(terms, m, [&](const Term& t) { return each.second(t) % m; }));
        }
        for (const std::int64_t run : {8, 16, 32}) {
          if (!std::has_single_bit(static_cast<std::uint64_t>(m)) ||
              m * run > std::min<std::int64_t>(256, pb.N * D * P * Q))
            continue;
          wide.push_back(apart(terms, m, [&](const Term& t) { return pixel(t) / run % m; }));
        }
        if ((m == 2 || m == 16) && m <= D * P * Q) {
          wide.push_back(
              apart(terms, m, [&](const Term& t) { return place(t) * m / (D * P * Q); }));
        }
      }
      for (std::size_t axes = 0; axes < 16; ++axes) {
        if (std::popcount(axes) < 2) continue;
        wide.push_back(apart(terms, 16,
                             [&](const Term& t) {
                               return static_cast<std::int64_t>(axes) &
                                      (t.n % 2 + t.z % 2 * 2 + t.p % 2 * 4 + t.q % 2 * 8);
                             }) *
                       16 / (1 << std::popcount(axes)));
      }
      for (const auto& [a, b] : {std::pair(2, 4), {4, 2}, {4, 4}}) {
        wide.push_back(
            apart(terms, a * b, [r = a, c = b](const Term& t) { return t.p % r * c + t.q % c; }));
      }
      const double widest = *std::max_element(wide.begin(), wide.end());
      CHECK(walks[i].walk == doctest::Approx(widest).epsilon(.1));
      CHECK(tiled[i].walk == doctest::Approx(widest).epsilon(.1));
      CHECK(walks[i].terms ==
            std::count_if(terms.begin(), terms.end(), [](const Term& t) { return t.value != 0; }));
    }
  }
}

TEST_CASE("the widest order is named, and terms that are alike") {
  const WgradProblem pb = make({"1x1", "conv2d", 64, 2, 9, 1, {{6, 1}, {6, 1}}}, DType::f32, true);
  const auto count = static_cast<std::size_t>(pb.N * 36);
  std::vector<float> x(count * 2, 1.0F), dy(count * 9);
  bool alike = false;
  const auto named =
      [&](const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& sign) {
        for (std::size_t i = 0; i < dy.size(); ++i) {
          const auto pixel = static_cast<std::int64_t>(i / 9);
          dy[i] = sign(pixel / 36, pixel / 6 % 6, pixel % 6) ? 1.0F : -1.0F;
        }
        const OrderWalk walk = walks_of(pb, {3}, x.data(), dy.data())[0];
        alike = walk.alike;
        return order_text(walk.order);
      };
  using Place = std::int64_t;
  CHECK(named([](Place n, Place, Place) { return n % 2 == 0; }) ==
        "that takes even and odd images apart");
  CHECK(named([](Place n, Place, Place) { return n / 2 % 2 == 0; }) ==
        "that takes images in 4 turns");
  CHECK(named([](Place, Place, Place q) { return q % 2 == 0; }) ==
        "that takes even and odd pixels apart");
  CHECK(named([](Place n, Place, Place) { return n % 3 == 0; }) == "that takes images in 3 turns");
  CHECK(named([](Place, Place p, Place q) { return (p + q) % 2 == 0; }) ==
        "that takes even and odd rows and columns apart at once");
  CHECK_FALSE(alike);
  CHECK(named([](Place, Place, Place q) { return q < 3; }) == "with the columns outermost");
  CHECK(named([](Place, Place p, Place) { return p < 3; }) ==
        "that takes the halves of each image apart");
  CHECK(alike);
}
