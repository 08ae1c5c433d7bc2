// order_walk_test.cpp - how large sums grow in other orders, against loops over each entry's terms.
#include "check/order_walk.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
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

void sum_of(const WgradProblem& pb, const void* x, const void* dy, BlockSum& sum,
            std::int64_t block_bytes = 0) {
  MemorySource source(x, dy);
  sum_blocks(reference_plan(pb, block_bytes), source, sum);
  sum.finish();
}

std::vector<OrderWalk> walks_of(const WgradProblem& pb, const std::vector<std::int64_t>& indices,
                                const std::vector<Wave>& waves, const void* x, const void* dy,
                                std::int64_t block_bytes = 0, const Summation& summation = {}) {
  TaskPool pool(2);
  WaveSum sum(pb, pool, indices, waves, summation);
  sum_of(pb, x, dy, sum, block_bytes);
  return sum.walks();
}

std::vector<Wave> waves_of(const WgradProblem& pb, const std::vector<std::int64_t>& indices,
                           const void* x, const void* dy,
                           std::int64_t memory = std::int64_t{1} << 30) {
  TaskPool pool(2);
  TermLayout layout(pb, pool, indices, memory);
  sum_of(pb, x, dy, layout);
  return layout.waves();
}

std::vector<std::int64_t> all_of(const WgradProblem& pb) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(pb.dw_count()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The mean square of a sum on its way, of terms sorted by a key, in the order n, z, p, q otherwise.
double walk_by(std::vector<Term> terms, const std::function<double(const Term&)>& key) {
  std::ranges::stable_sort(terms, {}, key);
  double sum = 0, squares = 0;
  for (const Term& t : terms) {
    sum += t.value;
    squares += sum * sum;
  }
  return squares / static_cast<double>(terms.size());
}

}  // namespace

TEST_CASE("sums over waves are those of the definition") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    const WgradProblem pb = make(spec, DType::f32, true);
    if (thinned.skips() || pb.dw_count() == 0 || term_count(pb) == 0) continue;
    CAPTURE(describe(pb));
    const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 1);
    const auto dy = filled(DType::f32, pb.dy_count(), Fill::normal, 2);
    // Some of the entries, of every tap and channel: the loops over their terms take the time.
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < pb.dw_count(); i += 1 + pb.dw_count() / 64) indices.push_back(i);
    for (const Wave& wave : {Wave{.5, 0, .25, 1.0 / 3}, Wave{0, .2, .7, .01}, Wave{}}) {
      const std::vector<OrderWalk> walks = walks_of(pb, indices, {wave}, x.data(), dy.data());
      const std::vector<OrderWalk> tiled = walks_of(pb, indices, {wave}, x.data(), dy.data(), 1);
      const std::vector<OrderWalk> all = walks_of(pb, {}, {wave}, x.data(), dy.data());
      for (std::size_t i = 0; i < walks.size(); ++i) {
        const std::vector<Term> terms =
            terms_of(pb, indices[i], reinterpret_cast<const float*>(x.data()),
                     reinterpret_cast<const float*>(dy.data()));
        std::complex<double> sum = 0;
        for (const Term& t : terms) {
          const double turns =
              wave[0] * static_cast<double>(t.n) + wave[1] * static_cast<double>(t.z) +
              wave[2] * static_cast<double>(t.p) + wave[3] * static_cast<double>(t.q);
          sum += std::polar(t.value, -2 * std::numbers::pi * turns);
        }
        CHECK(walks[i].walk == doctest::Approx(std::norm(sum) / (wave == Wave{} ? 3 : 4)));
        CHECK(tiled[i].walk == doctest::Approx(walks[i].walk));
        const OrderWalk& same = all[static_cast<std::size_t>(indices[i])];
        CHECK(same.walk == doctest::Approx(walks[i].walk));
        CHECK(same.terms == walks[i].terms);
        CHECK(walks[i].terms ==
              std::ranges::count_if(terms, [](const Term& t) { return t.value != 0; }));
      }
    }
  }
}

TEST_CASE("waves are found by which an order walks far, whichever that is") {
  const WgradProblem pb =
      make({"1x1", "conv2d", 30, 1, 2, 1, {{16, 1}, {16, 1}}}, DType::f32, true);
  const auto count = static_cast<std::size_t>(pb.dy_count());
  const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 3);
  std::vector<float> positive(reinterpret_cast<const float*>(x.data()),
                              reinterpret_cast<const float*>(x.data()) + pb.x_count());
  for (float& value : positive) value = std::fabs(value);
  using Sign = std::function<bool(const Term&)>;
  using Key = std::function<double(const Term&)>;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const auto morton = [=](const Term& t) {  // the bits of p and q in turns
    std::int64_t place = 0;
    for (int bit = 0; bit < 4; ++bit) {
      place += (t.p >> bit & 1) << (2 * bit + 1) | (t.q >> bit & 1) << 2 * bit;
    }
    return number(place);
  };
  const std::pair<Sign, Key> orders[] = {
      {[](const Term& t) { return t.n % 2 == 0; }, [=](const Term& t) { return number(t.n % 2); }},
      {[](const Term& t) { return t.n % 3 == 0; }, [=](const Term& t) { return number(t.n % 3); }},
      {[](const Term& t) { return t.q % 5 < 2; }, [=](const Term& t) { return number(t.q % 5); }},
      {[](const Term& t) { return (t.p + t.q) % 3 == 0; },
       [=](const Term& t) { return number((t.p + t.q) % 3); }},
      {[](const Term& t) { return (t.p < 8) == (t.q < 8); },
       [=](const Term& t) { return number(t.p / 8 * 2 + t.q / 8); }},  // tiles
      {[](const Term& t) { return t.p < 8; }, [=](const Term& t) { return number(t.p); }},
      {[](const Term& t) { return t.p + t.q < 16; },
       [=](const Term& t) { return number(t.p + t.q); }},  // a wavefront
      {[](const Term& t) { return t.n < 15; }, [=](const Term& t) { return number(t.n); }},
      {[](const Term& t) { return t.q % 13 < 7; }, [=](const Term& t) { return number(t.q % 13); }},
      {[](const Term& t) { return (t.p % 3 + t.q % 3) % 2 != 0; },
       [=](const Term& t) { return number(t.p % 3 * 3 + t.q % 3); }},
      {[](const Term& t) { return (t.p < 8) == (t.q < 8); }, morton}};
  for (const auto& order : orders) {
    std::vector<float> dy(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto pixel = static_cast<std::int64_t>(i / 2);
      dy[i] = order.first({pixel / 256, 0, pixel / 16 % 16, pixel % 16, 0}) ? 1.0F : -1.0F;
    }
    const std::vector<Wave> waves = waves_of(pb, {0, 1}, positive.data(), dy.data());
    const std::vector<Term> terms = terms_of(pb, 1, positive.data(), dy.data());
    const double walk = walks_of(pb, {1}, waves, positive.data(), dy.data())[0].walk;
    const double in_order = walk_by(terms, order.second);
    CAPTURE(&order - orders);
    CHECK(walk > in_order / 4);  // half of what its errors are, of which three times pass
    CHECK(walk < 40 * in_order);
  }
}

TEST_CASE("terms without a pattern have no wave") {
  const WgradProblem pb = make({"3x3", "conv2d", 9, 3, 4, 1, {{17, 3}, {13, 3}}}, DType::f32, true);
  const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 1);
  const auto dy = filled(DType::f32, pb.dy_count(), Fill::normal, 2);
  CHECK(waves_of(pb, all_of(pb), x.data(), dy.data()).empty());
}

TEST_CASE("turns and bands are found where pixels are more than a layout holds") {
  const WgradProblem pb =
      make({"1x1", "conv2d", 700000, 1, 1, 1, {{2, 1}, {3, 1}}}, DType::f32, true);
  const std::vector<float> x(static_cast<std::size_t>(pb.x_count()), 1.0F);
  for (const std::int64_t period : {std::int64_t{3}, std::int64_t{700000}}) {
    std::vector<float> dy(static_cast<std::size_t>(pb.dy_count()));
    double part = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const bool first = 3 * (static_cast<std::int64_t>(i / 6) % period) < period;
      dy[i] = first ? 2.0F : -1.0F;
      part += first ? 2 : 0;
    }
    for (const std::int64_t memory : {std::int64_t{1} << 30, std::int64_t{16} << 20}) {
      const std::vector<Wave> waves = waves_of(pb, {0}, x.data(), dy.data(), memory);
      CHECK(walks_of(pb, {0}, waves, x.data(), dy.data())[0].walk > part * part / 12);
    }
  }
}

TEST_CASE("sums that are restarted walk less far, and terms that are alike are known") {
  const WgradProblem pb = make({"1x1", "conv2d", 64, 1, 1, 1, {{6, 1}, {6, 1}}}, DType::f32, true);
  std::vector<float> x(static_cast<std::size_t>(pb.x_count()), 1.0F), dy(x.size(), 1.0F);
  const auto walk = [&](std::int64_t longest) {
    return walks_of(pb, {0}, {Wave{}}, x.data(), dy.data(), 0, {longest})[0];
  };
  CHECK(walk(0).walk == 2304.0 * 2304 / 3);
  CHECK(walk(576).walk == 576.0 * 576 / 3);
  // All are alike, then columns, then neither rows nor columns.
  for (const std::size_t period : {1u, 6u, 5u}) {
    for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = 1 + static_cast<float>(i % period);
    TaskPool pool(2);
    TermLayout layout(pb, pool, {0}, std::int64_t{1} << 30);
    sum_of(pb, x.data(), dy.data(), layout);
    CHECK(layout.are_alike() == (period != 5));
  }
}
