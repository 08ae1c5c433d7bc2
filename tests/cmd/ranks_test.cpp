// ranks_test.cpp - the sums of ranks give the tree of all slices.
#include "mpi/ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "engine/partial_tree.hpp"

using namespace convgrad;

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
