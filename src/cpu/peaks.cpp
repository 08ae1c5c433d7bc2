// peaks.cpp - see peaks.hpp.
#include "cpu/peaks.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "base/buffer.hpp"
#include "base/clock.hpp"
#include "base/task_pool.hpp"
#include "convgrad/error.hpp"
#include "cpu/blas.hpp"
#include "cpu/isa/isa_set.hpp"
#include "cpu/peaks/peak_isa.hpp"
#include "engine/machine.hpp"

namespace convgrad {
namespace {

constexpr double kSeconds = 0.15;  // for each figure
// Long beside taking a task from the pool, short beside a time slice of the system: a thread that
// loses its core for a while leaves its tasks to the others.
constexpr double kTaskSeconds = 0.5e-3;
constexpr std::int64_t kTasksPerThread = 32;
constexpr std::int64_t kGemmSize = 1024;
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;
constexpr std::int64_t kReadPiece = std::int64_t{1} << 20;

// The shortest of as many runs as fit in kSeconds, but of at least 3: the first one also starts the
// threads and wakes the wide units.
double shortest(const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity(), total = 0;
  for (int run = 0; run < 3 || total < kSeconds; ++run) {
    const double time = seconds_of(work);
    best = std::min(best, time);
    total += time;
  }
  return best;
}

// As if somebody read it: otherwise the compiler need not compute it.
void keep(double value) { asm volatile("" : : "m"(value)); }

// A loop of rounds, and how many FLOPs one has.
struct Rounds {
  double flops;
  std::function<double(long)> loop;
};

// The chain tends to 0.5: no overflow, no subnormal numbers.
Rounds fma_f32_rounds(const PeakIsa& isa) {
  return {isa.flops_f32, [&isa](long rounds) { return isa.multiply_add_f32(rounds, 0.5F, 0.25F); }};
}

Rounds fma_f64_rounds(const PeakIsa& isa) {
  return {isa.flops_f64, [&isa](long rounds) { return isa.multiply_add_f64(rounds, 0.5, 0.25); }};
}

// GFLOP/s, in tasks that are dealt out to the threads. The rounds of a task are doubled until it
// takes kTaskSeconds, as their speed is not known before.
double arithmetic_peak(TaskPool& pool, const Rounds& work) {
  long rounds = 1024;
  while (seconds_of([&] { keep(work.loop(rounds)); }) < kTaskSeconds) rounds *= 2;
  const std::int64_t tasks = kTasksPerThread * pool.threads();
  std::vector<double> results(static_cast<std::size_t>(tasks));
  const double time = shortest([&] {
    pool.run(tasks, [&](std::int64_t task, int) {
      results[static_cast<std::size_t>(task)] = work.loop(rounds);
    });
  });
  for (const double result : results) keep(result);
  return static_cast<double>(tasks) * static_cast<double>(rounds) * work.flops / time * 1e-9;
}

// A product for each thread: OpenBLAS's own threads are never used. Factors of many values, so that
// no processor can take short cuts, and sums that stay small.
template <typename Acc>
double gemm_peak(TaskPool& pool) {
  constexpr std::int64_t n = kGemmSize;
  const auto factor = [](std::int64_t seed) {
    std::vector<Acc> values(static_cast<std::size_t>(n * n));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t step = i * 7919 + static_cast<std::size_t>(seed);
      values[i] = static_cast<Acc>(static_cast<double>(step % 1021) / 1021 - 0.5);
    }
    return values;
  };
  const std::vector<Acc> a = factor(1), b = factor(2);
  std::vector<std::vector<Acc>> c(static_cast<std::size_t>(pool.threads()));
  const double time = shortest([&] {
    pool.run(pool.threads(), [&](std::int64_t, int worker) {
      std::vector<Acc>& mine = c[static_cast<std::size_t>(worker)];
      mine.resize(static_cast<std::size_t>(n * n));
      gemm(n, n, n, {a.data(), n, false}, {b.data(), n, false}, Acc{0}, mine.data(), n);
    });
  });
  return 2.0 * n * n * n * pool.threads() / time * 1e-9;
}

// All caches of the third level together; 0 if Linux does not say.
std::int64_t third_level_bytes() {
  std::int64_t total = 0;
  std::set<int> seen;
  for (int cpu = 0;; ++cpu) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    std::ifstream id_file(folder + "id"), size_file(folder + "size");  // size is "32768K"
    int id = 0;
    std::int64_t kib = 0;
    if (!(size_file >> kib)) return total;
    if (!(id_file >> id)) id = 0;
    if (seen.insert(id).second) total += kib * 1024;
  }
}

// What is read: more than the caches hold, and at most a quarter of the memory. 0 if that is not
// enough to measure the memory and not the caches.
std::int64_t read_size(std::int64_t memory_bytes) {
  const std::int64_t caches = third_level_bytes();
  const std::int64_t size = std::min(std::max(kReadBytes, 4 * caches), memory_bytes / 4);
  return size < std::max(kReadBytes / 8, 2 * caches) ? 0 : size / kReadPiece * kReadPiece;
}

double read_peak(TaskPool& pool, const PeakIsa& isa, std::int64_t bytes) {
  const Buffer buffer(bytes, "the buffer that measures reads");
  // As many pieces as threads, so that each one reads what it has touched first.
  const std::int64_t pieces = bytes / kReadPiece,
                     parts = std::min<std::int64_t>(pieces, pool.threads());
  const auto offset = [&](std::int64_t part) { return part * pieces / parts * kReadPiece; };
  pool.run(parts, [&](std::int64_t part, int) {
    std::fill(buffer.data() + offset(part), buffer.data() + offset(part + 1), std::byte{1});
  });
  std::vector<unsigned long> sums(static_cast<std::size_t>(parts));
  const double time = shortest([&] {
    pool.run(parts, [&](std::int64_t part, int) {
      sums[static_cast<std::size_t>(part)] =
          isa.read(buffer.data() + offset(part), offset(part + 1) - offset(part));
    });
  });
  for (const unsigned long sum : sums) keep(static_cast<double>(sum));
  return static_cast<double>(bytes) / time * 1e-9;
}

const PeakIsa& best_isa([[maybe_unused]] const Machine& machine) {
#if defined(__x86_64__)
  if (lacks_avx512(machine).empty()) return kPeakAvx512;
  if (lacks_avx2(machine).empty()) return kPeakAvx2;
#elif defined(__aarch64__)
  if (lacks_neon(machine).empty()) return kPeakNeon;
#endif
  return kPeakPortable;
}

#ifdef __x86_64__
Rounds bf16_rounds(const PeakBf16& set) { return {set.flops, set.multiply_add}; }

bool has_amx(const Machine& machine) { return lacks(machine, {"amx_tile", "amx_bf16"}).empty(); }
#endif

}  // namespace

Peaks measure_peaks(const PeakRequest& request) {
  const Machine& machine = this_machine();
  const PeakIsa& isa = best_isa(machine);
  TaskPool pool(request.threads > 0 ? request.threads : machine.threads);
  Peaks peaks;
  peaks.threads = pool.threads();
  peaks.instruction_set = isa.name;
  if (request.f32) {
    peaks.fma_f32 = arithmetic_peak(pool, fma_f32_rounds(isa));
    peaks.gemm_f32 = gemm_peak<float>(pool);
  }
  if (request.f64) {
    peaks.fma_f64 = arithmetic_peak(pool, fma_f64_rounds(isa));
    peaks.gemm_f64 = gemm_peak<double>(pool);
  }
#ifdef __x86_64__
  if (request.bf16 && lacks(machine, {"avx512f", "avx512_bf16"}).empty()) {
    peaks.avx512_bf16 = arithmetic_peak(pool, bf16_rounds(kPeakAvx512Bf16));
  }
  if (request.bf16 && has_amx(machine)) {
    peaks.amx_bf16 = arithmetic_peak(pool, bf16_rounds(kPeakAmxBf16));
  }
#endif
  if (request.read) {
    const std::int64_t limit =
        request.memory_limit_bytes > 0 ? request.memory_limit_bytes : machine.memory_bytes;
    peaks.read_bytes = read_size(limit);
    if (peaks.read_bytes > 0) peaks.read_gbytes_per_s = read_peak(pool, isa, peaks.read_bytes);
  }
  return peaks;
}

}  // namespace convgrad
