// bench_measure.cpp - tensors, runs, statistics.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/integers.hpp"
#include "bench/bench.hpp"
#include "engine/block_sum.hpp"
#include "generate/generate.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPiece = 65536;
// Rounds go over all rows, so what disturbs for some seconds meets a third of a row's runs.
constexpr std::int64_t kRounds = 3;

// Returns numbers that are uniform in [-1, 1), the same on any threads.
Buffer made(const WgradProblem& problem, Operand operand, std::int64_t count, TaskPool& pool) {
  const TensorMaker maker(problem, operand, {Distribution::uniform, 1});
  const std::int64_t item = dtype_bytes(problem.dtype);
  Buffer buffer(count * item, "a tensor");
  pool.run(ceil_div(count, kPiece), [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece;
    maker.fill(begin, std::min(kPiece, count - begin), buffer.data() + begin * item);
  });
  return buffer;
}

// Interpolates linearly between neighbours.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

struct Operands {
  Buffer x, dy;
};

Operands made_tensors(const WgradProblem& problem, int threads) {
  TaskPool pool(threads);
  return {made(problem, Operand::x, problem.x_count(), pool),
          made(problem, Operand::dy, problem.dy_count(), pool)};
}

Operands read_tensors(Job& job) {
  const WgradProblem& pb = job.problem;
  const std::int64_t item = dtype_bytes(pb.dtype);
  Operands whole = {Buffer(pb.x_count() * item, "a tensor"),
                    Buffer(pb.dy_count() * item, "a tensor")};
  job.x->read_all(whole.x.data());
  job.dy->read_all(whole.dy.data());
  return whole;
}

Statistics statistics(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  Statistics s;
  s.n = static_cast<std::int64_t>(times.size());
  const auto n = static_cast<double>(times.size());
  s.min = times.front();
  s.median = quantile(times, 0.5);
  s.p95 = quantile(times, 0.95);
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / n;
  double squares = 0;
  for (const double time : times) squares += (time - mean) * (time - mean);
  if (times.size() > 1 && mean > 0) s.variation = std::sqrt(squares / (n - 1)) / mean;
  return s;
}

// Returns the seconds of each run but those of the warmup; run() returns those of one.
template <typename Run>
std::vector<double> runs_of(Run&& run, std::int64_t warmup, std::int64_t repeat, double min_time) {
  for (std::int64_t i = 0; i < warmup; ++i) run();
  std::vector<double> runs;
  double total = 0;
  while (std::ssize(runs) < repeat || total < min_time) {
    runs.push_back(run());
    total += runs.back();
  }
  return runs;
}

// Returns the seconds of at least `repeat` runs, which take at least `min_time` seconds.
std::vector<double> measure_runs(const BenchCase& c, const Operands& tensors, std::int64_t warmup,
                                 std::int64_t repeat, double min_time) {
  if (c.plan.cuda()) {
    if (c.plan.schedule.blocks.count > 1) {
      throw Error(ErrorKind::runtime, c.name, " does not fit the device's memory as a whole",
                  Hint("measure a smaller batch"));
    }
    // Now the tensors are on the device, and runs copy nothing.
    const std::unique_ptr<DeviceSum> sum = make_device_sum(c.plan);
    MemorySource source(tensors.x.data(), tensors.dy.data());
    sum_blocks(c.plan, source, *sum);
    sum->finish();
    return runs_of([&] { return sum->time_replay(); }, warmup, repeat, min_time);
  }
  const WgradProblem& pb = c.problem;
  const Buffer dw(pb.dw_count() * dtype_bytes(pb.out_dtype), "the gradient");
  const auto run = [&] {
    return seconds_of([&] {
      filter_gradient(pb, tensors.x.data(), tensors.dy.data(), dw.data(), c.plan_options);
    });
  };
  return runs_of(run, warmup, repeat, min_time);
}

}  // namespace

std::vector<Measured> measure(const std::vector<BenchCase>& cases, std::optional<Job>& job,
                              const BenchOptions& options,
                              const std::function<void(Measured&)>& on_done) {
  const std::int64_t rounds = cases.size() == 1 ? 1 : std::min(kRounds, options.repeat);
  std::vector<std::vector<double>> runs(cases.size());
  std::vector<Measured> rows;
  Operands tensors;
  const BenchCase* owner = nullptr;  // of tensors
  Progress progress("measuring");
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t repeat =
        options.repeat * (round + 1) / rounds - options.repeat * round / rounds;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const BenchCase& c = cases[i];
      const double done =
          static_cast<double>(round) + static_cast<double>(i) / static_cast<double>(cases.size());
      progress.show(done / static_cast<double>(rounds));
      if (owner == nullptr || owner->tensors != c.tensors) {
        tensors = {};  // first free the old ones
        tensors = job ? read_tensors(*job) : made_tensors(c.problem, this_machine().threads);
        owner = &c;
      }
      const auto more = measure_runs(c, tensors, options.warmup, repeat,
                                     options.min_time / static_cast<double>(rounds));
      runs[i].insert(runs[i].end(), more.begin(), more.end());
      if (round + 1 < rounds) continue;
      rows.push_back({&c, statistics(std::move(runs[i])), {}});
      progress.wipe();
      on_done(rows.back());
    }
  }
  return rows;
}

}  // namespace convgrad::cli
