// partial_tree_test.cpp - partial gradients that are added while others are being computed.
#include "engine/partial_tree.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "engine/kernel.hpp"
#include "support/problems.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

double value_of(std::int64_t slice, std::int64_t i) {
  return 1.0 / static_cast<double>(slice * 31 + i % 7 + 1);
}

// The tree, level by level, with all partials in memory.
std::vector<double> plain_sum(std::int64_t slices, std::int64_t count) {
  std::vector<std::vector<double>> partials;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    for (partials.emplace_back(); std::ssize(partials.back()) < count;) {
      partials.back().push_back(value_of(slice, std::ssize(partials.back())));
    }
  }
  const auto at = [&](std::int64_t slice) -> std::vector<double>& {
    return partials[static_cast<std::size_t>(slice)];
  };
  for (std::int64_t step = 1; step < slices; step *= 2) {
    for (std::int64_t slice = 0; slice + step < slices; slice += 2 * step) {
      for (std::size_t i = 0; i < at(slice).size(); ++i) at(slice)[i] += at(slice + step)[i];
    }
  }
  return partials[0];
}

const WgradProblem kProblem = make({"", "conv2d", 1, 3, 8, 1, {{5, 3}, {5, 1}}}, DType::f32, true);
// Cut by taps and by output channels.
const std::vector<Tile> kTiles = {
    {{0, 2}, {0, 3}, {0, 8}}, {{2, 3}, {0, 3}, {0, 5}}, {{2, 3}, {0, 3}, {5, 8}}};

void add_values(double* partial, std::int64_t slice, const Tile& tile) {
  for (std::int64_t tap = tile.tap.begin; tap < tile.tap.end; ++tap) {
    for (std::int64_t c = tile.c.begin; c < tile.c.end; ++c) {
      for (std::int64_t k = tile.k.begin; k < tile.k.end; ++k) {
        const std::int64_t i = (tap * kProblem.group_c() + c) * kProblem.K + k;
        partial[i] += value_of(slice, i);
      }
    }
  }
}

}  // namespace

TEST_CASE("partials in little memory, few in any order, give the sum of the tree") {
  for (const std::int64_t slices : {1, 2, 3, 7, 8, 37, 200}) {
    for (const int threads : {1, 2, 5}) {
      SliceGrid grid;
      grid.chunks = slices;
      grid.partitions = slices;
      const std::int64_t live = live_partials(grid, tree_nodes(slices, {0, slices}), true, threads);
      CHECK(live <= tree_levels(slices) + 2 + threads);
      const std::int64_t count = kProblem.dw_count();
      const bool zeroed = threads == 2;
      std::vector<double> memory(static_cast<std::size_t>(live * count), zeroed ? 0.0 : NAN);
      PartialTree tree(kProblem, grid.count(), tree_nodes(slices, {0, slices}), kTiles,
                       memory.data(), live, zeroed);
      const bool backwards = tree.holds_all();
      CHECK(backwards >= (slices <= 3 || (slices <= 8 && threads > 1)));
      std::atomic<std::int64_t> next = 0, whole = 0;
      const auto tasks = slices * std::ssize(kTiles);
      std::vector<std::thread> workers;
      for (int worker = 0; worker < threads; ++worker) {
        workers.emplace_back([&, worker] {
          std::minstd_rand random(static_cast<unsigned>(worker + 1));
          for (std::int64_t task; (task = next.fetch_add(1)) < tasks;) {
            const std::int64_t turn = task / std::ssize(kTiles);
            const std::int64_t slice = backwards ? slices - 1 - turn : turn;
            const auto tile = static_cast<std::size_t>(task % std::ssize(kTiles));
            // Now and then a worker sleeps before it has memory, or while it has some.
            const auto pause = [&] {
              if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
            };
            pause();
            double* const partial = tree.partial(slice);
            pause();
            if (!tree.is_zero(slice)) clear_tile(kProblem, kTiles[tile], partial);
            add_values(partial, slice, kTiles[tile]);
            if (tree.complete(slice, tile) == memory.data()) ++whole;
          }
        });
      }
      for (std::thread& worker : workers) worker.join();
      CHECK(whole == std::ssize(kTiles));  // each tile once
      const double* sum = tree.partial(0);
      CAPTURE(slices);
      CAPTURE(threads);
      CHECK(std::vector<double>(sum, sum + count) == plain_sum(slices, count));
    }
  }
}

TEST_CASE("a failed task lets go of those that wait for memory") {
  SliceGrid grid;
  grid.chunks = grid.partitions = 2;
  std::vector<double> memory(static_cast<std::size_t>(kProblem.dw_count()), 0.0);
  PartialTree tree(kProblem, grid.count(), {{0, 2}}, kTiles, memory.data(), 1, false);
  CHECK(tree.partial(0) == memory.data());
  std::thread waits([&] { CHECK(tree.partial(1) == nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  tree.cancel();
  waits.join();
}
