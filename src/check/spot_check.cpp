#include "check/spot_check.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>

#include "base/messages.hpp"
#include "check/sample.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/gradient_file.hpp"

namespace convgrad {
namespace {

// verify's slack is 3, of which sums of known data in other orders than n, z, p, q need 8 times.
constexpr double kSlack = 24;
// Kernels that round what they multiply keep 10 bits of it.
constexpr double kRounded = 0x1p-9;

class SpotCheckedSum final : public BlockSum {
 public:
  SpotCheckedSum(std::unique_ptr<BlockSum> sum, const Plan& plan, TaskPool& pool,
                 std::int64_t elements)
      : sum_(std::move(sum)),
        plan_(plan),
        problem_(part_problem(plan)),
        indices_(choose_neighbours(problem_, elements)),
        sample_(problem_, pool, indices_,
                {.adders = plan.cpu() ? Summation::Adders::ieee : Summation::Adders::usual}) {}

  void add(const Block& block, std::int64_t index, const Progress& progress) override {
    sum_->add(block, index, progress);
    sample_.add(block, index);
  }

  // What is written is checked: these elements then, not sums.
  bool round_to_result(void* result) override {
    if (!sum_->round_to_result(result)) return false;
    rounded_ = result;
    return true;
  }

  double* finish(std::size_t node) override {
    if (sums_.empty()) check();
    return sums_[node];
  }

 private:
  // Returns the elements of the nodes' sums together, as they would be written.
  std::vector<double> results() {
    for (std::size_t node = 0; node < plan_.schedule.nodes.size(); ++node) {
      sums_.push_back(sum_->finish(node));
    }
    std::vector<double> results;
    with_scalar(problem_.out_dtype, [&]<typename Scalar>(Scalar) {
      const auto* const written = static_cast<const Scalar*>(rounded_);
      for (const std::int64_t index : indices_) {
        double sum = 0;
        for (const double* const each : sums_) sum += written != nullptr ? 0 : each[index];
        results.push_back(written != nullptr ? to_double(written[index])
                                             : rounded(problem_.out_dtype, sum));
      }
    });
    return results;
  }

  void check() {
    std::vector<double> got = results();
    sample_.finish();
    const Expected& expected = sample_.expected();
    const bool exact = !plan_.cuda() || plan_.cuda()->kernel->is_exact;
    std::vector<unsigned char> wrong(got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {  // nothing can be said of what overflows float64
      if (std::isinf(expected.magnitudes[i])) got[i] = expected.values[i];
      const double error = unexplained_error(problem_.out_dtype, got[i], expected.values[i]);
      wrong[i] = error > kRounded * expected.magnitudes[i] ? 1 : 0;
    }
    if (exact) {
      compare_gradients(problem_, problem_.out_dtype, indices_, got, expected, {.slack = kSlack},
                        wrong);
    }
    const auto first = std::ranges::find(wrong, 1);
    if (first == wrong.end()) return;
    const auto at = static_cast<std::size_t>(first - wrong.begin());
    WgradProblem tensorflow = problem_;
    tensorflow.filter_format = FilterFormat::hwio;
    TextWriter numbers;
    numbers << std::setprecision(9) << got[at] << ", expected " << expected.values[at];
    const std::string device = plan_.cuda() ? cat(" on device ", plan_.cuda()->device.number, " (",
                                                  plan_.cuda()->device.name, ")")
                                            : "";
    throw Error(ErrorKind::runtime, algorithm_name(plan_), device,
                " computes a wrong gradient: ", std::ranges::count(wrong, 1), " of ", got.size(),
                " elements that were checked, the first ",
                bracketed(position_in_file(tensorflow, indices_[at])), ": got ", numbers.str(),
                "; nothing is written",
                plan_.cuda() ? Hint("use -b cpu") : Hint("use -b reference"));
  }

  std::unique_ptr<BlockSum> sum_;
  const Plan plan_;
  const WgradProblem problem_;
  const std::vector<std::int64_t> indices_;
  SampledSum sample_;
  const void* rounded_ = nullptr;  // of round_to_result()
  std::vector<double*> sums_;      // of the nodes, each finished once, when all are checked
};

}  // namespace

std::unique_ptr<BlockSum> spot_checked(std::unique_ptr<BlockSum> sum, const Plan& plan,
                                       TaskPool& pool, std::int64_t elements) {
  if (elements == 0 || plan.problem.dw_count() == 0) return sum;
  return std::make_unique<SpotCheckedSum>(std::move(sum), plan, pool, elements);
}

}  // namespace convgrad
