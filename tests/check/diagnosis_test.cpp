// diagnosis_test.cpp - parts of the diagnosis; tests/cli/test_diagnosis.py has whole gradients.
#include "check/diagnosis.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <set>
#include <utility>

#include "check/diagnosis/faults.hpp"
#include "support/problems.hpp"
#include "support/sanitized.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::diagnosis;
using namespace convgrad::testing;

namespace {

struct Case {
  explicit Case(const WgradProblem& problem)
      : pb(problem),
        x(filled(pb.dtype, pb.x_count(), Fill::normal, 1)),
        dy(filled(pb.dtype, pb.dy_count(), Fill::normal, 2)),
        reference(reference_of(pb, x.data(), dy.data())) {}

  Diagnosis diagnose_values(const std::vector<double>& got, int threads = 2,
                            std::int64_t block_bytes = 1 << 20, double budget = 1e9) const {
    TaskPool pool(threads);
    MemorySource source(x.data(), dy.data());
    const Suspect suspect = {pb, {}, got, reference};
    return convgrad::diagnose(suspect, {image_plan(pb, block_bytes), source, pool}, budget);
  }

  WgradProblem pb;
  std::vector<std::byte> x, dy;
  Expected reference;
};

// What a fault makes of the gradient.
std::vector<double> faulty_values(const Case& c, const Fault& fault,
                                  std::int64_t block_bytes = 1 << 20) {
  TaskPool pool(2);
  MemorySource source(c.x.data(), c.dy.data());
  std::vector<Wanted> wanted;
  for (std::int64_t i = 0; i < c.pb.dw_count(); ++i) {
    wanted.push_back({&fault.reading, fault.terms(c.pb, i)});
  }
  std::vector<EntrySum> sums =
      sums_of(wanted, {image_plan(c.pb, block_bytes), source, pool}, false);
  std::vector<double> values;
  for (const double value : expected_of(c.pb, {}, sums).values) {
    values.push_back(rounded(c.pb.out_dtype, value));
  }
  return values;
}

}  // namespace

TEST_CASE("every known fault is found from the gradient that it makes") {
  const ProblemSpec specs[] = {{"grouped", "conv2d", 2, 6, 9, 3, {{8, 3, 2}, {7, 2, 1, 2}}},
                               {"depthwise", "depthwise", 2, 3, 6, 3, {{8, 3, 2}, {7, 2}}},
                               {"3-D", "conv3d", 2, 2, 3, 1, {{4, 2}, {5, 3, 2}, {6, 2, 1, 2}}}};
  for (const ProblemSpec& spec : specs) {
    const Case c(make(spec, DType::f32, &spec != &specs[1]));  // channels last, and first
    CAPTURE(describe(c.pb));
    int found = 0;
    Thinned thinned;
    for (const Fault& e : known_faults(c.pb)) {
      if (thinned.skips()) continue;
      CAPTURE(e.text);
      const std::vector<double> values = faulty_values(c, e);
      const Comparison comparison =
          compare_gradients(c.pb, DType::f32, {}, values, c.reference, {});
      if (comparison.match()) continue;  // it changes nothing here
      const Diagnosis diagnosis = c.diagnose_values(values);
      REQUIRE_FALSE(diagnosis.findings.empty());
      for (const Finding& f : diagnosis.findings) {
        CHECK(f.certainty == Certainty::match);
        CHECK(f.checked == c.pb.dw_count());
        found += f.text == e.text ? 1 : 0;
      }
    }
    CHECK(found > (kThin > 1 ? 2 : 20));
  }
}

TEST_CASE("threads and blocks change nothing; a small budget leaves faults untried") {
  const Case c(make({"3x3", "conv2d", 5, 4, 6, 1, {{9, 3}, {8, 3}}}, DType::f32, true));
  Fault shifted;
  for (const Fault& e : known_faults(c.pb)) {
    if (e.name == "padding_off_by_one") shifted = e;
  }
  const std::vector<double> values = faulty_values(c, shifted);
  const Diagnosis want = c.diagnose_values(values);
  REQUIRE(want.findings.size() == 1);
  CHECK(want.findings[0].text == shifted.text);
  CHECK(want.untried == 0);
  for (const auto& [threads, block_bytes] : {std::pair{1, 1}, {3, 2000}}) {
    const Diagnosis got = c.diagnose_values(values, threads, block_bytes);
    REQUIRE(got.findings.size() == 1);
    CHECK(got.findings[0].text == shifted.text);
    CHECK(got.tried == want.tried);
  }
  const Diagnosis poor = c.diagnose_values(values, 2, 1 << 20, 1000);
  CHECK(poor.untried > 0);
  CHECK(poor.findings.empty());
  // Some money buys a first look at everything.
  const double terms = static_cast<double>(term_count(c.pb));
  const Diagnosis thrifty = c.diagnose_values(values, 2, 1 << 20, 2500 * terms);
  REQUIRE(thrifty.findings.size() == 1);
  CHECK(thrifty.findings[0].text == shifted.text);
}

TEST_CASE("images are read from the blocks that hold them") {
  for (const bool last : {true, false}) {
    const Case c(make({"3x3", "conv2d", 5, 4, 6, 1, {{7, 3}, {6, 3}}}, DType::f32, last));
    Thinned thinned;
    for (const Fault& e : known_faults(c.pb)) {
      if (thinned.skips()) continue;
      CAPTURE(e.text);
      CHECK(faulty_values(c, e, 1) == faulty_values(c, e));
    }
  }
}

TEST_CASE("a slight error of one element among thousands is told its place") {
  const Case c(make({"3x3", "conv2d", 1, 16, 16, 1, {{6, 3}, {6, 3}}}, DType::f32, true));
  std::vector<double> values = c.reference.values;
  values[4 * 16 * 16 + 3 * 16 + 5] += 40 * c.reference.scales[4 * 16 * 16 + 3 * 16 + 5];
  CHECK(c.diagnose_values(values, 2, 1 << 20, 1e8).where == "the element r 1, s 1, c 3, k 5");
}

// Whole numbers repeat by chance: where a few elements are wrong, many parts of the sum have that.
TEST_CASE("a few wrong elements of whole numbers have no fault's name") {
  Case c(make({"3x3", "conv2d", 2, 2, 3, 1, {{10, 3}, {12, 3}}}, DType::f32, true));
  c.x = filled(DType::f32, c.pb.x_count(), Fill::small_integers, 1);
  c.dy = filled(DType::f32, c.pb.dy_count(), Fill::small_integers, 2);
  c.reference = reference_of(c.pb, c.x.data(), c.dy.data());
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::vector<double> values = c.reference.values;
    for (int j = 0; j < 4; ++j) {
      values[random() % values.size()] += 1 + static_cast<double>(random() % 12);
    }
    CHECK(c.diagnose_values(values).findings.empty());
  }
}

// Of positive numbers all elements lose about the same part, as by many ranges of pixels.
TEST_CASE("scattered pixels are no range of pixels, where all elements tell the same") {
  Case c(make({"3x3", "conv2d", 2, 1, 1, 1, {{64, 3}, {64, 3}}}, DType::bf16, true));
  c.pb.out_dtype = DType::f32;
  std::mt19937 random(6);
  std::vector<double> x, dy;
  for (std::int64_t i = 0; i < c.pb.x_count(); ++i) {
    x.push_back(static_cast<double>(random() % 256) / 256);
    dy.push_back(static_cast<double>(random() % 256) / 256);
  }
  c.x = tensor_of(DType::bf16, x);
  c.dy = tensor_of(DType::bf16, dy);
  c.reference = reference_of(c.pb, c.x.data(), c.dy.data(), 2, {});
  for (int i = 0; i < 20; ++i) dy[random() % dy.size()] = 0;
  const std::vector<double> got =
      reference_of(c.pb, c.x.data(), tensor_of(DType::bf16, dy).data()).values;
  const std::vector<Finding> found = c.diagnose_values(got).findings;
  CHECK(std::ranges::count(found, "missing_pixels", &Finding::fault) == 0);
}

TEST_CASE("where all of a gradient is 0, a fault has its name") {
  Case c(make({"1x1", "conv2d", 2, 2, 2, 1, {{6, 1}, {6, 1}}}, DType::f32, true));
  std::vector<double> x, dy;
  for (std::int64_t i = 0; i < c.pb.x_count(); ++i) {
    x.push_back(1);
    dy.push_back(2 * i < c.pb.dy_count() ? 1 : -1);
  }
  c.x = tensor_of(DType::f32, x);
  c.dy = tensor_of(DType::f32, dy);
  c.reference = reference_of(c.pb, c.x.data(), c.dy.data());
  CHECK_FALSE(c.diagnose_values({36, 36, 36, 36}).findings.empty());  // image 1 is left out
}

TEST_CASE("what was not checked is off by no more than what was") {
  const Case c(make({"3x3", "conv2d", 2, 8, 32, 1, {{10, 3}, {10, 3}}}, DType::bf16, true));
  TaskPool pool(2);
  MemorySource source(c.x.data(), c.dy.data());
  const Images images = {image_plan(c.pb, 1 << 20), source, pool};
  std::vector<EntryTerms> entries;
  for (std::int64_t i = 0; i < c.pb.dw_count(); ++i) entries.push_back(entry_terms(c.pb, i));
  std::vector<double> values;
  for (const Terms& terms : terms_of(entries, images)) {
    double sum = 0;
    for (std::size_t i = 0; i < terms.x.size(); ++i) {
      sum = rounded(DType::bf16, sum + rounded(DType::bf16, terms.x[i] * terms.dy[i]));
    }
    values.push_back(sum);
  }
  const auto covers_all = [&] {
    const Diagnosis found = c.diagnose_values(values);
    REQUIRE_FALSE(found.findings.empty());
    CHECK(found.findings[0].fault == "low_precision_sums");
    CHECK(found.findings[0].checked < c.pb.dw_count());
    return found.findings[0].covers_all;
  };
  CHECK(covers_all());
  const double right = std::exchange(values[77], NAN);
  CHECK_FALSE(covers_all());
  values[77] = 1e6;
  CHECK_FALSE(covers_all());
  values[77] = right;
  for (const std::size_t at : {100u, 700u, 1500u, 2000u}) values[at] *= 1.5;
  CHECK_FALSE(covers_all());
}

TEST_CASE("orders of the filter's axes") {
  const WgradProblem pb = make({"3x2", "conv2d", 1, 4, 5, 1, {{5, 3}, {5, 2}}}, DType::f32, true);
  CHECK(own_order(pb).name == "HWIO");
  const std::vector<AxisOrder> orders = other_orders(pb);
  CHECK(orders.size() == 23);  // 4! but its own
  CHECK(orders[0].name == "OIHW");
  CHECK(orders[1].name == "OHWI");
  std::set<std::vector<std::int64_t>> maps;
  for (const AxisOrder& order : orders) {
    std::vector<std::int64_t> map;
    for (std::int64_t i = 0; i < pb.dw_count(); ++i) {
      map.push_back(order.index(i));
      REQUIRE(order.position(order.index(i)) == i);
    }
    maps.insert(map);
  }
  CHECK(maps.size() == 23);
  // k, c, r, s: the element at [k=1, c=2, r=0, s=1] of an OIHW file.
  const std::int64_t position = ((1 * 4 + 2) * 3 + 0) * 2 + 1;
  CHECK(orders[0].index(position) == (1 * 4 + 2) * 5 + 1);  // tap 1, c 2, k 1
  const WgradProblem deep =
      make({"2x2x2", "conv3d", 1, 2, 3, 1, {{4, 2}, {4, 2}, {4, 2}}}, DType::f32, true, "OIDHW");
  CHECK(own_order(deep).name == "OIDHW");
  CHECK(other_orders(deep).size() == 119);
  const WgradProblem wide =
      make({"1x1", "conv2d", 1, 32, 16, 1, {{5, 1}, {5, 1}}}, DType::f32, true);
  const AxisOrder blocked = other_orders(wide).back();
  CHECK(blocked.name == "OIhw4i16o4i");
  // c 16 + 2*4 + 1, k 5: the second of two blocks of c.
  CHECK(blocked.index(1 * 16 * 16 + 2 * 16 * 4 + 5 * 4 + 1) == 25 * 16 + 5);
  // Axes of extent 1 have no place.
  const WgradProblem point =
      make({"1x1", "conv2d", 1, 4, 5, 1, {{5, 1}, {5, 1}}}, DType::f32, true);
  CHECK(other_orders(point).size() == 1);
  const WgradProblem depthwise =
      make({"3x1", "depthwise", 1, 3, 6, 3, {{5, 3}, {5, 1}}}, DType::f32, true);
  CHECK(own_order(depthwise).name == "HWCM");
  CHECK(other_orders(depthwise).size() == 5);
}

TEST_CASE("values of lower precision") {
  const auto round = [](Treatment treatment, double value) {
    return treated(treatment, DType::f32, value);
  };
  CHECK(round(Treatment::none, 1 + 0x1p-40) == 1 + 0x1p-40);
  CHECK(round(Treatment::f32, 1 + 0x1p-40) == 1);
  CHECK(round(Treatment::tf32, 1 + 0x1p-11) == 1 + 0x1p-10);  // ties away from zero
  CHECK(round(Treatment::tf32, -1 - 0x1p-11) == -1 - 0x1p-10);
  CHECK(round(Treatment::tf32_cut, 1 + 0x1.8p-10) == 1 + 0x1p-10);
  CHECK(round(Treatment::f16, 1 + 0x1p-12) == 1);
  CHECK(round(Treatment::bf16, 1 + 0x1p-7) == 1 + 0x1p-7);
  CHECK(round(Treatment::bf16, 1 + 0x1p-9) == 1);
  CHECK(round(Treatment::bf16_cut, 1 + 0x1.8p-7) == 1 + 0x1p-7);
  CHECK(round(Treatment::flushed, 0x1p-127) == 0);
  CHECK(round(Treatment::flushed, 0x1p-126) == 0x1p-126);
  CHECK(round(Treatment::relu, -1) == 0);
  CHECK(round(Treatment::tf32_even, 1 + 0x1p-11) == 1);
  CHECK(round(Treatment::tf32_even, 1 + 0x1.8p-10) == 1 + 0x1p-9);
  CHECK(round(Treatment::f16_cut, 0x1.ffcp-15) == 0x1.ff8p-15);  // subnormal
  CHECK(round(Treatment::f16_cut, 1e6) == 65504);
  CHECK(round(Treatment::e4m3, 17) == 16);
  CHECK(round(Treatment::e4m3, -1000) == -448);
  CHECK(round(Treatment::e5m2, 0x1p-17) == 0);
  CHECK(round(Treatment::bf16_twice, 1 + 0x1p-15) == 1 + 0x1p-15);
  CHECK(round(Treatment::bf16_twice, 1 + 0x1p-20) == 1 + 0x1p-20);
  CHECK(treated(Treatment::whole, DType::f32, 3, 2) == 4);
  CHECK(treated(Treatment::e3m2, DType::f32, 0x1.4p-5, 1) == 0x1p-4);  // subnormal
  CHECK(treated(Treatment::e2m3, DType::f32, 7.9, 1) == 7.5);
  CHECK(treated(Treatment::e2m1, DType::f32, 5, 2) == 4);
}

TEST_CASE("places in words") {
  CHECK(values_text('k', 64, {5}) == "k 5");
  CHECK(values_text('k', 64, {48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63}) ==
        "k 48-63 (a whole tile of 16)");
  CHECK(values_text('k', 35, {32, 33, 34}) == "k 32-34 (the last 3 of 35, a remainder of 32)");
  CHECK(values_text('c', 32, {7, 15, 23, 31}) == "c % 8 == 7 (every 8th)");
  CHECK(values_text('c', 32, {8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}) ==
        "c % 16 in 8-15");
  CHECK(values_text('k', 12, {6, 7, 8, 9, 10, 11}, 6) == "k 6-11 (group 1)");
  CHECK(values_text('k', 40, {1, 17}) == "k 1, 17");
  const WgradProblem pb = make({"3x3", "conv2d", 1, 35, 35, 1, {{5, 3}, {5, 3}}}, DType::f32, true);
  const auto text = [&](const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& in) {
    std::vector<Marked> entries;
    for (std::int64_t i = 0; i < pb.dw_count(); ++i) {
      const bool wrong = in(i / 35 / 35, i / 35 % 35, i % 35);
      entries.push_back({i, wrong ? Mark::in : Mark::out});
    }
    return place_of(pb, entries).text;
  };
  CHECK(text([](auto tap, auto, auto k) { return tap == 5 && k / 16 == 1; }) ==
        "output channels k 16-31 (a whole tile of 16) of tap (1,2)");
  CHECK(text([](auto, auto c, auto) { return c % 8 == 7; }) ==
        "input channels c % 8 == 7 (every 8th)");
  CHECK(text([](auto tap, auto c, auto k) { return tap == 8 && c == 3 && k == 4; }) ==
        "the element r 2, s 2, c 3, k 4");
  CHECK(text([](auto tap, auto, auto k) { return (tap == 0 && k == 1) || (tap == 4 && k == 9); }) ==
        "output channel k 1 of tap (0,0), and output channel k 9 of tap (1,1)");
  CHECK(text([](auto tap, auto c, auto k) { return tap == 0 && c == k; }).substr(0, 37) ==
        "35 of 11025 elements, scattered over ");
  const auto bits = [&](const std::set<std::int64_t>& channels) {
    std::vector<Marked> entries;
    for (std::int64_t i = 0; i < pb.dw_count(); ++i) {
      entries.push_back({i, channels.count(i % 35) > 0 ? Mark::in : Mark::out});
    }
    return place_of(pb, entries).bits;
  };
  CHECK(bits({}) == 0);
  CHECK(bits({4}) == doctest::Approx(std::log2(35)));
  CHECK(bits({16, 17, 18, 19}) == doctest::Approx(std::log2(35 * 36 / 2)));
  CHECK(bits({1, 8, 15, 22, 29}) == doctest::Approx(std::log2(35 * 36 / 2)));  // k % 7 == 1
  CHECK(bits({1, 5, 7, 20, 31}) == doctest::Approx(std::log2(324632)));        // 35 choose 5
}
