// spot_check_test.cpp - right sums pass the check of a few of their elements, wrong ones never.
#include "check/spot_check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "check/sample.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Gives sums that were computed elsewhere, once, as float64 or rounded.
class GivenSums final : public BlockSum {
 public:
  GivenSums(std::vector<double> sums, DType dtype) : sums_(std::move(sums)), dtype_(dtype) {}
  void add(const Block&, std::int64_t, const Progress&) override {}
  bool round_to_result(void* result) override {
    result_ = result;
    return true;
  }
  double* finish(std::size_t) override {
    CHECK(!is_finished_);
    is_finished_ = true;
    if (result_ != nullptr) {
      round_to(dtype_, sums_.data(), std::ssize(sums_), result_);
      return nullptr;
    }
    return sums_.data();
  }

 private:
  std::vector<double> sums_;
  const DType dtype_;
  void* result_ = nullptr;
  bool is_finished_ = false;
};

Plan plan_on_device(const WgradProblem& problem, const char* kernel) {
  const Device device{3, "A device", 9, 0, std::int64_t{1} << 36, 100, std::int64_t{1} << 36};
  return make_plan(problem, this_machine(),
                   {.backend = Backend::cuda, .device = device, .algorithm = kernel});
}

WgradProblem small_problem(DType dtype) {
  return make({"3x3", "conv2d", 2, 8, 8, 1, {{6, 3}, {7, 3}}}, dtype, true);
}

Plan plan_in_memory(const WgradProblem& problem) {
  return make_plan(problem, this_machine(), {.in_memory = true});
}

// Returns what the check says of sums over whole tensors, or ""; as it says if they are rounded.
std::string said_of(const Plan& plan, const std::vector<double>& sums, const void* x,
                    const void* dy, std::int64_t elements = kSpotCheckOnDevice) {
  TaskPool pool(2);
  const DType dtype = plan.problem.out_dtype;
  std::vector<std::byte> want(sums.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
  round_to(dtype, sums.data(), std::ssize(sums), want.data());
  std::string said[2];
  for (const bool rounds : {false, true}) {
    std::vector<std::byte> rounded(want.size());
    MemorySource source(x, dy);
    const auto sum = spot_checked(std::make_unique<GivenSums>(sums, dtype), plan, pool, elements);
    if (rounds) CHECK(sum->round_to_result(rounded.data()));
    sum_blocks(plan, source, *sum);
    try {
      const double* const finished = sum->finish();
      CHECK((rounds ? rounded == want
                    : std::memcmp(finished, sums.data(), sums.size() * sizeof(double)) == 0));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::runtime);
      said[rounds ? 1 : 0] = error.what();
    }
  }
  CHECK(said[0] == said[1]);
  return said[0];
}

}  // namespace

TEST_CASE("right sums of kernels pass, of all data") {
  Thinned thinned;
  for (const Fill fill : {Fill::normal, Fill::small_integers}) {
    for_each_case(
        basic_problems(), kDTypes, fill,
        [&](const WgradProblem& problem, const auto& x, const auto& dy) {
          if (thinned.skips()) return;
          const Plan plan = plan_in_memory(problem);
          CHECK(said_of(plan, sums_of(plan, x.data(), dy.data()), x.data(), dy.data()) == "");
        });
  }
}

TEST_CASE("one wrong corner, or all elements, are seen") {
  Thinned thinned;
  for_each_case(
      basic_problems(), kDTypes, Fill::normal,
      [&](const WgradProblem& problem, const auto& x, const auto& dy) {
        if (thinned.skips() || term_count(problem) < 2 || problem.dw_count() == 0) return;
        const Expected right = reference_of(problem, x.data(), dy.data());
        const Plan plan = plan_in_memory(problem);
        std::vector<double> corner = right.values, all = right.values;
        corner.back() += right.magnitudes.back() / 8 + 1;
        for (double& value : all) value = value * 1.01 + 0.5;
        CHECK(said_of(plan, corner, x.data(), dy.data()).find("expected") != std::string::npos);
        CHECK(said_of(plan, all, x.data(), dy.data()).find("expected") != std::string::npos);
        CHECK(said_of(plan, all, x.data(), dy.data(), 0) == "");
      });
}

TEST_CASE("what is left out, swapped or shifted is seen") {
  for (const char* op : {"conv2d", "depthwise"}) {
    const std::int64_t groups = op[0] == 'd' ? 64 : 1;
    const WgradProblem problem =
        make({"3x3", op, 4, 64, 64, groups, {{6, 3}, {7, 3}}}, DType::f32, true);
    const auto x = filled(DType::f32, problem.x_count(), Fill::normal, 1);
    const auto dy = filled(DType::f32, problem.dy_count(), Fill::normal, 2);
    const Plan plan = plan_in_memory(problem);
    const std::int64_t pixel = problem.K * 4, row = problem.axis[2].out * pixel;
    const std::int64_t image = problem.axis[1].out * row, all = 4 * image;
    // Bytes of dy: first, and how many.
    const std::pair<std::int64_t, std::int64_t> left_out[] = {
        {all - pixel, pixel}, {0, pixel}, {image, row}, {image, image}, {0, all / 2}};
    CHECK(said_of(plan, sums_of(plan, x.data(), dy.data()), x.data(), dy.data()) == "");
    for (const auto& [first, bytes] : left_out) {
      auto wrong = dy;
      std::memset(reinterpret_cast<char*>(wrong.data()) + first, 0,
                  static_cast<std::size_t>(bytes));
      CHECK(said_of(plan, sums_of(plan, x.data(), wrong.data()), x.data(), dy.data()) != "");
    }
    const std::vector<double> right = sums_of(plan, x.data(), dy.data());
    const std::int64_t cells = problem.group_c() * problem.K;
    for (std::int64_t tap = 0; tap < problem.taps(); ++tap) {  // another's in its place
      std::vector<double> sums = right;
      const auto other = right.begin() + (tap + 1) % problem.taps() * cells;
      std::copy_n(other, cells, sums.begin() + tap * cells);
      CHECK(said_of(plan, sums, x.data(), dy.data()) != "");
    }
    std::vector<double> shifted = right;  // by a channel
    std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
    CHECK(said_of(plan, shifted, x.data(), dy.data()) != "");
  }
}

TEST_CASE("the message names kernel, device, element, and what helps") {
  const WgradProblem problem = small_problem(DType::f32);
  const auto x = filled(DType::f32, problem.x_count(), Fill::small_integers, 1);
  const auto dy = filled(DType::f32, problem.dy_count(), Fill::small_integers, 2);
  std::vector<double> sums = reference_of(problem, x.data(), dy.data()).values;
  const Plan plan = plan_on_device(problem, "cuda_simt_gemm");
  CHECK(said_of(plan, sums, x.data(), dy.data()) == "");
  const double want = sums[0];
  sums[0] += 1;
  const std::string said = said_of(plan, sums, x.data(), dy.data());
  CHECK(said.find(cat("cuda_simt_gemm on device 3 (A device) computes a wrong gradient: 1 of ",
                      choose_neighbours(problem, kSpotCheckOnDevice).size(),
                      " elements that were checked, the first [0,0,0,0]: got ")) == 0);
  CHECK(said.find(cat("expected ", want)) != std::string::npos);
  CHECK(said.ends_with("nothing is written; use -b cpu"));
  sums[0] = kNan;
  CHECK(said_of(plan, sums, x.data(), dy.data()).find("got nan") != std::string::npos);
}

TEST_CASE("kernels that round what they multiply have room for it") {
  const WgradProblem problem = small_problem(DType::f32);
  const auto x = filled(DType::f32, problem.x_count(), Fill::normal, 1);
  const auto dy = filled(DType::f32, problem.dy_count(), Fill::normal, 2);
  const Expected right = reference_of(problem, x.data(), dy.data());
  std::vector<double> rounded = right.values, wrong = right.values;
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    rounded[i] += 0x1p-11 * right.magnitudes[i];
    wrong[i] += 0x1p-7 * right.magnitudes[i];
  }
  const Plan exact = plan_on_device(problem, "cuda_simt_gemm");
  DeviceKernel kernel = *exact.cuda()->kernel;
  kernel.is_exact = false;
  Plan inexact = exact;
  std::get<CudaPlan>(inexact.backend).kernel = &kernel;
  CHECK(said_of(exact, rounded, x.data(), dy.data()) != "");
  CHECK(said_of(inexact, rounded, x.data(), dy.data()) == "");
  CHECK(said_of(inexact, wrong, x.data(), dy.data()) != "");
}

TEST_CASE("data that are not finite, or overflow, are no fault") {
  const WgradProblem problem = small_problem(DType::f64);
  auto x = filled(DType::f64, problem.x_count(), Fill::normal, 1);
  const auto dy = filled(DType::f64, problem.dy_count(), Fill::normal, 2);
  const Plan plan = plan_in_memory(problem);
  for (const double value : {kNan, 1e308, kInf}) {
    for (std::size_t i = 0; i < 40; ++i)
      reinterpret_cast<double*>(x.data())[i] = i % 2 == 0 ? value : -value;
    CHECK(said_of(plan, sums_of(plan, x.data(), dy.data()), x.data(), dy.data()) == "");
  }
}
