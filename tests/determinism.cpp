// determinism.cpp - convgrad_determinism [SHAPES [RUNS [JOBS]]]: one hash for every number of
// threads, memory limit and block size, run after run, for every algorithm that computes a problem.
//
// 100 shapes and 20 runs unless they are given. Tensors are read from files, block by block, as the
// program does. JOBS problems (2) are worked on at a time, which disturbs the threads of each.
// Status 1 if any problem had two hashes. Says what it has counted after each tenth.
#include <rapidcheck.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>

#include "convgrad/npy.hpp"
#include "properties/random_case.hpp"
#include "support/temp_dir.hpp"

namespace convgrad::testing {
namespace {

constexpr int kThreads[] = {1, 2, 3, 4, 8, 16};
// Several chunks: with fewer there is nothing to be divided.
constexpr std::int64_t kLeastChunks = 4;
constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;

std::string write(const TempDir& folder, const RandomCase& c, Operand operand) {
  const bool is_x = operand == Operand::x;
  const auto bytes = made_tensor(c, operand);
  return folder.write(
      is_x ? "x.npy" : "dy.npy",
      npy_header_text(c.dtype, is_x ? x_shape(c.problem()) : dy_shape(c.problem())) +
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// FNV-1a of the sums' bits.
std::uint64_t hash_of(const double* sums, std::int64_t count) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits;
    std::memcpy(&bits, &sums[i], sizeof bits);
    for (int byte = 0; byte < 8; ++byte, bits >>= 8) hash = (hash ^ (bits & 0xff)) * 0x100000001b3;
  }
  return hash;
}

std::uint64_t run(const Plan& plan, TaskPool& pool, const std::string& x_path,
                  const std::string& dy_path) {
  NpyReader x(x_path), dy(dy_path);
  NpySource source(x, dy);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  sum_blocks(plan, source, *sum);
  return hash_of(sum->finish(), plan.problem.dw_count());
}

std::optional<Plan> plan_or_none(const WgradProblem& problem, const PlanOptions& options) {
  try {
    return make_plan(problem, this_machine(), options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::runtime) throw;
    return std::nullopt;  // over the limit
  }
}

// The smallest limit under which the job still runs.
std::int64_t least_limit(const WgradProblem& problem, PlanOptions options) {
  std::int64_t low = 0, high = kUnlimited;
  while (high - low > 1024) {
    options.memory_limit_bytes = (low + high) / 2;
    (plan_or_none(problem, options) ? high : low) = options.memory_limit_bytes;
  }
  return high;
}

// Every number of threads with every memory limit and block size that fit each other.
std::vector<Plan> plans_of(const WgradProblem& problem, std::string_view algorithm) {
  const std::int64_t bytes = dtype_bytes(problem.dtype) * (problem.x_count() + problem.dy_count());
  std::vector<Plan> plans;
  for (const int threads : kThreads) {
    PlanOptions options{.algorithm = std::string(algorithm), .threads = threads};
    const std::int64_t least = least_limit(problem, options);
    for (const std::int64_t limit : {std::int64_t{0}, least + bytes / 2, least}) {
      for (const std::int64_t block_bytes : {std::int64_t{0}, std::int64_t{1}, bytes / 3}) {
        options.memory_limit_bytes = limit;
        options.block_bytes = block_bytes;
        if (auto plan = plan_or_none(problem, options)) plans.push_back(*plan);
      }
    }
  }
  return plans;
}

struct Count {
  std::int64_t problems = 0, plans = 0, runs = 0, several = 0;
};

class Counts {
 public:
  explicit Counts(std::int64_t cases) : cases_(cases) {}

  // hashes: with the first plan that gave each.
  void add(const RandomCase& c, std::string_view algorithm, std::int64_t plans, std::int64_t runs,
           const std::map<std::uint64_t, std::string>& hashes) {
    const std::lock_guard lock(mutex_);
    const bool several = hashes.size() > 1;
    for (Count* count : {&counts_[algorithm], &all_}) {
      ++count->problems;
      count->plans += plans;
      count->runs += runs;
      count->several += several ? 1 : 0;
    }
    if (!several) return;
    std::cout << hashes.size() << " hashes: " << repeat_lines(c, cat(" -a ", algorithm)) << "\n";
    for (const auto& [hash, plan] : hashes) std::cout << "  " << hash << ": " << plan << "\n";
  }

  // One shape of one dtype is done. A line for each tenth of them: a run that must be
  // stopped has said something.
  void finish_case() {
    const std::lock_guard lock(mutex_);
    ++finished_;
    if (finished_ * 10 / cases_ == (finished_ - 1) * 10 / cases_) return;
    std::cout << finished_ << " of " << cases_ << " shapes and dtypes: ";
    print_all();
  }

  // True if every problem had one hash, and there was one.
  bool print() const {
    for (const auto& [name, count] : counts_) {
      std::cout << name << ": " << count.problems << " problems, " << count.plans << " plans, "
                << count.runs << " runs, " << count.problems - count.several
                << " problems of one hash, " << count.several << " of several\n";
    }
    std::cout << "all: ";
    print_all();
    return all_.several == 0 && all_.runs > 0;
  }

 private:
  void print_all() const {
    std::cout << all_.runs << " runs of " << all_.problems << " problems, " << all_.several
              << " with several hashes" << std::endl;
  }

  std::int64_t cases_, finished_ = 0;
  std::mutex mutex_;
  Count all_;
  std::map<std::string_view, Count> counts_;
};

void check(const RandomCase& c, int runs, Counts& counts) {
  const TempDir folder;
  const std::string x = write(folder, c, Operand::x), dy = write(folder, c, Operand::dy);
  const WgradProblem problem = c.problem();
  for (const Kernel& kernel : kernels()) {
    if (!kernel.why_not(problem, this_machine()).empty()) continue;
    std::map<std::uint64_t, std::string> hashes;
    const std::vector<Plan> plans = plans_of(problem, kernel.name);
    for (const Plan& plan : plans) {
      TaskPool pool(plan.threads);
      for (int i = 0; i < runs; ++i) hashes.try_emplace(run(plan, pool, x, dy), describe(plan));
    }
    counts.add(c, kernel.name, std::ssize(plans), std::ssize(plans) * runs, hashes);
  }
}

// Random shapes that are cut into chunks, the same every time.
std::vector<RandomCase> shapes(int count) {
  CaseLimits limits;
  limits.distribution = Distribution::normal;
  limits.multiply_adds = 1e5;
  const rc::Gen<RandomCase> cases = random_cases(limits);
  rc::Random random(1);
  std::vector<RandomCase> result;
  while (std::ssize(result) < count) {
    const RandomCase c = cases(random.split()).value();
    if (chunk_grid(c.problem()).count >= kLeastChunks) result.push_back(c);
  }
  return result;
}

bool check_all(int shape_count, int runs, int jobs) {
  std::vector<RandomCase> cases;
  std::int64_t sliced = 0;
  for (RandomCase c : shapes(shape_count)) {
    sliced += slice_grid(c.problem(), chunk_grid(c.problem())).count() > 1 ? 1 : 0;
    for (const DType dtype : kDTypes) {
      c.dtype = dtype;
      cases.push_back(c);
    }
  }
  Counts counts(std::ssize(cases));
  TaskPool pool(jobs);
  pool.run(std::ssize(cases), [&](std::int64_t i, int) {
    check(cases[static_cast<std::size_t>(i)], runs, counts);
    counts.finish_case();
  });
  std::cout << shape_count << " shapes of at least " << kLeastChunks << " chunks, " << sliced
            << " of several slices, x 4 dtypes; threads 1, 2, 3, 4, 8, 16 x memory limits x block "
            << "sizes x " << runs << " runs:\n";
  return counts.print();
}

}  // namespace
}  // namespace convgrad::testing

int main(int argc, char** argv) {
  try {
    const auto number = [&](int at, int usual) {
      return argc > at ? std::max(1, std::atoi(argv[at])) : usual;
    };
    return convgrad::testing::check_all(number(1, 100), number(2, 20), number(3, 2)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "convgrad_determinism: " << error.what() << "\n";
    return 1;
  }
}
