#include <algorithm>
#include <cmath>

#include "check/rounding.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// Reads the whole file, or the entries of the sample.
Gradient read_judged(const std::string& path, const WgradProblem& problem, const Sample& sample) {
  GradientFile file = sample.indices.empty() ? read_gradient(path, problem)
                                             : read_gradient_entries(path, problem, sample.indices);
  return {path, file.dtype, std::move(file.values)};
}

// Feeds several checks with the same blocks.
class Checks final : public BlockSum {
 public:
  void include(BlockSum& sum) { sums_.push_back(&sum); }
  void add(const Block& block, std::int64_t index, const Progress& progress) override {
    for (BlockSum* sum : sums_) sum->add(block, index, progress);
  }
  double* finish(std::size_t node) override {
    for (BlockSum* sum : sums_) sum->finish(node);
    return nullptr;
  }
  bool empty() const { return sums_.empty(); }

 private:
  std::vector<BlockSum*> sums_;
};

// Says what sums beside a kernel, or instead of it.
struct Needed {
  bool by_reference;  // the gradient that is judged
  bool whole;         // what is expected of all elements
  bool samples;       // or of a sample's, by themselves
};
Needed needed(const Job& job, const VerifyCommand& options, bool needs_reference) {
  constexpr std::int64_t kWholeForOne = 8;  // of all, as long as one of them takes by itself
  const VerifyOptions& v = options.verify;
  const bool samples =
      needs_reference && v.sample && *v.sample < job.problem.dw_count() / kWholeForOne;
  return {v.results.empty() && job.backend == Backend::reference, needs_reference && !samples,
          samples};
}

// Makes the one pass: a kernel or the reference computes, and the checks sum beside it.
class Pass {
 public:
  // `problem` is the job's, with a gradient of the dtype that is judged.
  Pass(Job& job, const WgradProblem& problem, const VerifyCommand& options, bool needs_reference,
       const Sample& sample)
      : job_(job),
        problem_(problem),
        computes_(options.verify.results.empty()),
        plan_(plan_check(job, options, needs_reference)),
        pool_(plan_.threads),
        untested_(problem) {
    const Needed needs = needed(job, options, needs_reference);
    const Summation summation = summation_of(job, options);
    if (computes_ && !needs.by_reference) gradient_ = make_sum(plan_, pool_);
    if (needs.by_reference || needs.whole) {
      checks_.include(reference_.emplace(problem, pool_,
                                         needs.whole ? std::optional(summation) : std::nullopt));
    }
    if (needs.samples) checks_.include(sampled_.emplace(problem, pool_, sample.indices, summation));
    if (needs_reference) checks_.include(untested_);
  }

  PassTaken run(const VerifyCommand& options) {
    const Timing timing =
        run_job(job_, plan_, gradient_.get(), checks_.empty() ? nullptr : &checks_);
    PassTaken taken = {plan_, {timing, 0, problem_}};
    if (options.execution.verbose) print_timing(plan_, taken.timing);
    checks_.finish(0);
    if (computes_) dw_ = gradient_ ? gradient_->finish() : reference_->expected().values.data();
    return taken;
  }

  const double* dw() const { return dw_; }
  // Returns the reference where it is compared; once, when dw() is no longer needed.
  Expected take_expected(const Sample& sample) {
    if (sampled_) return sampled_->take_expected();
    Expected whole = reference_->take_expected();
    if (sample.indices.empty()) return whole;
    return picked(whole, sample.indices);
  }

  // Says why whatever is computed from these tensors would match, or which parts of it would.
  void say_untested(Judged& judged) const {
    const Elements n = elements(judged.expected);
    judged.vacuous = vacuous(judged.expected, n);
    if (!judged.vacuous.empty()) return;
    judged.not_tested = untested_.texts();
    if (n.overflow + n.underflow == 0) return;
    judged.not_tested.push_back(cat(n.overflow + n.underflow, " of ", judged.expected.values.size(),
                                    " elements, which ", beyond_text(n, "")));
  }

 private:
  // Counts elements with terms that a result can show, or would if its dtype held them.
  struct Elements {
    std::int64_t tested = 0, overflow = 0, underflow = 0;
    bool finite = false;
  };
  Elements elements(const Expected& e) const {
    Elements n;
    for (std::size_t i = 0; i < e.values.size(); ++i) {
      n.finite = n.finite || std::isfinite(e.values[i]);
      if (!std::isfinite(e.values[i]) || !(e.magnitudes[i] > 0)) continue;
      const Shown shown = shown_in(problem_.out_dtype, problem_, e.values[i], e.magnitudes[i]);
      ++(shown == Shown::yes ? n.tested : shown == Shown::overflow ? n.overflow : n.underflow);
    }
    return n;
  }

  // Returns "overflows float16".
  std::string beyond_text(const Elements& n, const char* s) const {
    return cat(n.overflow > 0 ? cat("overflow", s) : "",
               n.overflow > 0 && n.underflow > 0 ? " or " : "",
               n.underflow > 0 ? cat("underflow", s) : "", " ", dtype_name(problem_.out_dtype));
  }

  std::string vacuous(const Expected& e, const Elements& n) const {
    const WgradProblem& pb = problem_;
    if (pb.dw_count() == 0) return "the gradient has no elements";
    if (pb.N == 0) return "there are no images";
    if (term_count(pb) == 0) return "out_backprop has no pixels";
    if (untested_.x_is_zero()) return "x is all zeros";
    if (untested_.dy_is_zero()) return "dy is all zeros";
    if (n.tested > 0) return "";
    if (n.overflow + n.underflow > 0) {
      const bool single = std::ranges::all_of(e.values, [](double value) {
        const double held = rounded(DType::f32, value);
        return std::isfinite(held) == std::isfinite(value) && (held == 0) == (value == 0);
      });
      return cat("every element ", beyond_text(n, "s"), " (--out-dtype ",
                 dtype_name(single ? DType::f32 : DType::f64), " holds them)");
    }
    if (!n.finite) return "no expected value is finite";
    return sampled_ ? "the sampled elements have no terms but zeros"
                    : "no element has a term that is not zero";
  }

  Job& job_;
  const WgradProblem problem_;
  const bool computes_;
  const Plan plan_;
  TaskPool pool_;
  std::unique_ptr<BlockSum> gradient_;
  std::optional<ReferenceSum> reference_;
  std::optional<SampledSum> sampled_;
  Untested untested_;
  Checks checks_;
  const double* dw_ = nullptr;
};

Judged read_subjects(const Job& job, const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  const bool golden = !v.golden.empty() && !v.update_golden;
  Judged judged;
  judged.tensors = job.tensors;
  if (!options.json.empty()) {
    for (std::size_t i = 0; i < v.results.size(); ++i) {
      add_tensor(i == 0 ? "result" : cat("result_", i + 1), v.results[i], judged.tensors);
    }
    if (golden) add_tensor("golden", v.golden, judged.tensors);
    if (!v.accumulated_on.empty()) add_tensor("accumulated_on", v.accumulated_on, judged.tensors);
  }
  if (v.sample) {
    judged.sample =
        choose_entries(job.problem, *v.sample, static_cast<std::uint64_t>(v.seed.value_or(1)));
  }
  for (const std::string& path : v.results) {
    judged.results.push_back(read_judged(path, job.problem, judged.sample));
  }
  judged.problem = job.problem;
  // The file's own dtype is what it is judged by.
  if (!v.results.empty()) judged.problem.out_dtype = judged.results[0].dtype;
  if (golden) judged.golden = read_judged(v.golden, judged.problem, judged.sample);
  if (v.accumulated_on.empty()) return judged;
  Gradient buffer = read_judged(v.accumulated_on, judged.problem, judged.sample);
  if (buffer.dtype != judged.problem.out_dtype) {
    bad_input("--accumulated-on (", v.accumulated_on, "): dtype ", dtype_name(buffer.dtype),
              ", expected the result's, ", dtype_name(judged.problem.out_dtype));
  }
  judged.buffer = std::move(buffer.values);
  return judged;
}

}  // namespace

Tolerance judged_by(const VerifyOptions& o) {
  Tolerance tolerance = tolerance_of(o);
  if (!o.criterion.empty()) {
    if (!tolerance.needs_terms()) {
      misuse("--criterion and --rtol, --atol, --max-ulp or --bitwise exclude each other");
    }
    if (o.criterion == "bound") tolerance.criterion = Criterion::bound;
  }
  if (!o.accept.empty() && o.diagnosis == "off") {
    misuse("--accept: given with --diagnosis off, which names no fault");
  }
  const bool rounding = tolerance.criterion == Criterion::rounding;
  if (o.slack) {
    if (!rounding) misuse("--slack: expected only with --criterion rounding");
    if (!(*o.slack > 0)) misuse("--slack: 0, expected a number above 0");
    tolerance.slack = *o.slack;
  }
  return tolerance;
}

Summation summation_of(const Job& job, const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  // The program's own kernels are judged by what is known of their sums.
  const bool own = v.results.empty() && (v.golden.empty() || v.update_golden);
  Summation summation;
  const std::int64_t chunk = job.problem.dtype == DType::bf16 || job.problem.dtype == DType::f16
                                 ? kMaxLongChunkPixels
                                 : kMaxChunkPixels;
  summation.longest_sum = v.longest_sum.value_or(own ? chunk : 0);
  summation.factor = v.alpha.value_or(1);
  using Adders = Summation::Adders;
  summation.adders = v.adders == "tensor-core" ? Adders::tensor_core
                     : v.adders == "ieee" || (own && job.backend != Backend::cuda) ? Adders::ieee
                                                                                   : Adders::usual;
  return summation;
}

Plan plan_check(const Job& job, const VerifyCommand& options, bool needs_reference) {
  const VerifyOptions& v = options.verify;
  const Needed needs = needed(job, options, needs_reference);
  PlanOptions planned = plan_options(job, options);
  if (!v.results.empty()) planned.backend = Backend::reference;  // which has no part in it
  std::int64_t& check_bytes = planned.check_bytes.emplace(0);
  if (needs.by_reference || needs.whole) {
    check_bytes = ReferenceSum::memory_bytes(
        job.problem, needs.whole ? std::optional(summation_of(job, options)) : std::nullopt);
  }
  if (needs.samples) {
    check_bytes += SampledSum::memory_bytes(std::min(*v.sample, job.problem.dw_count()) + 32);
  }
  // The buffer, and what of it is expected.
  if (!v.accumulated_on.empty()) check_bytes += 16 * v.sample.value_or(job.problem.dw_count());
  return plan_job(job, planned);
}

Judged gather(Job& job, const VerifyCommand& options, bool needs_reference) {
  const VerifyOptions& v = options.verify;
  Judged judged = read_subjects(job, options);
  if (judged.golden && !needs_reference) judged.expected.values = judged.golden->values;
  if (!v.results.empty() && !needs_reference) return judged;

  Pass pass(job, judged.problem, options, needs_reference, judged.sample);
  judged.pass = pass.run(options);
  if (pass.dw() != nullptr) {
    std::vector<double> values(pass.dw(), pass.dw() + judged.problem.dw_count());
    for (double& value : values) value = rounded(judged.problem.out_dtype, value);
    if (v.sample) values = picked(values, judged.sample.indices);
    judged.results.push_back({std::string(algorithm_name(judged.pass->plan)),
                              judged.problem.out_dtype, std::move(values)});
    if (!options.problem.output.empty()) {
      write_gradient(options.problem.output, judged.problem, pass.dw(), gradient_options(options));
      if (!options.json.empty()) {
        add_gradient(gradient_target(options), judged.problem, judged.tensors);
      }
    }
  }
  if (needs_reference) {
    judged.expected = pass.take_expected(judged.sample);
    if (!judged.buffer.empty()) {
      add_to_buffer(job.problem.dtype, judged.problem.out_dtype, v.beta.value_or(1), judged.buffer,
                    judged.expected);
    }
    pass.say_untested(judged);
  }
  return judged;
}

std::string why_read_once(const Job& job) {
  for (const auto& [flag, reader] :
       {std::pair{"--input", job.x.get()}, std::pair{"--out-backprop", job.dy.get()}}) {
    if (!reader->seekable()) {
      return cat(flag, " (", reader->name(), ") is a stream, which can be read only once");
    }
  }
  return "";
}

namespace {

std::int64_t memory_limit(const VerifyCommand& options) {
  const std::int64_t asked = plan_options(options).memory_limit_bytes;
  return asked > 0 ? asked : this_machine().memory_bytes;
}

// Returns why whole images of x and dy, as the plan has them, do not fit the memory, or "".
std::string why_too_large(const Job& job, const VerifyCommand& options, const Plan& images) {
  const double image =
      static_cast<double>(job.x->header().payload_bytes + job.dy->header().payload_bytes) /
      static_cast<double>(std::max<std::int64_t>(job.problem.N, 1));
  const auto limit = static_cast<double>(memory_limit(options));
  // The next block is read beside the present one, which is copied as float64.
  const double copies =
      static_cast<double>(std::min<std::int64_t>(images.schedule.blocks.count, 2)) +
      8.0 / static_cast<double>(dtype_bytes(job.problem.dtype));
  const double held = image * copies;
  if (!(held > limit)) return "";
  return cat("it needs whole images of x and dy, ", format_bytes(held), ", the limit is ",
             format_bytes(limit));
}

constexpr std::int64_t kImageBytes = std::int64_t{8} << 20;

}  // namespace

Rereader::Rereader(Job& job, const VerifyCommand& options)
    : job_(job),
      options_(options),
      pool_(options.execution.threads > 0 ? options.execution.threads : this_machine().threads),
      source_(*job.x, *job.dy),
      images_(image_plan(job.problem, kImageBytes)),
      why_no_images_(why_too_large(job, options, images_)) {}

Passes Rereader::passes() {
  const auto run = [this](BlockSum& sum, std::int64_t bytes) {
    PlanOptions planned = plan_options(job_, options_);
    planned.backend = Backend::reference;
    planned.check_bytes = bytes;
    run_job(job_, plan_job(job_, planned), nullptr, &sum);
    sum.finish();
  };
  const Images images = {images_, source_, pool_};
  return {pool_, run, why_no_images_.empty() ? std::optional(images) : std::nullopt,
          memory_limit(options_)};
}

}  // namespace convgrad::cli
