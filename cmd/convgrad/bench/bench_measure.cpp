// bench_measure.cpp - tensors, runs, statistics.
#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

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

int amx_products(const BenchCase& c) {
  const std::string_view name = algorithm_name(c.plan);
  if (name == "outer_product_amx_bf16x3") return 6;
  if (name == "outer_product_amx_fp16") return 1;
  if (name != "outer_product_amx") return 0;
  return c.problem.dtype == DType::f16 ? 4 : 1;
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

// A slice begins with the yardstick and a run that does not count, as it finds other caches, clocks
// and sleeping threads: a sixth of the time at most. Clocks change every few milliseconds.
constexpr double kSliceSeconds = 5e-3, kSliceStarts = 5;

// run() gives the seconds of one run.
template <typename Run>
Runs runs_of(Run&& run, const Yardstick* yardstick, std::int64_t warmup, std::int64_t repeat,
             double min_time) {
  for (std::int64_t i = 0; i < warmup; ++i) run();
  Runs runs;
  double total = 0, slice_end = 0, yard = 0;
  while (std::ssize(runs.seconds) < repeat || total < min_time) {
    if (yardstick != nullptr && total >= slice_end) {
      const auto begin = Clock::now();
      yard = yardstick->seconds();
      run();
      slice_end = total + std::max(kSliceSeconds, kSliceStarts * seconds_since(begin));
      runs.per_yardstick.push_back(std::numeric_limits<double>::infinity());
    }
    const double seconds = run();
    runs.seconds.push_back(seconds);
    total += seconds;
    if (yardstick == nullptr) continue;
    runs.per_yardstick.back() = std::min(runs.per_yardstick.back(), seconds / yard);
  }
  return runs;
}

std::span<const std::byte> bytes_of(const Buffer& buffer) {
  return {buffer.data(), static_cast<std::size_t>(buffer.size_bytes())};
}

#if defined(__x86_64__)
void drop_line(const std::byte* address) { _mm_clflush(address); }
void await_dropped_lines() { _mm_mfence(); }
#elif defined(__aarch64__)
void drop_line(const std::byte* address) { asm volatile("dc civac, %0" ::"r"(address) : "memory"); }
void await_dropped_lines() { asm volatile("dsb ish" ::: "memory"); }
#else
void drop_line(const std::byte*) {
  throw Error(ErrorKind::unavailable,
              "--cold-cache: not available on this processor; leave it out");
}
void await_dropped_lines() {}
#endif

// Writes back what the caches of all cores hold of the bytes, and drops it there.
void drop_from_caches(std::span<const std::byte> bytes) {
  constexpr std::size_t kLine = 64;  // no processor of these has shorter ones
  for (std::size_t at = 0; at < bytes.size(); at += kLine) drop_line(&bytes[at]);
  if (!bytes.empty()) drop_line(&bytes.back());
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

void Runs::append(const Runs& more) {
  yardstick = more.yardstick;
  seconds.insert(seconds.end(), more.seconds.begin(), more.seconds.end());
  per_yardstick.insert(per_yardstick.end(), more.per_yardstick.begin(), more.per_yardstick.end());
}

Measured measured(const BenchCase& bench_case, Runs runs) {
  Measured m;
  m.bench_case = &bench_case;
  m.yardstick = std::move(runs.yardstick);
  if (!runs.per_yardstick.empty()) m.per_yardstick = statistics(runs.per_yardstick).median;
  m.time = statistics(std::move(runs.seconds));
  return m;
}

Runs measure_runs(const BenchCase& c, const Tensors& tensors, const BenchOptions& options,
                  std::int64_t repeat, double min_time) {
  if (c.plan.cuda()) {
    const std::unique_ptr<DeviceSum> sum = device_sum(c, tensors);
    return runs_of([&] { return sum->time_replay(); }, nullptr, options.warmup, repeat, min_time);
  }
  const WgradProblem& pb = c.problem;
  const Buffer dw(pb.dw_count() * dtype_bytes(pb.out_dtype), "the gradient");
  const Yardstick::Tensors all = {bytes_of(tensors.x), bytes_of(tensors.dy), bytes_of(dw)};
  const auto run = [&] {
    if (c.cold_cache) std::ranges::for_each(all, drop_from_caches);
    return seconds_of([&] {
      filter_gradient(pb, tensors.x.data(), tensors.dy.data(), dw.data(), c.plan_options);
    });
  };
  if (c.cold_cache || !(flop_count(pb) > 0)) {
    return runs_of(run, nullptr, options.warmup, repeat, min_time);
  }
  const Yardstick yardstick(flop_count(pb), amx_products(c), all);
  Runs runs = runs_of(run, &yardstick, options.warmup, repeat, min_time);
  runs.yardstick = yardstick.name();
  return runs;
}

}  // namespace convgrad::cli
