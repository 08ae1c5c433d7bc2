// partial_file_test.cpp - files of partial sums, and the sums of ranks, give the tree of all
// slices.
#include "engine/partial_file.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "engine/run.hpp"
#include "mpi/ranks.hpp"
#include "support/cases.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// One value for each slice, whose sum depends on the order.
std::vector<double> slice_values(std::int64_t slices) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (std::int64_t i = 0; i < slices; ++i) values.push_back(normal(random));
  return values;
}

double tree_sum(const std::vector<double>& values, Range node) {
  if (node.size() == 1) return values[static_cast<std::size_t>(node.begin)];
  const auto [left, right] = tree_children(node);
  return tree_sum(values, left) + tree_sum(values, right);
}

// Ranks that are threads: messages wait in a queue for each pair, sends wait until it is empty.
class Mail {
 public:
  void send(int from, int to, const double* values, std::int64_t count) {
    std::unique_lock lock(mutex_);
    box_[{from, to}].assign(values, values + count);
    changed_.notify_all();
    changed_.wait(lock, [&] { return box_[{from, to}].empty(); });
  }
  void receive(int from, int to, double* values, std::int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !box_[{from, to}].empty(); });
    CHECK(std::ssize(box_[{from, to}]) == count);
    std::ranges::copy(box_[{from, to}], values);
    box_[{from, to}].clear();
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::vector<double>> box_;
};

class ThreadRank final : public cli::Messages {
 public:
  ThreadRank(Mail& mail, int rank) : mail_(mail), rank_(rank) {}
  int rank() const override { return rank_; }
  void send(const double* values, std::int64_t count, int to) override {
    mail_.send(rank_, to, values, count);
  }
  void receive(double* values, std::int64_t count, int from) override {
    mail_.receive(from, rank_, values, count);
  }

 private:
  Mail& mail_;
  int rank_;
};

}  // namespace

TEST_CASE("ranks add up the tree, however the slices are shared out") {
  std::mt19937 random(3);
  for (const std::int64_t slices : {1, 2, 5, 8, 21, 64}) {
    const std::vector<double> values = slice_values(slices);
    for (const int ranks : {1, 2, 3, 8}) {
      std::vector<std::int64_t> cuts = {0, slices};
      while (std::ssize(cuts) <= ranks) {
        cuts.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(slices) + 1));
      }
      std::ranges::sort(cuts);
      std::vector<Range> parts;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) parts.push_back({cuts[i], cuts[i + 1]});
      CAPTURE(slices);
      CAPTURE(ranks);
      Mail mail;
      const std::int64_t count = 300000;  // more than one message
      double* whole = nullptr;
      std::vector<std::vector<std::vector<double>>> memory(parts.size());
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          const auto r = static_cast<std::size_t>(rank);
          std::vector<cli::NodeSums> nodes;
          for (const Range& node : tree_nodes(slices, parts[r])) {
            memory[r].emplace_back(static_cast<std::size_t>(count), tree_sum(values, node));
          }
          std::size_t i = 0;
          for (const Range& node : tree_nodes(slices, parts[r])) {
            nodes.push_back({node, memory[r][i++].data()});
          }
          ThreadRank messages(mail, rank);
          double* const sums = cli::add_ranks(messages, parts, nodes, count);
          if (rank == 0) whole = sums;
          if (rank > 0) CHECK(sums == nullptr);
        });
      }
      for (std::thread& thread : threads) thread.join();
      REQUIRE(whole != nullptr);
      CHECK(whole[0] == tree_sum(values, {0, slices}));
      CHECK(whole[count - 1] == whole[0]);
    }
  }
}

TEST_CASE("a header says all of the problem") {
  for (const ProblemSpec& spec : basic_problems()) {
    for (const DType dtype : kDTypes) {
      const WgradProblem problem = make(spec, dtype, dtype != DType::f16);
      CAPTURE(describe(problem));
      PartialHeader header;
      header.problem = problem;
      header.algorithm = "direct";
      header.program = "convgrad \"x\"";
      header.of_slices = 9;
      header.images = {0, problem.N};
      header.slices = {2, 9};
      const PartialHeader back = parse_partial_header(partial_header_text(header), "a.npz");
      CHECK(back.problem == problem);
      CHECK(back.images == header.images);
      CHECK(back.slices == header.slices);
      CHECK(partial_difference(header, back, "a", "b").empty());
      PartialHeader other = back;
      other.problem.axis[2].pad_before += 1;
      CHECK(partial_difference(header, other, "a", "b").starts_with("b: problem "));
    }
  }
}

TEST_CASE("parts in files give the bits of the whole in every algorithm") {
  const TempDir folder;
  for (const DType dtype : kDTypes) {
    for (const ProblemSpec& spec :
         std::vector<ProblemSpec>{{"3x3", "conv2d", 7, 6, 10, 1, {{46, 3}, {43, 3}}},
                                  {"depthwise", "depthwise", 40, 8, 8, 8, {{15, 3}, {14, 3}}}}) {
      const WgradProblem problem = make(spec, dtype, true);
      const auto x = filled(dtype, problem.x_count(), Fill::normal, 11);
      const auto dy = filled(dtype, problem.dy_count(), Fill::normal, 12);
      CAPTURE(describe(problem));
      for_each_kernel_here(problem, [&](const Kernel& kernel) {
        PlanOptions options;
        options.in_memory = true;
        options.algorithm = kernel.name;
        const auto sum_of = [&](const PlanOptions& o, const auto& use) {
          const Plan plan = make_plan(problem, this_machine(), o);
          TaskPool pool(plan.threads);
          const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
          MemorySource source(x.data(), dy.data());
          sum_blocks(plan, source, *sum);
          use(plan, *sum);
        };
        std::vector<double> whole;
        sum_of(options, [&](const Plan& plan, BlockSum& sum) {
          CHECK(plan.schedule.nodes.size() == 1);
          const double* dw = sum.finish();
          whole.assign(dw, dw + problem.dw_count());
        });
        std::vector<PartialFile> files;
        for (std::int64_t part = 0; part < 3; ++part) {
          PlanOptions o = options;
          o.batch = {BatchRange::Kind::share, {}, part, 3};
          o.threads = static_cast<int>(part) + 1;
          sum_of(o, [&](const Plan& plan, BlockSum& sum) {
            std::vector<const double*> sums;
            for (std::size_t node = 0; node < plan.schedule.nodes.size(); ++node) {
              sums.push_back(sum.finish(node));
            }
            const std::string path = folder.file(cat(part, ".npz"));
            write_partial(path, partial_header(plan, "test"), plan.schedule.nodes, sums, {});
            files.push_back(open_partial(path));
          });
        }
        check_partials(files);
        const Buffer sums = add_partials(files);
        CHECK(std::memcmp(sums.data(), whole.data(), whole.size() * 8) == 0);
      });
    }
  }
}
