// bench_measure.cpp - tensors, runs, statistics.
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.hpp"
#include "bench/bench.hpp"
#include "convgrad/run.hpp"
#include "engine/device_sum.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPiece = 65536;

// splitmix64 (Steele, Lea, Flood 2014), of the element's number: the same data on any threads.
std::uint64_t hash(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

// Uniform in [-1, 1), rounded to dtype.
Buffer uniform(DType dtype, std::int64_t count, std::uint64_t seed, TaskPool& pool) {
  Buffer buffer(count * dtype_bytes(dtype), "a tensor");
  with_scalar(dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    Scalar* values = buffer.as<Scalar>();
    pool.run((count + kPiece - 1) / kPiece, [&](std::int64_t piece, int) {
      const std::int64_t end = std::min((piece + 1) * kPiece, count);
      for (std::int64_t i = piece * kPiece; i < end; ++i) {
        const std::uint64_t bits = hash(seed + static_cast<std::uint64_t>(i)) >> 11;
        values[i] = from_double<Scalar>(static_cast<double>(bits) * 0x1p-52 - 1);
      }
    });
  });
  return buffer;
}

Buffer whole(NpyReader& reader, std::int64_t bytes) {
  Buffer buffer(bytes, "a tensor");
  const std::vector<std::int64_t>& shape = reader.header().shape;
  reader.read_box(std::vector<std::int64_t>(shape.size(), 0), shape, buffer.data());
  reader.finish();
  return buffer;
}

// Between neighbours, linearly.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Tensors made_tensors(const WgradProblem& problem, int threads) {
  TaskPool pool(threads);
  return {uniform(problem.dtype, problem.x_count(), 1, pool),
          uniform(problem.dtype, problem.dy_count(), std::uint64_t{1} << 62, pool)};
}

Tensors read_tensors(Job& job) {
  const WgradProblem& pb = job.problem;
  const std::int64_t item = dtype_bytes(pb.dtype);
  return {whole(*job.x, pb.x_count() * item), whole(*job.dy, pb.dy_count() * item)};
}

Statistics statistics(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  Statistics s;
  s.n = static_cast<std::int64_t>(times.size());
  const auto n = static_cast<double>(times.size());
  s.min = times.front();
  s.median = quantile(times, 0.5);
  s.p95 = quantile(times, 0.95);
  s.mean = std::accumulate(times.begin(), times.end(), 0.0) / n;
  double squares = 0;
  for (const double time : times) squares += (time - s.mean) * (time - s.mean);
  s.deviation = times.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return s;
}

std::optional<double> Statistics::variation() const {
  if (n < 2 || !(mean > 0)) return {};
  return deviation / mean;
}

namespace {

// run() gives the seconds of one run.
template <typename Run>
std::vector<double> times_of(Run&& run, std::int64_t warmup, std::int64_t repeat, double min_time) {
  for (std::int64_t i = 0; i < warmup; ++i) run();
  std::vector<double> times;
  double total = 0;
  while (std::ssize(times) < repeat || total < min_time) {
    times.push_back(run());
    total += times.back();
  }
  return times;
}

#if defined(__x86_64__)
void drop_line(const char* address) { _mm_clflush(address); }
void await_dropped_lines() { _mm_mfence(); }
#elif defined(__aarch64__)
void drop_line(const char* address) { asm volatile("dc civac, %0" ::"r"(address) : "memory"); }
void await_dropped_lines() { asm volatile("dsb ish" ::: "memory"); }
#else
void drop_line(const char*) {
  throw Error(ErrorKind::unavailable,
              "--cold-cache: not available on this processor; leave it out");
}
void await_dropped_lines() {}
#endif

// Writes back what the caches of all cores hold of the bytes, and drops it there.
void drop_from_caches(const void* data, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;  // no processor of these has shorter ones
  const char* const begin = static_cast<const char*>(data);
  for (std::int64_t at = 0; at < bytes; at += kLine) drop_line(begin + at);
  if (bytes > 0) drop_line(begin + bytes - 1);
  await_dropped_lines();
}

// The tensors are there already.
std::unique_ptr<DeviceSum> device_sum(const BenchCase& c, const Tensors& tensors) {
  if (c.plan.schedule.blocks.count > 1) {
    throw Error(ErrorKind::runtime, c.name, " does not fit the device's memory as a whole; ",
                "measure a smaller batch");
  }
  std::unique_ptr<DeviceSum> sum = make_device_sum(c.plan);
  MemorySource source(tensors.x.data(), tensors.dy.data());
  sum_blocks(c.plan, source, *sum);
  sum->finish();
  return sum;
}

}  // namespace

std::vector<double> run_times(const BenchCase& c, const Tensors& tensors,
                              const BenchOptions& options, std::int64_t repeat, double min_time) {
  if (c.plan.cuda()) {
    const std::unique_ptr<DeviceSum> sum = device_sum(c, tensors);
    return times_of([&] { return sum->time_replay(); }, options.warmup, repeat, min_time);
  }
  const WgradProblem& pb = c.problem;
  const std::int64_t item = dtype_bytes(pb.dtype),
                     dw_bytes = pb.dw_count() * dtype_bytes(pb.out_dtype);
  const Buffer dw(dw_bytes, "the gradient");
  const auto run = [&] {
    if (c.cold_cache) {
      drop_from_caches(tensors.x.data(), pb.x_count() * item);
      drop_from_caches(tensors.dy.data(), pb.dy_count() * item);
      drop_from_caches(dw.data(), dw_bytes);
    }
    return seconds_of([&] {
      filter_gradient(pb, tensors.x.data(), tensors.dy.data(), dw.data(), c.plan_options);
    });
  };
  return times_of(run, options.warmup, repeat, min_time);
}

}  // namespace convgrad::cli
