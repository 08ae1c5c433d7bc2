// job_sums.hpp - the sums of a job by whatever computes them: a kernel, a device's, or the
// reference.
#pragma once

#include <optional>

#include "job/job.hpp"

namespace convgrad::cli {

// Both kinds of sums, behind one interface; exactly one of them exists.
struct JobSums {
  std::optional<GradientSum> gradient;
  std::optional<ReferenceSum> reference;

  JobSums(const Plan& plan, TaskPool& pool) {
    if (plan.kernel != nullptr || plan.device_kernel != nullptr) {
      gradient.emplace(plan, pool);
    } else {
      reference.emplace(plan.problem, pool);
    }
  }
  Timing run(Job& job, const Plan& plan) {
    return run_job(job, plan, gradient ? &*gradient : nullptr, reference ? &*reference : nullptr);
  }
  // In [tap][c][k] order; valid while this is.
  const double* finish() {
    if (gradient) return gradient->finish();
    reference->finish();
    return reference->values().data();
  }
};

}  // namespace convgrad::cli
