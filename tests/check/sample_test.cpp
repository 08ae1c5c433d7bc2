// sample_test.cpp - which elements are chosen, and that their sums are the reference's to the bit.
#include "check/sample.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("all sampled sums are those of the reference, to the bit") {
  constexpr DType kSome[] = {DType::f16, DType::f32, DType::f64};
  const auto check = [](const WgradProblem& pb, const auto& x, const auto& dy) {
    const Expected want = reference_of(pb, x.data(), dy.data());
    const Sample sample = choose_entries(pb, 200, 7);
    // Whole tensors at once, and blocks of a part of a row.
    for (const std::int64_t block_bytes : {std::int64_t{0}, std::int64_t{1}}) {
      TaskPool pool(3);
      SampledSum sum(pb, pool, sample.indices, kOwnSums);
      MemorySource source(x.data(), dy.data());
      sum_blocks(reference_plan(pb, block_bytes), source, sum);
      sum.finish();
      bool same = true;
      for (std::size_t i = 0; i < sample.indices.size(); ++i) {
        const auto at = static_cast<std::size_t>(sample.indices[i]);
        const Expected& got = sum.expected();
        same = same && got.values[i] == want.values[at] &&
               got.magnitudes[i] == doctest::Approx(want.magnitudes[at]).epsilon(1e-12) &&
               got.limits[i] == doctest::Approx(want.limits[at]).epsilon(1e-12);
      }
      CHECK(same);
    }
  };
  for_each_case(basic_problems(), kSome, Fill::normal, check, kThin);
}

TEST_CASE("the corners are always there") {
  const WgradProblem flat = make({"3x2", "conv2d", 1, 4, 5, 1, {{5, 3}, {5, 2}}}, DType::f32, true);
  for (const std::int64_t wanted : {1, 16, 40}) {
    const Sample sample = choose_entries(flat, wanted, 3);
    CHECK(sample.corners == 16);
    CHECK(static_cast<std::int64_t>(sample.indices.size()) == std::max<std::int64_t>(wanted, 16));
    for (const std::int64_t tap : {0, 1, 4, 5})  // rows and columns 0 and the last
      for (const std::int64_t c : {0, 3})
        for (const std::int64_t k : {0, 4}) {
          const std::int64_t corner = (tap * 4 + c) * 5 + k;
          CHECK(std::count(sample.indices.begin(), sample.indices.end(), corner) == 1);
        }
  }
  const WgradProblem deep =
      make({"2x2x2", "conv3d", 1, 2, 3, 1, {{4, 2}, {4, 2}, {4, 2}}}, DType::f32, true);
  CHECK(choose_entries(deep, 1, 1).corners == 32);
  const WgradProblem point =
      make({"1x1", "conv2d", 1, 1, 1, 1, {{4, 1}, {4, 1}}}, DType::f32, true);
  CHECK(choose_entries(point, 100, 1).indices == std::vector<std::int64_t>{0});
}

TEST_CASE("the rest is drawn without repeats, by the seed alone") {
  const WgradProblem pb = make({"3x3", "conv2d", 1, 16, 20, 1, {{5, 3}, {5, 3}}}, DType::f32, true);
  const std::int64_t count = pb.dw_count();
  for (const std::int64_t wanted :
       {17L, 100L, count / 2, count / 2 + 1, count - 1, count, 5 * count}) {
    CAPTURE(wanted);
    const Sample sample = choose_entries(pb, wanted, 11);
    CHECK(static_cast<std::int64_t>(sample.indices.size()) == std::min(wanted, count));
    CHECK(std::is_sorted(sample.indices.begin(), sample.indices.end()));
    CHECK(std::set<std::int64_t>(sample.indices.begin(), sample.indices.end()).size() ==
          sample.indices.size());
    CHECK(sample.indices.front() == 0);
    CHECK(sample.indices.back() == count - 1);
    CHECK(choose_entries(pb, wanted, 11).indices == sample.indices);
    if (wanted < count) CHECK(choose_entries(pb, wanted, 12).indices != sample.indices);
  }
}

TEST_CASE("neighbours are in few lines of memory, with the corners and all taps") {
  for (WgradProblem pb :
       {make({"3x3", "conv2d", 1, 256, 512, 1, {{5, 3}, {5, 3}}}, DType::f32, true),
        make({"grouped", "conv2d", 1, 128, 128, 32, {{5, 3}, {5, 3}}}, DType::bf16, true),
        make({"depthwise", "depthwise", 1, 144, 288, 144, {{5, 3}, {5, 3}}}, DType::f64, true),
        make({"thin", "conv2d", 1, 6, 3, 1, {{9, 7}, {9, 7}}}, DType::f32, true),
        make({"1x1", "conv2d", 1, 64, 256, 1, {{5, 1}, {5, 1}}}, DType::f32, true),
        make({"3-D", "conv3d", 1, 64, 64, 1, {{5, 3}, {5, 3}, {5, 3}}}, DType::f16, true)}) {
    const Sample corners = choose_entries(pb, 0, 1);
    CHECK(choose_neighbours(pb, 0) == corners.indices);
    const std::vector<std::int64_t> indices = choose_neighbours(pb, 16);
    CHECK(std::ranges::adjacent_find(indices, std::greater_equal<>{}) == indices.end());
    CHECK(std::ranges::includes(indices, corners.indices));
    CHECK(std::ssize(indices) >= corners.corners + 16);
    std::set<std::int64_t> taps, x_lines, dy_lines;
    for (const std::int64_t index : indices) {
      const EntryTerms terms = entry_terms(pb, index);
      taps.insert(index / pb.K / pb.group_c());
      x_lines.insert(terms.x_channel * dtype_bytes(pb.dtype) / 64);
      dy_lines.insert(terms.dy_channel * dtype_bytes(pb.dtype) / 64);
    }
    CHECK(std::ssize(taps) >= std::min<std::int64_t>(pb.taps(), 16));
    CHECK(x_lines.size() <= 4);
    CHECK(dy_lines.size() <= 4);
    CHECK(choose_neighbours(pb, 16) == indices);
    ++pb.N;
    CHECK(choose_neighbours(pb, 16) != indices);
    CHECK(std::ssize(choose_neighbours(pb, 500)) >= std::min(pb.dw_count(), 500 + corners.corners));
  }
}
