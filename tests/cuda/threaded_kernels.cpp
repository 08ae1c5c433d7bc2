// threaded_kernels.cpp - the code of the device kernels, run by threads under the thread
// sanitizer (emulated_device.hpp).
//   convgrad_threaded_kernels [--races] [NAME]   NAME: a part of the cases' names
// First every case must be exact, without a race. Then, but for --races, each place where a kernel
// waits is dropped, in one case after the other until the sanitizer reports that. Each is a
// process, which the first report ends, as many at a time as there are processors.
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>

#include "cuda/emulated_block.hpp"
#include "support/problems.hpp"
#include "support/tensors.hpp"

extern "C" const char* __tsan_default_options() { return "halt_on_error=1:atexit_sleep_ms=0"; }

namespace convgrad::testing {

namespace {

enum class Special : std::uint8_t {
  none,
  infinity,       // begins dy: where it is not finite, kernels leave out products
  one_partition,  // of all slices, so that one begins with the last chunk of an image
  by_threads,     // lines are copied, as before compute capability 9.0
  one_slice,      // instead of as many as there are chunks for
  two_slices      // as the sanitizer has no more threads than a few blocks of a cluster
};

struct Case {
  const char* kernel;
  DType dtype;
  bool channels_last;
  ProblemSpec spec;
  Special special = Special::none;
};

using enum DType;
using enum Special;
constexpr const char *kSimt = "cuda_simt_gemm", *kLines = "cuda_streaming", *kMma = "cuda_mma",
                     *kMmaF64 = "cuda_mma_f64", *kWgmma = "cuda_wgmma",
                     *kBf16x3 = "cuda_wgmma_bf16x3";
const Case kCases[] = {
    {kSimt, f32, true, {"wide", "conv2d", 1, 9, 40, 1, {{25, 3}, {21, 3}}}},
    {kSimt, f32, false, {"narrow", "conv2d", 1, 3, 20, 1, {{25, 3}, {21, 3}}}},
    {kLines, f32, true, {"3x3", "depthwise", 1, 33, 33, 33, {{21, 3}, {31, 3}}}},
    {kLines, f32, false, {"strips", "depthwise", 1, 9, 18, 9, {{9, 3, 1, 2}, {61, 3, 2}}}},
    {kLines, bf16, true, {"threads", "depthwise", 1, 33, 33, 33, {{21, 3}, {31, 3}}}, by_threads},
    {kLines, f32, true, {"groups of 4", "conv2d", 1, 16, 16, 4, {{45, 3}, {13, 3}}}},
    {kLines, bf16, false, {"5x5", "depthwise", 1, 17, 17, 17, {{20, 5}, {13, 5}}}},
    {kLines, bf16, true, {"7x7", "depthwise", 1, 17, 17, 17, {{20, 7}, {13, 7}}}},
    {kLines, f16, true, {"planes", "depthwise", 9, 16, 16, 16, {{5, 3}, {6, 3}}}},
    {kLines, bf16, true, {"stride 2", "depthwise", 1, 40, 40, 40, {{41, 5, 2}, {39, 3, 2}}}},
    {kLines, f32, true, {"Inf", "depthwise", 1, 9, 9, 9, {{7, 3}, {8, 3}}}, infinity},
    {kLines, f32, true, {"Inf, chunks", "depthwise", 1, 1, 1, 1, {{3, 3}, {180, 3}}}, infinity},
    {kMma, bf16, true, {"wide", "conv2d", 1, 120, 128, 1, {{30, 1}, {41, 1}}}},
    {kMma, bf16, false, {"narrow", "conv2d", 1, 25, 41, 1, {{30, 2}, {41, 1}}}},
    // 57 rows of 64: chunks of 8 rows, and of one. The last slice has both of one.
    {kMma, bf16, true, {"short chunk", "conv2d", 2, 8, 8, 1, {{57, 1}, {64, 1}}}, one_partition},
    {kMmaF64, f64, false, {"1x2", "conv2d", 1, 24, 40, 1, {{15, 1}, {41, 2}}}},
    {kWgmma, bf16, true, {"1x1", "conv2d", 1, 72, 136, 1, {{30, 1}, {41, 1}}}},
    {kWgmma, bf16, true, {"3x3", "conv2d", 3, 40, 24, 1, {{18, 3}, {11, 3}}}},
    // Two warpgroups write where the other one's last operands are.
    {kWgmma, bf16, true, {"writes dw", "conv2d", 1, 72, 136, 1, {{9, 1}, {9, 1}}}, one_slice},
    {kWgmma, bf16, false, {"stride 2", "conv2d", 2, 24, 10, 1, {{31, 3, 2}, {41, 1}}}, two_slices},
    {kWgmma, bf16, true, {"colours", "conv2d", 2, 3, 10, 1, {{31, 5, 2}, {41, 3, 2}}}},
    {kWgmma, bf16, true, {"more than a sum", "conv2d", 1, 8, 8, 1, {{80, 1}, {80, 1}}}, one_slice},
    {kWgmma, bf16, true, {"Inf", "conv2d", 1, 16, 8, 1, {{5, 3}, {6, 3}}}, infinity},
    {kBf16x3, f32, true, {"3x3", "conv2d", 3, 40, 24, 1, {{18, 3}, {11, 3}}}, two_slices},
    {kBf16x3, f32, false, {"stages again", "conv2d", 14, 40, 24, 1, {{9, 3}, {9, 3}}}, one_slice},
    {kBf16x3, f32, true, {"Inf, colours", "conv2d", 1, 3, 8, 1, {{5, 3}, {6, 3}}}, infinity},
    {kWgmma, bf16, true, {"Inf, colours", "conv2d", 1, 3, 8, 1, {{5, 3}, {6, 3}}}, infinity},
};

std::string name(const Case& c) { return cat(c.kernel, ", ", c.spec.name); }

bool is_exact(const Case& c) {
  const WgradProblem problem = make(c.spec, c.dtype, c.channels_last);
  Tensors tensors(problem, Fill::small_integers, 1);
  if (c.special == infinity) tensors.dy = dy_with_first_pixel(problem, kInf);
  const Expected expected = reference_of(problem, tensors.x.data(), tensors.dy.data(), 1);
  Plan plan = plan_with(problem, c.kernel);
  if (c.special == one_partition) {
    SliceGrid& slices = plan.schedule.slices;
    slices.interleave *= std::exchange(slices.partitions, 1);
  }
  emulated_bulk_copies = c.special != by_threads;
  if (c.special == one_slice || c.special == two_slices) {
    const std::int64_t slices = c.special == one_slice ? 1 : 2;
    plan.schedule.slices = deal_slices(plan.schedule.chunks, slices, slices, 1);
    plan.schedule.nodes = {{0, slices}};
  }
  return std::ranges::equal(emulated_sums(plan, tensors), expected.values, [](double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  });
}

constexpr std::string_view kSiteMark = "site ";

// What a process of its own does.
[[noreturn]] void run_case(const Case& c, const std::string& dropped) {
  bool exact = false;
  try {
    sites.dropped = dropped;
    exact = is_exact(c);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
  }
  for (const auto& [site, orders] : sites.met) std::cout << kSiteMark << site.name() << "\n";
  std::cout.flush();
  std::_Exit(exact ? 0 : 1);
}

struct Outcome {
  bool exact = false, race = false;
  std::vector<std::string> sites;  // that were met
  std::string output;
};

Outcome outcome_of(const char* program, const Case& c, const std::string& dropped) {
  const std::string command = cat("'", program, "' --case ", &c - kCases, " '", dropped, "' 2>&1");
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process for a case");
  Outcome outcome;
  for (char line[4096]; std::fgets(line, sizeof(line), pipe) != nullptr;) {
    const std::string text(line, std::strcspn(line, "\n"));
    if (text.starts_with(kSiteMark)) {
      outcome.sites.push_back(text.substr(kSiteMark.size()));
    } else {
      outcome.output += text + "\n";
    }
  }
  const int status = pclose(pipe);
  outcome.race = outcome.output.find("ThreadSanitizer: data race") != std::string::npos;
  outcome.exact = !outcome.race && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return outcome;
}

// f(0) ... f(count - 1), as many at a time as there are processors.
template <class F>
void at_a_time(std::size_t count, F&& f) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i) {
    workers.emplace_back([&] {
      for (std::size_t n; (n = next++) < count;) f(n);
    });
  }
}

// The cases that a site is in.
using Met = std::map<std::string, std::vector<const Case*>>;

// Runs all cases; false if one fails.
bool cases_pass(const char* program, std::string_view part, Met& met) {
  std::vector<std::pair<const Case*, Outcome>> runs;
  for (const Case& c : kCases) {
    if (name(c).find(part) != std::string::npos) runs.emplace_back(&c, Outcome{});
  }
  std::atomic<bool> passed = true;
  at_a_time(runs.size(), [&](std::size_t i) {
    auto& [c, outcome] = runs[i];
    outcome = outcome_of(program, *c, "");
    if (!outcome.exact) passed = false;
    std::printf("%-32s %s\n%s", name(*c).c_str(), outcome.exact ? "exact" : "FAILED",
                outcome.output.c_str());
  });
  for (const auto& [c, outcome] : runs) {
    for (const std::string& site : outcome.sites) met[site].push_back(c);
  }
  return passed;
}

bool drops_are_seen(const char* program, const Met& met) {
  const std::vector<Met::value_type> all(met.begin(), met.end());
  std::atomic<bool> passed = true;
  at_a_time(all.size(), [&](std::size_t i) {
    const std::string& site = all[i].first;
    for (const Case* c : all[i].second) {
      const Outcome outcome = outcome_of(program, *c, site);
      std::printf("%-9s without %s, in %s\n%s", outcome.race ? "seen" : "not seen",
                  site.substr(site.rfind('/') + 1).c_str(), name(*c).c_str(),
                  outcome.race || outcome.exact ? "" : outcome.output.c_str());
      if (!outcome.race && !outcome.exact) passed = false;
      if (outcome.race) return;
    }
    passed = false;
    std::printf("FAILED: nothing races without %s\n", site.c_str());
  });
  return passed;
}

}  // namespace
}  // namespace convgrad::testing

int main(int argc, char** argv) {
  using namespace convgrad::testing;
  if (argc > 3 && argv[1] == std::string_view("--case")) {
    run_case(kCases[std::stoi(argv[2])], argv[3]);
  }
  const bool races_alone = argc > 1 && argv[1] == std::string_view("--races");
  const int names = races_alone ? 2 : 1;
  const std::string_view part = argc > names ? argv[names] : "";
  Met met;
  bool passed = cases_pass(argv[0], part, met) && !met.empty();
  if (races_alone) return passed ? 0 : 1;
  if (kSanitized) {
    passed = drops_are_seen(argv[0], met) && passed;
  } else {
    std::puts("no races are looked for without the thread sanitizer");
  }
  return passed ? 0 : 1;
}
