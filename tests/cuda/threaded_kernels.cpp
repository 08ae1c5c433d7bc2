// threaded_kernels.cpp - the code of the device kernels, run by threads under the thread
// sanitizer (threaded_device.hpp).
//   convgrad_threaded_kernels [--all] [NAME]   NAME: a part of the cases' names
// First every case must be exact, without a race. Then each place where a kernel waits is dropped,
// in one case after the other until the sanitizer reports that; with --all, in every case that
// comes by, which shows for each kernel which of its waits are needed. A child process for each, as
// the first report ends it, as many at a time as there are processors.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "cuda/threaded_device.hpp"
#include "support/problems.hpp"
#include "support/tensors.hpp"

extern "C" const char* __tsan_default_options() { return "halt_on_error=1:atexit_sleep_ms=0"; }

namespace convgrad::testing {

namespace {

struct Case {
  const char* kernel;
  DType dtype;
  bool channels_last;
  ProblemSpec spec;
  double first = 0;  // of dy, if not 0: where it is not finite, kernels leave out products
  bool one_partition = false;  // of all slices, so that one begins with the last chunk of an image
};

const Case kCases[] = {
    {"cuda_simt_gemm", DType::f32, true, {"wide", "conv2d", 1, 9, 40, 1, {{25, 3}, {21, 3}}}},
    {"cuda_simt_gemm", DType::f32, false, {"narrow", "conv2d", 1, 3, 20, 1, {{25, 3}, {21, 3}}}},
    {"cuda_simt_gemm", DType::f32, true, {"Inf", "conv2d", 1, 3, 20, 1, {{5, 3}, {6, 3}}}, kInf},
    {"cuda_streaming", DType::f32, true, {"3x3", "depthwise", 1, 33, 33, 33, {{21, 3}, {31, 3}}}},
    {"cuda_streaming",
     DType::f32,
     false,
     {"strips", "depthwise", 1, 9, 18, 9, {{9, 3, 1, 2}, {61, 3, 2}}}},
    {"cuda_streaming",
     DType::f32,
     true,
     {"groups of 4", "conv2d", 1, 16, 16, 4, {{20, 3}, {13, 3}}}},
    {"cuda_streaming", DType::bf16, false, {"5x5", "depthwise", 1, 17, 17, 17, {{20, 5}, {13, 5}}}},
    {"cuda_streaming", DType::bf16, true, {"7x7", "depthwise", 1, 17, 17, 17, {{20, 7}, {13, 7}}}},
    {"cuda_streaming", DType::f32, true, {"Inf", "depthwise", 1, 9, 9, 9, {{7, 3}, {8, 3}}}, kInf},
    {"cuda_streaming",
     DType::f32,
     true,
     {"Inf, chunks", "depthwise", 1, 1, 1, 1, {{3, 3}, {180, 3}}},
     kInf},
    {"cuda_mma", DType::bf16, true, {"wide", "conv2d", 1, 120, 128, 1, {{30, 1}, {41, 1}}}},
    {"cuda_mma", DType::bf16, false, {"narrow", "conv2d", 1, 25, 41, 1, {{30, 2}, {41, 1}}}},
    // 57 rows of 64: chunks of 8 rows, and of one. The last slice has both of one.
    {"cuda_mma",
     DType::bf16,
     true,
     {"short chunk", "conv2d", 2, 8, 8, 1, {{57, 1}, {64, 1}}},
     0,
     true},
    {"cuda_mma_bf16x3", DType::f32, false, {"2x1", "conv2d", 1, 24, 40, 1, {{15, 2}, {41, 1}}}},
    {"cuda_mma_bf16x3", DType::f32, true, {"wide", "conv2d", 1, 60, 120, 1, {{17, 1}, {41, 1}}}},
    {"cuda_mma_bf16x3", DType::f32, true, {"Inf", "conv2d", 1, 8, 8, 1, {{5, 3}, {6, 3}}}, kInf},
    {"cuda_mma_tf32", DType::f32, true, {"1x1", "conv2d", 1, 24, 40, 1, {{30, 1}, {41, 1}}}},
    {"cuda_mma_f64", DType::f64, false, {"1x2", "conv2d", 1, 24, 40, 1, {{15, 1}, {41, 2}}}},
    {"cuda_wgmma", DType::bf16, true, {"1x1", "conv2d", 1, 72, 136, 1, {{30, 1}, {41, 1}}}},
    {"cuda_wgmma", DType::bf16, false, {"stride 2", "conv2d", 2, 9, 10, 1, {{31, 3, 2}, {41, 1}}}},
    {"cuda_wgmma", DType::bf16, true, {"Inf", "conv2d", 1, 8, 8, 1, {{5, 3}, {6, 3}}}, kInf},
};

std::string name(const Case& c) { return cat(c.kernel, ", ", c.spec.name); }

bool is_exact(const Case& c, bool backwards) {
  const WgradProblem problem = make(c.spec, c.dtype, c.channels_last);
  const auto x = filled(c.dtype, problem.x_count(), Fill::small_integers, 1);
  const auto dy = c.first != 0 ? dy_with_first_pixel(problem, c.first)
                               : filled(c.dtype, problem.dy_count(), Fill::small_integers, 2);
  const Expected expected = reference_of(problem, x.data(), dy.data(), 1);
  Plan plan = plan_with(problem, c.kernel);
  if (c.one_partition) {
    SliceGrid& slices = plan.schedule.slices;
    slices.interleave *= std::exchange(slices.partitions, 1);
  }
  const auto got = emulated_sums<ThreadedDevice>(plan, x.data(), dy.data(), backwards);
  return std::ranges::equal(got, expected.values, [](double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  });
}

// One case in a process of its own.
struct Job {
  Job(const Case& a_case, std::string site, bool reversed = false)
      : what(&a_case), dropped(std::move(site)), backwards(reversed) {}

  const Case* what;
  std::string dropped;  // a site, or ""
  bool backwards;

  enum class End { exact, race, wrong } end = End::wrong;
  double seconds = 0;
  std::vector<std::string> sites;  // that were met
  std::string output;
};

constexpr const char* kSiteMark = "site ";

[[noreturn]] void run_in_child(const Job& job, int output) {
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  bool exact = false;
  try {
    ThreadedDevice::sites.dropped = job.dropped;
    exact = is_exact(*job.what, job.backwards);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
  }
  for (const std::string& site : ThreadedDevice::sites.met())
    std::cout << kSiteMark << site << "\n";
  std::cout.flush();
  std::_Exit(exact ? 0 : 1);
}

void read_output(Job& job, std::FILE* file, int status) {
  std::rewind(file);
  for (char line[4096]; std::fgets(line, sizeof(line), file) != nullptr;) {
    const std::string text(line, std::strcspn(line, "\n"));
    if (text.starts_with(kSiteMark)) {
      job.sites.push_back(text.substr(std::strlen(kSiteMark)));
    } else {
      job.output += text + "\n";
    }
  }
  const bool race = job.output.find("ThreadSanitizer: data race") != std::string::npos;
  job.end = race                                            ? Job::End::race
            : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? Job::End::exact
                                                            : Job::End::wrong;
}

// All of them, as many at a time as there are processors.
void run_jobs(std::vector<Job>& jobs) {
  struct Running {
    Job* job;
    std::FILE* file;
    std::chrono::steady_clock::time_point begin;
  };
  std::map<pid_t, Running> running;
  const auto end_one = [&] {
    int status;
    const pid_t child = wait(&status);
    if (child < 0) throw std::runtime_error("a child process is lost");
    const auto [job, file, begin] = running.at(child);
    job->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    read_output(*job, file, status);
    std::fclose(file);
    running.erase(child);
  };
  for (Job& job : jobs) {
    if (running.size() >= std::max(std::thread::hardware_concurrency(), 1u)) end_one();
    std::FILE* const file = std::tmpfile();
    if (file == nullptr) throw std::runtime_error("no temporary file");
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = fork();
    if (child == 0) run_in_child(job, fileno(file));
    running[child] = {&job, file, begin};
  }
  while (!running.empty()) end_one();
}

// The line of a site's source.
std::string source_line(const std::string& site) {
  const std::string at = site.substr(0, site.rfind(':'));
  std::ifstream file(at.substr(0, at.rfind(':')));
  std::string line;
  for (int n = std::stoi(at.substr(at.rfind(':') + 1)); n > 0; --n) std::getline(file, line);
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

// Runs all cases, in both orders of their threads; false if one fails. `met`: the cases in which a
// site is, those that take the least time first.
bool cases_pass(std::string_view part, std::map<std::string, std::vector<const Case*>>& met) {
  std::vector<Job> jobs;
  for (const Case& c : kCases) {
    if (name(c).find(part) == std::string::npos) continue;
    for (const bool backwards : {false, true}) jobs.emplace_back(c, "", backwards);
  }
  run_jobs(jobs);
  bool passed = true;
  std::ranges::stable_sort(jobs, {}, &Job::seconds);
  for (const Job& job : jobs) {
    const bool ok = job.end == Job::End::exact;
    passed = passed && ok;
    std::printf("%-32s %-9s %5.1f s  %s\n%s", name(*job.what).c_str(),
                job.backwards ? "backwards" : "", job.seconds, ok ? "exact" : "FAILED",
                job.output.c_str());
    if (job.backwards) continue;
    for (const std::string& site : job.sites) met[site].push_back(job.what);
  }
  return passed;
}

bool drops_are_seen(const std::map<std::string, std::vector<const Case*>>& met, bool all) {
  std::map<std::string, int> seen;
  bool passed = true;
  for (std::size_t round = 0;; ++round) {
    std::vector<Job> jobs;
    for (const auto& [site, cases] : met) {
      if (round < cases.size() && (all || seen[site] == 0)) jobs.emplace_back(*cases[round], site);
    }
    if (jobs.empty()) break;
    run_jobs(jobs);
    for (const Job& job : jobs) {
      if (job.end == Job::End::race) ++seen[job.dropped];
      passed = passed && job.end != Job::End::wrong;
      const char* const text = job.end == Job::End::race    ? "seen"
                               : job.end == Job::End::exact ? "not seen"
                                                            : "FAILED";
      std::printf("%-9s without %s, in %s\n%s", text,
                  job.dropped.substr(job.dropped.rfind('/') + 1).c_str(), name(*job.what).c_str(),
                  job.end == Job::End::wrong ? job.output.c_str() : "");
    }
  }
  for (const auto& [site, count] : seen) {
    if (count > 0) continue;
    // The answer of each_any() is needed even where its barrier orders nothing.
    const std::string line = source_line(site);
    const bool answers = line.find("each_any") != std::string::npos;
    passed = passed && answers;
    std::printf("%s: nothing races without %s\n  %s\n", answers ? "no order" : "FAILED",
                site.c_str(), line.c_str());
  }
  return passed;
}

}  // namespace
}  // namespace convgrad::testing

int main(int argc, char** argv) {
  using namespace convgrad::testing;
  [[maybe_unused]] bool all = false;
  std::string_view part;
  for (const std::string_view argument : std::span(argv + 1, argv + argc)) {
    if (argument == "--all") {
      all = true;
    } else {
      part = argument;
    }
  }
  std::map<std::string, std::vector<const Case*>> met;
  bool passed = cases_pass(part, met) && !met.empty();
#ifdef CONVGRAD_THREAD_SANITIZER
  passed = drops_are_seen(met, all) && passed;
#else
  std::puts("no races are looked for without the thread sanitizer");
#endif
  return passed ? 0 : 1;
}
