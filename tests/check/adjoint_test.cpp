// adjoint_test.cpp - right gradients pass, a wrong entry of a certain size never does.
#include "check/adjoint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

struct Tensors {
  std::vector<std::byte> x, dy;
  Tensors(const WgradProblem& pb, Fill fill)
      : x(filled(pb.dtype, pb.x_count(), fill, 5)), dy(filled(pb.dtype, pb.dy_count(), fill, 6)) {}
};

ErrorModel model_of(const WgradProblem& pb) {
  return {pb.out_dtype, accumulator_dtype(pb.dtype), term_count(pb)};
}

std::unique_ptr<AdjointSum> summed(const WgradProblem& pb, const Tensors& t, TaskPool& pool,
                                   std::uint64_t seed = 1, std::int64_t block_bytes = 0) {
  PlanOptions options;
  options.backend = Backend::reference;
  options.in_memory = true;
  options.block_bytes = block_bytes;
  auto sum = std::make_unique<AdjointSum>(pb, pool, seed);
  MemorySource source(t.x.data(), t.dy.data());
  Timing timing;
  stream_blocks(
      make_plan(pb, this_machine(), options), source,
      [&](const Block& block, std::int64_t) { sum->add(block); }, timing);
  return sum;
}

std::vector<double> rounded_all(DType dtype, std::vector<double> values) {
  for (double& value : values) value = rounded(dtype, value);
  return values;
}

}  // namespace

TEST_CASE("the reference and every kernel pass") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      if (thinned.skips()) continue;
      const WgradProblem pb = make(spec, dtype, dtype != DType::bf16);
      CAPTURE(describe(pb));
      const Tensors t(pb, Fill::normal);
      TaskPool pool(2);
      const auto sum = summed(pb, t, pool);
      const Reference reference = reference_of(pb, t.x.data(), t.dy.data());
      const AdjointVerdict verdict = sum->judge(rounded_all(dtype, reference.values), model_of(pb));
      CHECK(verdict.match());
      CHECK(verdict.equalities > 0);
      for (const Kernel& kernel : kernels()) {
        if (!kernel.why_not(pb, this_machine()).empty()) continue;
        PlanOptions options;
        options.algorithm = kernel.name;
        const auto got = rounded_all(dtype, sums_of(pb, t.x.data(), t.dy.data(), options));
        CAPTURE(kernel.name);
        CHECK(sum->judge(got, model_of(pb)).match());
      }
    }
  }
}

TEST_CASE("an entry whose square overflows is wrong, and infinitely so if it is NaN") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    WgradProblem pb = make(basic_problems().front(), dtype, true);
    pb.out_dtype = DType::f64;
    const Tensors t(pb, Fill::normal);
    TaskPool pool(1);
    const auto sum = summed(pb, t, pool);
    const std::vector<double> right = reference_of(pb, t.x.data(), t.dy.data()).values;
    REQUIRE(sum->judge(right, model_of(pb)).match());
    for (const double value : {1e154, 1e200, -1e308, 1e308}) {
      for (const std::size_t count : {std::size_t{1}, right.size()}) {
        CAPTURE(value);
        std::vector<double> wrong = right;
        std::fill_n(wrong.begin(), count, value);
        const AdjointVerdict verdict = sum->judge(wrong, model_of(pb));
        CHECK_FALSE(verdict.match());
        CHECK(verdict.failures > 0);
      }
    }
    std::vector<double> wrong = right;
    wrong[0] = kNan;
    const AdjointVerdict verdict = sum->judge(wrong, model_of(pb));
    CHECK(verdict.worst_ratio == kInf);
    CHECK(verdict.worst.tap == 0);
    CHECK(verdict.taps[0].max_ratio == kInf);
    CHECK(verdict.taps[0].max_error == kInf);
    wrong[0] = 1e200;
    CHECK(sum->judge(wrong, model_of(pb)).rms_entry ==
          doctest::Approx(1e200 / std::sqrt(static_cast<double>(right.size()))));
  }
}

TEST_CASE("on integers both sides are equal") {
  for (const ProblemSpec& spec : basic_problems()) {
    const WgradProblem pb = make(spec, DType::f32, true);
    CAPTURE(describe(pb));
    const Tensors t(pb, Fill::small_integers);
    TaskPool pool(2);
    const Reference reference = reference_of(pb, t.x.data(), t.dy.data());
    const AdjointVerdict verdict = summed(pb, t, pool)->judge(reference.values, model_of(pb));
    CHECK(verdict.worst_ratio == 0);
    CHECK(verdict.match());
  }
}

TEST_CASE("threads and blocks change nothing") {
  for (const char* op : {"conv2d", "depthwise"}) {
    const bool deep = std::string(op) == "depthwise";
    const WgradProblem pb =
        make({"3x3", op, 3, 6, 12, deep ? 6 : 2, {{11, 3, 2}, {9, 3}}}, DType::f32, true);
    const Tensors t(pb, Fill::normal);
    const Reference reference = reference_of(pb, t.x.data(), t.dy.data());
    TaskPool one(1);
    const AdjointVerdict want = summed(pb, t, one)->judge(reference.values, model_of(pb));
    CHECK(want.worst_ratio > 0);
    for (const std::int64_t block_bytes : {0, 1, 5000}) {
      TaskPool pool(3);
      const AdjointVerdict got =
          summed(pb, t, pool, 1, block_bytes)->judge(reference.values, model_of(pb));
      CHECK(got.worst_ratio == want.worst_ratio);
      CHECK(got.worst.right == want.worst.right);
      CHECK(got.certain_error == want.certain_error);
    }
  }
}

TEST_CASE("one wrong entry is found for certain, and named") {
  Thinned thinned;
  for (const ProblemSpec& spec : basic_problems()) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
      if (thinned.skips()) continue;
      const WgradProblem pb = make(spec, dtype, true);
      CAPTURE(describe(pb));
      const Tensors t(pb, Fill::normal);
      TaskPool pool(2);
      const auto sum = summed(pb, t, pool, 9);
      const std::vector<double> right =
          rounded_all(dtype, reference_of(pb, t.x.data(), t.dy.data()).values);
      const double certain = sum->judge(right, model_of(pb)).certain_error;
      std::mt19937 random(1);
      for (int i = 0; i < 20; ++i) {
        std::vector<double> wrong = right;
        const std::size_t at = random() % wrong.size();
        wrong[at] += (i % 2 == 0 ? 1.05 : -1.05) * certain + (certain == 0 ? 1 : 0);
        const AdjointVerdict verdict = sum->judge(wrong, model_of(pb));
        CHECK_FALSE(verdict.match());
        // Every V sees it, so all of its block's equalities fail, and no others.
        CHECK(verdict.failures == verdict.vectors);
        CHECK(verdict.vectors == (pb.group_c() * pb.group_k() == 1 ? 1 : 8));
        if (verdict.suspects.size() < kMaxAdjointSuspects) {
          CHECK(std::count(verdict.suspects.begin(), verdict.suspects.end(),
                           static_cast<std::int64_t>(at)) == 1);
        }
      }
    }
  }
}

TEST_CASE("the certain error is small beside the gradient") {
  const WgradProblem pb =
      make({"3x3", "conv2d", 8, 32, 32, 1, {{14, 3}, {14, 3}}}, DType::f32, true);
  const Tensors t(pb, Fill::normal);
  TaskPool pool(2);
  const AdjointVerdict verdict =
      summed(pb, t, pool)->judge(reference_of(pb, t.x.data(), t.dy.data()).values, model_of(pb));
  // 1568 terms: the full check allows an element 2e-4 of that, a sum over 256 elements 50 times.
  CHECK(verdict.certain_error < 0.02 * verdict.rms_entry);
  CHECK(verdict.certain_error > 0);
}

TEST_CASE("faults of every kind are found") {
  const WgradProblem pb = make({"3x3", "conv2d", 2, 8, 12, 2, {{9, 3}, {9, 3}}}, DType::f32, true);
  const Tensors t(pb, Fill::normal);
  TaskPool pool(2);
  const std::vector<double> right = reference_of(pb, t.x.data(), t.dy.data()).values;
  const auto cells = static_cast<std::size_t>(pb.group_c() * pb.K);
  int seen = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto sum = summed(pb, t, pool, seed);
    std::vector<double> flipped(right.rbegin(), right.rend()), column = right, pair = right,
                                                               scaled = right;
    for (std::size_t i = 3; i < right.size(); i += static_cast<std::size_t>(pb.K))
      column[i] *= 1.01;
    for (double& value : scaled) value *= 1.001;
    std::swap(pair[0], pair[cells]);
    for (const auto* wrong : {&flipped, &column, &pair, &scaled}) {
      seen += sum->judge(*wrong, model_of(pb)).match() ? 0 : 1;
    }
  }
  CHECK(seen == 200);
}

TEST_CASE("what is not finite") {
  const WgradProblem pb = make({"3x3", "conv2d", 1, 4, 6, 1, {{6, 3}, {6, 3}}}, DType::f16, true);
  Tensors t(pb, Fill::normal);
  TaskPool pool(1);
  std::vector<double> values =
      rounded_all(DType::f16, reference_of(pb, t.x.data(), t.dy.data()).values);
  const auto sum = summed(pb, t, pool);
  CHECK(sum->judge(values, model_of(pb)).match());
  values[7] = kNan;
  CHECK_FALSE(sum->judge(values, model_of(pb)).match());
  values[7] = kInf;
  CHECK_FALSE(sum->judge(values, model_of(pb)).match());
  // Where a float16 may overflow, an infinity may be right.
  std::vector<double> large(static_cast<std::size_t>(pb.x_count()), 60000);
  round_to(DType::f16, large.data(), pb.x_count(), t.x.data());
  const auto overflowing = summed(pb, t, pool);
  CHECK_THROWS_AS(overflowing->judge(values, model_of(pb)), Error);
  // NaN in the data tells nothing of the sums.
  large[0] = kNan;
  round_to(DType::f16, large.data(), pb.x_count(), t.x.data());
  CHECK_THROWS_AS(summed(pb, t, pool)->judge(values, model_of(pb)), Error);
}

TEST_CASE("an empty batch has a gradient of zeros") {
  const WgradProblem pb = make({"3x3", "conv2d", 0, 4, 6, 1, {{6, 3}, {6, 3}}}, DType::f64, true);
  const Tensors t(pb, Fill::normal);
  TaskPool pool(1);
  std::vector<double> zeros(static_cast<std::size_t>(pb.dw_count()));
  const auto sum = summed(pb, t, pool);
  CHECK(sum->judge(zeros, model_of(pb)).match());
  CHECK(sum->judge(zeros, model_of(pb)).all_zero);
  zeros[3] = 1e-300;
  CHECK_FALSE(sum->judge(zeros, model_of(pb)).match());
}
