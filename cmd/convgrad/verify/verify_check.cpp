// verify_check.cpp - see verify_check.hpp.
#include "verify/verify_check.hpp"

#include <algorithm>

namespace convgrad::cli {
namespace {

// Of x and dy beside --reference adjoint.
constexpr std::int64_t kAdjointBlockBytes = std::int64_t{8} << 20;
constexpr std::int64_t kLeastBlockBytes = std::int64_t{32} << 10;

// From the order of dw_shape() to [tap][c][k].
std::vector<double> in_hwio_order(const WgradProblem& problem, const std::vector<double>& values) {
  if (problem.filter_format == FilterFormat::hwio) return values;
  // gather_gradient maps positions; sending positions through it gives the inverse map.
  std::vector<double> positions(values.size()), gathered(values.size()), result(values.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<double>(i);
  gather_gradient(problem, positions.data(), 0, problem.dw_count(), gathered.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[static_cast<std::size_t>(gathered[i])] = values[i];
  }
  return result;
}

// What the sums become in a file of the problem's dtype.
std::vector<double> rounded_values(const WgradProblem& problem, const double* dw) {
  std::vector<double> values(dw, dw + problem.dw_count());
  for (double& value : values) value = rounded(problem.out_dtype, value);
  return values;
}

std::vector<double> picked(const std::vector<double>& values,
                           const std::vector<std::int64_t>& indices) {
  std::vector<double> result;
  result.reserve(indices.size());
  for (const std::int64_t index : indices) {
    result.push_back(values[static_cast<std::size_t>(index)]);
  }
  return result;
}

// The whole file, or the entries of the sample.
GradientFile read_judged(const std::string& path, const WgradProblem& problem,
                         const Sample& sample) {
  return sample.indices.empty() ? read_in_order(path, problem)
                                : read_gradient_entries(path, problem, sample.indices);
}

// Several checks, fed with the same blocks.
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

// The one pass: a kernel or the reference computes, and the checks sum beside it.
class Pass {
 public:
  Pass(Job& job, const Options& options, bool needs_reference, const Sample& sample)
      : job_(job),
        scope_(scope_of(options.verify)),
        computes_(options.verify.result.empty()),
        plan_(plan_check(job, options, needs_reference)),
        pool_(plan_.threads) {
    const bool by_reference = job.backend == Backend::reference;
    if (computes_ && !by_reference) gradient_ = make_sum(plan_, pool_);
    if ((computes_ && by_reference) || (needs_reference && scope_ == Scope::full)) {
      checks_.include(reference_.emplace(job.problem, pool_));
    }
    if (needs_reference && scope_ == Scope::sample) {
      checks_.include(sampled_.emplace(job.problem, pool_, sample.indices));
    }
    if (scope_ == Scope::adjoint) {
      const auto seed = static_cast<std::uint64_t>(options.verify.seed.value_or(1));
      checks_.include(adjoint_.emplace(job.problem, pool_, seed));
    }
  }

  void run(const Options& options, Json& report) {
    report["execution"] = plan_json(plan_);
    const Timing timing =
        run_job(job_, plan_, gradient_.get(), checks_.empty() ? nullptr : &checks_);
    report["timing_ms"] = timing_json(timing, 0);
    report["perf"] = perf_json(job_.problem, timing);
    if (options.execution.verbose) print_timing(plan_, timing, 0);
    checks_.finish(0);
    if (computes_) dw_ = gradient_ ? gradient_->finish() : reference_->values().data();
  }

  const double* dw() const { return dw_; }
  const Plan& plan() const { return plan_; }
  // The reference's values and magnitudes where they are compared.
  const std::vector<double>& values() const {
    return sampled_ ? sampled_->values() : reference_->values();
  }
  const std::vector<double>& magnitudes() const {
    return sampled_ ? sampled_->magnitudes() : reference_->magnitudes();
  }
  AdjointVerdict adjoint(const std::vector<double>& got) const {
    return adjoint_->judge(got, error_model(job_.problem));
  }

 private:
  Job& job_;
  const Scope scope_;
  const bool computes_;
  const Plan plan_;
  TaskPool pool_;
  std::unique_ptr<BlockSum> gradient_;
  std::optional<ReferenceSum> reference_;
  std::optional<SampledSum> sampled_;
  std::optional<AdjointSum> adjoint_;
  Checks checks_;
  const double* dw_ = nullptr;
};

}  // namespace

Scope scope_of(const VerifyOptions& options) {
  if (options.sample) return Scope::sample;
  return options.reference == "adjoint" ? Scope::adjoint : Scope::full;
}

ErrorModel error_model(const WgradProblem& problem) {
  return {problem.out_dtype, accumulator_dtype(problem.dtype), term_count(problem)};
}

std::optional<ErrorModel> want_model(const WgradProblem& problem, const Judged& judged) {
  if (!judged.want_dtype) return std::nullopt;
  ErrorModel model = error_model(problem);
  model.out = *judged.want_dtype;
  return model;
}

GradientFile read_in_order(const std::string& path, const WgradProblem& problem) {
  GradientFile file = read_gradient(path, problem, false);
  file.values = in_hwio_order(problem, file.values);
  return file;
}

namespace {

// What the check keeps grows with the blocks, so they are small, and smaller if memory is.
Plan plan_adjoint(const Job& job, const Options& options, PlanOptions planned) {
  const std::int64_t other_bytes = planned.check_bytes.value_or(0);
  planned.block_bytes = kAdjointBlockBytes;
  if (options.execution.memory_limit > 0) {
    const auto part = static_cast<std::int64_t>(options.execution.memory_limit / 16);
    planned.block_bytes = std::clamp(part, kLeastBlockBytes, kAdjointBlockBytes);
  }
  for (;; planned.block_bytes /= 4) {
    planned.check_bytes = 0;
    const Plan plan = plan_job(job, planned);
    planned.check_bytes = other_bytes + AdjointSum::memory_bytes(plan);
    const bool fits = plan.memory.total() + *planned.check_bytes <= plan.memory_limit_bytes;
    if (fits || planned.block_bytes <= kLeastBlockBytes) return plan_job(job, planned);
  }
}

}  // namespace

Plan plan_check(const Job& job, const Options& options, bool needs_reference) {
  const VerifyOptions& v = options.verify;
  const bool computes = v.result.empty();
  PlanOptions planned = plan_options(job, options);
  if (!computes) planned.backend = Backend::reference;  // which has no part in it
  const Scope scope = scope_of(v);
  const bool sums_reference =
      (computes && job.backend == Backend::reference) || (scope == Scope::full && needs_reference);
  std::int64_t check_bytes = sums_reference ? reference_bytes(job.problem) : 0;
  if (scope == Scope::sample) {
    check_bytes += SampledSum::memory_bytes(std::min(*v.sample, job.problem.dw_count()) + 32);
  }
  planned.check_bytes = check_bytes;
  return scope == Scope::adjoint ? plan_adjoint(job, options, planned) : plan_job(job, planned);
}

Judged gather(Job& job, const Options& options, bool needs_reference, Json& report) {
  const VerifyOptions& v = options.verify;
  const Scope scope = scope_of(v);
  const bool golden = !v.golden.empty() && !v.update_golden;
  Judged judged;
  if (!options.json.empty()) {
    add_tensor("result", v.result, report);
    add_tensor("golden", golden ? v.golden : "", report);
  }
  if (scope == Scope::sample) {
    judged.sample =
        choose_entries(job.problem, *v.sample, static_cast<std::uint64_t>(v.seed.value_or(1)));
  }
  if (!v.result.empty()) {
    GradientFile file = read_judged(v.result, job.problem, judged.sample);
    job.problem.out_dtype = file.dtype;  // the file's own dtype is what it is judged by
    judged.got = std::move(file.values);
    judged.got_name = v.result;
  }
  if (golden) {
    GradientFile file = read_judged(v.golden, job.problem, judged.sample);
    judged.want = std::move(file.values);
    judged.want_name = v.golden;
    judged.want_dtype = file.dtype;
  }
  if (!v.result.empty() && !needs_reference) return judged;

  Pass pass(job, options, needs_reference, judged.sample);
  pass.run(options, report);
  if (pass.dw() != nullptr) {
    judged.kernel = pass.plan().cpu() ? pass.plan().cpu()->kernel : nullptr;
    judged.on_device = pass.plan().cuda() != nullptr;
    judged.got_name = algorithm_name(pass.plan());
    judged.got = rounded_values(job.problem, pass.dw());
    if (v.repeat_check) judged.computed = judged.got;
    if (scope == Scope::sample) judged.got = picked(judged.got, judged.sample.indices);
    if (!options.problem.output.empty()) {
      write_gradient(options.problem.output, job.problem, pass.dw(), nullptr,
                     {options.execution.no_clobber});
      report["output"] = options.problem.output;
      if (!options.json.empty()) add_gradient(options.problem.output, job.problem, report);
    }
  }
  if (scope == Scope::adjoint) {
    judged.adjoint = pass.adjoint(judged.got);
    return judged;
  }
  if (needs_reference) judged.magnitudes = pass.magnitudes();
  if (!golden) {
    judged.want = pass.values();
    judged.want_name = "the float64 reference";
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

ExactEntries exact_entries(Job& job, const Options& options,
                           const std::vector<std::int64_t>& indices) {
  PlanOptions planned = plan_options(job, options);
  planned.backend = Backend::reference;
  planned.check_bytes = SampledSum::memory_bytes(static_cast<std::int64_t>(indices.size()));
  const Plan plan = plan_job(job, planned);
  TaskPool pool(plan.threads);
  SampledSum sum(job.problem, pool, indices);
  run_job(job, plan, nullptr, &sum);
  sum.finish();
  return {sum.values(), sum.magnitudes()};
}

}  // namespace convgrad::cli
