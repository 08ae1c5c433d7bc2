#include "support/tensors.hpp"

#include <algorithm>

#include "base/integers.hpp"
#include "check/plain_reference.hpp"

namespace convgrad::testing {

std::vector<std::byte> filled(DType dtype, std::int64_t count, Fill fill, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> integers(-4, 4);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) {
    value = fill == Fill::small_integers ? integers(random) : normal(random);
  }
  return tensor_of(dtype, values);
}

std::vector<std::byte> tensor_of(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
  round_to(dtype, values.data(), static_cast<std::int64_t>(values.size()), bytes.data());
  return bytes;
}

std::vector<double> widened(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<std::size_t>(dtype_bytes(dtype)));
  with_scalar(dtype, [&](auto scalar) {
    const auto* source = reinterpret_cast<const decltype(scalar)*>(bytes.data());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_double(source[i]);
  });
  return values;
}

std::string npy_text(DType dtype, const std::vector<std::int64_t>& shape,
                     const std::vector<std::byte>& data) {
  return npy_header_text(dtype, shape) +
         std::string(reinterpret_cast<const char*>(data.data()), data.size());
}

std::vector<std::byte> scaled_normal(DType dtype, std::int64_t count, double scale, unsigned seed) {
  auto values = widened(dtype, filled(dtype, count, Fill::normal, seed));
  for (double& value : values) value *= scale;
  return tensor_of(dtype, values);
}

std::vector<std::byte> dy_with_first_pixel(const WgradProblem& problem, double value) {
  auto values =
      widened(problem.dtype, filled(problem.dtype, problem.dy_count(), Fill::small_integers, 5));
  const std::int64_t step = problem.channels_last ? 1 : problem.out_pixels();
  for (std::int64_t k = 0; k < problem.K; ++k) values[static_cast<std::size_t>(k * step)] = value;
  return tensor_of(problem.dtype, values);
}

Expected reference_of(const WgradProblem& problem, const void* x, const void* dy, int threads,
                      const Summation& summation) {
  return expected_gradient(problem, x, dy, {.threads = threads}, summation);
}

Expected device_reference_of(const WgradProblem& problem, const void* x, const void* dy) {
  Expected expected = reference_of(problem, x, dy);
  expected.bias = Expected::Bias::smaller;
  return expected;
}

bool is_plain(const Expected& fast, const WgradProblem& pb, const std::vector<std::byte>& x,
              const std::vector<std::byte>& dy, const Summation& summation) {
  const auto channels_last = [&](const std::vector<std::byte>& tensor, std::int64_t channels) {
    const std::vector<double> values = widened(pb.dtype, tensor);
    if (pb.channels_last || values.empty()) return values;
    const std::size_t C = static_cast<std::size_t>(channels), N = static_cast<std::size_t>(pb.N),
                      image = values.size() / N;
    std::vector<double> moved(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t n = i / image, c = i % image / (image / C), pixel = i % (image / C);
      moved[n * image + pixel * C + c] = values[i];
    }
    return moved;
  };
  const Expected plain =
      plain_reference(pb, channels_last(x, pb.C).data(), channels_last(dy, pb.K).data(), summation);
  const auto alike = [](const std::vector<double>& a, const std::vector<double>& b, double most) {
    return std::ranges::equal(a, b, [most](double one, double other) {
      return same_bits(one, other) || std::fabs(one - other) <= most * std::fabs(other);
    });
  };
  return alike(fast.values, plain.values, 0) && alike(fast.tails, plain.tails, 0) &&
         alike(fast.magnitudes, plain.magnitudes, 1e-13) &&
         alike(fast.limits, plain.limits, 1e-13) && alike(fast.scales, plain.scales, 1e-13);
}

std::vector<double> sums_of(const Plan& plan, const void* x, const void* dy) {
  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  MemorySource source(x, dy);
  sum_blocks(plan, source, *sum);
  const double* dw = sum->finish();
  return {dw, dw + plan.problem.dw_count()};
}

std::vector<double> sums_of(const WgradProblem& problem, const void* x, const void* dy,
                            PlanOptions options) {
  options.in_memory = true;
  return sums_of(make_plan(problem, this_machine(), options), x, dy);
}

Plan plan_for(const Kernel& kernel, const WgradProblem& problem, int threads,
              std::int64_t block_bytes) {
  return make_plan(
      problem, this_machine(),
      {.kernel = &kernel, .threads = threads, .block_bytes = block_bytes, .in_memory = true});
}

Plan reference_plan(const WgradProblem& problem, std::int64_t block_bytes) {
  return make_plan(problem, this_machine(),
                   {.backend = Backend::reference, .block_bytes = block_bytes, .in_memory = true});
}

std::vector<double> sums_of(const Kernel& kernel, const WgradProblem& problem, const void* x,
                            const void* dy, int threads, std::int64_t block_bytes) {
  return sums_of(plan_for(kernel, problem, threads, block_bytes), x, dy);
}

Comparison compare_sums(const WgradProblem& problem, const std::vector<double>& got,
                        const Expected& reference) {
  return compare_gradients(problem, DType::f64, {}, got, reference, {});
}

}  // namespace convgrad::testing
