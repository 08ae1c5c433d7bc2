#include "cpu/peaks.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "base/buffer.hpp"
#include "base/clock.hpp"
#include "base/task_pool.hpp"
#include "cpu/amx/amx_isa.hpp"
#include "cpu/isa/isa_set.hpp"

namespace convgrad {
namespace {

constexpr double kSeconds = 0.15;  // for each figure
// A task is long beside taking it from the pool, and short beside a time slice of the system: a
// thread that loses its core for a while leaves its tasks to the others.
constexpr double kTaskSeconds = 0.5e-3;
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;

// Returns the shortest of 3 runs at least: the first also starts threads and wakes wide units.
double shortest(const std::function<void()>& work) {
  double best = seconds_of(work), total = best;
  for (int run = 1; run < 3 || total < kSeconds; ++run) {
    const double time = seconds_of(work);
    best = std::min(best, time);
    total += time;
  }
  return best;
}

// Returns GFLOP/s. A task's rounds of so many FLOPs each are doubled until it takes kTaskSeconds.
double arithmetic_peak(TaskPool& pool, double flops, const std::function<void(long)>& work) {
  long rounds = 16;
  while (seconds_of([&] { work(rounds); }) < kTaskSeconds) rounds *= 2;
  const std::int64_t tasks = std::int64_t{32} * pool.threads();
  const double time = shortest([&] { pool.run(tasks, [&](std::int64_t, int) { work(rounds); }); });
  return static_cast<double>(tasks) * static_cast<double>(rounds) * flops / time * 1e-9;
}

template <typename Element>
double multiply_add_peak(TaskPool& pool, const OuterProductIsa<Element>& isa) {
  const double flops = 2 * (isa.multiply_chains(2, 1, 1) - isa.multiply_chains(1, 1, 1));
  // The chains tend to 0.5, which neither overflows nor becomes subnormal.
  return arithmetic_peak(pool, flops, [&](long rounds) { isa.multiply_chains(rounds, 0.5, 0.25); });
}

#ifdef __x86_64__
double amx_tile_peak(TaskPool& pool) {
  constexpr long kSteps = 4, kBlock = kSteps * kAmxTile, kCount = (kAmxMostA + kAmxMostB) * kBlock;
  constexpr double kFlops = 2.0 * kAmxMostA * kAmxMostB * kSteps * kAmxSums * kAmxRow;
  alignas(64) AmxBits a[kCount];
  // Numbers have both signs, lie around 1, and change: tiles are faster with the same ones.
  for (long i = 0; i < kCount; ++i) {
    a[i] = static_cast<AmxBits>(0x3f00 | i * 7919 % 256 | (i * i % 7 < 3 ? 0x8000 : 0));
  }
  const AmxPanels panels = {a, a + kAmxMostA * kBlock, kBlock, 0, 0, 1};
  return arithmetic_peak(pool, kFlops, [&](long rounds) {
    const std::vector<AmxRun> runs(static_cast<std::size_t>(rounds),
                                   {0, {0, kBlock, 2 * kBlock}, kSteps});
    alignas(64) float sums[kAmxMostA * kAmxMostB * kAmxSums];
    kAmxTiles.begin();
    kAmxTiles.multiply(kAmxMostA, kAmxMostB, panels, runs.data(), rounds, sums);
    kAmxTiles.end();
  });
}
#endif

// Returns 0 if a quarter of the memory is not enough to measure the memory and not the caches.
std::int64_t read_size(std::int64_t memory_bytes) {
  std::int64_t caches = 0, kib = 0;
  std::set<int> seen;
  for (int cpu = 0, id = 0;; ++cpu) {
    const std::string folder = cat("/sys/devices/system/cpu/cpu", cpu, "/cache/index3/");
    std::ifstream id_file(folder + "id"), size_file(folder + "size");  // size is "32768K"
    if (!(size_file >> kib)) break;
    id_file >> id;
    if (seen.insert(id).second) caches += kib * 1024;
  }
  const std::int64_t size = std::min(std::max(kReadBytes, 4 * caches), memory_bytes / 4);
  return size < std::max(kReadBytes / 8, 2 * caches) ? 0 : size;
}

double read_peak(TaskPool& pool, std::int64_t bytes) {
  const Buffer buffer(bytes, "the buffer that measures reads");
  auto* const words = buffer.as<std::uint64_t>();
  const std::int64_t part = bytes / 8 / pool.threads();  // each thread reads what it has touched
  pool.run(pool.threads(), [&](std::int64_t i, int) { std::fill_n(words + i * part, part, 1); });
  const double time = shortest([&] {
    pool.run(pool.threads(), [&](std::int64_t i, int) {
      const auto sum = std::accumulate(words + i * part, words + (i + 1) * part, std::uint64_t{0});
      asm volatile("" : : "r"(sum));  // as if somebody read it
    });
  });
  return static_cast<double>(bytes) / time * 1e-9;
}

const IsaSet& best_isa([[maybe_unused]] const Machine& machine) {
#if defined(__x86_64__)
  if (lacks_avx512(machine).empty()) return kAvx512Isa;
  if (lacks_avx2(machine).empty()) return kAvx2Isa;
#elif defined(__aarch64__)
  if (lacks_neon(machine).empty()) return kNeonIsa;
#endif
  return kPortableIsa;
}

}  // namespace

Peaks measure_peaks(const PeakRequest& request) {
  const Machine& machine = this_machine();
  const IsaSet& isa = best_isa(machine);
  TaskPool pool(request.threads > 0 ? request.threads : machine.threads);
  Peaks peaks;
  peaks.threads = pool.threads();
  peaks.instruction_set = isa.name;
  if (request.f32) peaks.fma_f32 = multiply_add_peak(pool, isa.f32.outer_product);
  if (request.f64) peaks.fma_f64 = multiply_add_peak(pool, isa.f64.outer_product);
#ifdef __x86_64__
  if (request.bf16 && lacks(machine, {"amx_tile", "amx_bf16"}).empty()) {
    peaks.amx_bf16 = amx_tile_peak(pool);
  } else if (request.bf16 && lacks_avx512_bf16(machine).empty()) {
    peaks.avx512_bf16 = multiply_add_peak(pool, kAvx512Bf16Isa);
  }
#endif
  if (request.read) {
    const std::int64_t limit = request.memory_limit_bytes;
    peaks.read_bytes = read_size(limit > 0 ? limit : machine.memory_bytes);
    if (peaks.read_bytes > 0) peaks.read_gbytes_per_s = read_peak(pool, peaks.read_bytes);
  }
  return peaks;
}

}  // namespace convgrad
