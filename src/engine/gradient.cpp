// gradient.cpp - see gradient.hpp: a plan, its sum and its sources in one call.
#include "convgrad/gradient.hpp"

#include <memory>

#include "engine/machine.hpp"
#include "engine/run.hpp"

namespace convgrad {
namespace {

PlanOptions plan_options(const GradientOptions& options) {
  PlanOptions planned;
  planned.algorithm = options.algorithm;
  planned.threads = options.threads;
  planned.memory_limit_bytes = options.memory_limit_bytes;
  if (options.cuda_device >= 0) {
    planned.backend = Backend::cuda;
    planned.device = cuda_device(options.cuda_device);
  }
  return planned;
}

}  // namespace

void filter_gradient(const WgradProblem& problem, const void* x, const void* dy, void* dw,
                     const GradientOptions& options) {
  filter_gradient(problem, x, dy, dw, plan_options(options));
}

std::vector<double> filter_gradient(const WgradProblem& problem, NpyReader& x, NpyReader& dy,
                                    const GradientOptions& options) {
  x.widen_to(problem.dtype);
  dy.widen_to(problem.dtype);
  PlanOptions planned = plan_options(options);
  planned.source_bytes = problem.dw_count() * 8;  // what is returned
  const Plan plan = plan_for_files(problem, x, dy, planned);
  TaskPool pool(plan.threads);
  NpySource source(x, dy);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  sum_blocks(plan, source, *sum);
  const double* dw = sum->finish();
  return {dw, dw + problem.dw_count()};
}

}  // namespace convgrad
