// cpu_sum.cpp - the gradient by a kernel on the processor's threads: tasks of (slice, tile),
// partial gradients, the tree.
#include <algorithm>
#include <functional>
#include <vector>

#include "base/buffer.hpp"
#include "base/integers.hpp"
#include "engine/block_sum.hpp"
#include "engine/kernel.hpp"
#include "engine/partial_tree.hpp"

namespace convgrad {
namespace {

// A run is the chunks of one slice that lie in a block.
struct SliceRun {
  std::int64_t slice;
  ChunkRun run;
  bool first, last;  // with them the slice begins, or is complete
};

class CpuSum final : public BlockSum {
 public:
  CpuSum(const Plan& plan, TaskPool& pool)
      : plan_(plan),
        cpu_(*plan_.cpu()),
        pool_(pool),
        seen_(seen_by_kernels(plan_.problem)),
        chunks_(is_row() ? cpu_.kernel->chunks(seen_) : plan_.schedule.chunks),
        tiles_(tiles_of(plan_.problem, cpu_.steps)),
        partials_(plan_.memory.partials, "partial gradients"),
        workspaces_(plan_.memory.workspaces, "the kernel's workspaces"),
        tree_(plan_.problem, plan_.schedule.slices.count(), plan_.schedule.nodes, tiles_,
              partials_.as<double>(), cpu_.live_partials, partials_.zeroed()) {
    if (plan_.schedule.chunks.count == 0) {  // no task will clear it
      std::fill_n(partials_.as<double>(), plan_.memory.partials / 8, 0.0);
    }
  }

  void add(const Block& images, std::int64_t index, const Progress&) override {
    Block block = images;
    if (is_row()) {
      const Range all = {0, seen_.axis[2].out};
      block.pixels = {Range{0, 1}, {0, 1}, {0, 1}, all};
      block.input = {Range{0, 1}, {0, 1}, all};
      block.x_strides = box_strides(seen_, seen_.C, {1, 1, all.end});
      block.dy_strides = box_strides(seen_, seen_.K, {1, 1, all.end});
    }
    std::vector<SliceRun> runs = runs_in(plan_.schedule.blocks.chunk_range(index));
    if (tree_.holds_all()) {
      // Few slices are uneven: a long one that begins last would keep one thread alone.
      std::ranges::stable_sort(runs, std::greater(), [](const SliceRun& slice) {
        return ceil_div(slice.run.end - slice.run.begin, slice.run.step);
      });
    }
    const auto tiles = static_cast<std::int64_t>(tiles_.size()), count = std::ssize(runs);
    // Tiles of a slice one after the other read the same pixels, from a cache that all threads
    // share. Tiles of groups read other channels of them: there each thread has a slice of its own
    // (as long as they take turns), so that what it fetches beside its channels is not another's.
    const std::int64_t together =
        std::min<std::int64_t>(plan_.problem.groups > 1 ? plan_.threads : 1, count);
    pool_.run(count * tiles, [&](std::int64_t task, int worker) {
      const std::int64_t first = task / (together * tiles) * together;
      const std::int64_t slices = std::min(together, count - first);
      const std::int64_t in_turn = task - first * tiles;
      add_tile(block, runs[static_cast<std::size_t>(first + in_turn % slices)],
               static_cast<std::size_t>(in_turn / slices), worker);
    });
  }

  // A tile is rounded by the thread that completes it, while its sums are in that one's cache.
  // Larger ones are rounded faster from the first element to the last.
  bool round_to_result(void* result) override {
    constexpr std::int64_t kCachedBytes = std::int64_t{1} << 20;
    if (plan_.schedule.chunks.count == 0 || plan_.schedule.nodes.size() != 1) return false;
    const Tile& tile = tiles_[0];
    const bool cached = tile.tap.size() * tile.c.size() * tile.k.size() * 8 <= kCachedBytes;
    if (!cached && !may_store_result()) return false;
    result_ = static_cast<std::byte*>(result);
    return true;
  }

  double* finish(std::size_t node) override {
    return result_ != nullptr ? nullptr : tree_.partial(plan_.schedule.nodes[node].begin);
  }

 private:
  bool is_row() const { return seen_.N != plan_.problem.N; }

  // Slices without a chunk in the block make no tasks.
  std::vector<SliceRun> runs_in(Range chunks) {
    const SliceGrid& slices = plan_.schedule.slices;
    std::vector<SliceRun> runs;
    while (slices.chunks_of_partition(partition_).end <= chunks.begin) ++partition_;
    for (std::int64_t partition = partition_; partition < slices.partitions; ++partition) {
      if (slices.chunks_of_partition(partition).begin >= chunks.end) break;
      const Range some = slices.slices_of({partition, partition + 1});
      for (std::int64_t slice = some.begin; slice < some.end; ++slice) {
        const ChunkRun run = slices.chunks_of(slice, chunks);
        const ChunkRun all = slices.chunks_of(slice, {0, slices.chunks});
        if (run.begin >= run.end) continue;
        const std::int64_t last = all.begin + (all.end - 1 - all.begin) / all.step * all.step;
        runs.push_back({slice, run, run.begin == all.begin, last < chunks.end});
      }
    }
    return runs;
  }

  void add_tile(const Block& block, const SliceRun& run, std::size_t tile, int worker) {
    double* const partial = tree_.partial(run.slice);
    if (partial == nullptr) return;
    TileSums sums = {partial, run.first && !tree_.is_zero(run.slice)};
    if (sums.fresh && !cpu_.kernel->stores) clear_tile(plan_.problem, tiles_[tile], partial);
    if (result_ != nullptr && may_store_result()) {
      sums.fresh = true;  // to store sums where they are zeros does no harm
      sums.result = result_;
    }
    std::byte* const workspace =
        workspaces_.data() + plan_.memory.workspaces / plan_.threads * worker;
    try {
      cpu_.kernel->accumulate(seen_, chunks_, block, run.run, tiles_[tile], workspace, sums);
    } catch (...) {
      tree_.cancel();
      throw;
    }
    if (!run.last) return;
    const double* const all = tree_.complete(run.slice, tile);
    if (all == nullptr || result_ == nullptr || sums.are_in_result) return;
    const DType dtype = plan_.problem.out_dtype;
    for_each_row(plan_.problem, tiles_[tile], [&](std::int64_t first, std::int64_t count) {
      round_to(dtype, all + first, count, result_ + first * dtype_bytes(dtype));
    });
  }

  // Sums of one chunk are the result, but for rounding that the kernel can do.
  bool may_store_result() const {
    const DType sums = accumulator_dtype(plan_.problem.dtype), result = plan_.problem.out_dtype;
    return cpu_.kernel->stores_result && plan_.schedule.chunks.count == 1 &&
           (result == sums || (result == DType::bf16 && sums == DType::f32));
  }

  const Plan plan_;
  const CpuPlan& cpu_;  // of plan_
  TaskPool& pool_;
  const WgradProblem seen_;     // by the kernel
  const ChunkGrid chunks_;      // of that
  std::int64_t partition_ = 0;  // the first that is not over
  const std::vector<Tile> tiles_;
  std::byte* result_ = nullptr;  // of round_to_result()
  Buffer partials_;
  Buffer workspaces_;  // one for each thread
  PartialTree tree_;
};

}  // namespace

std::unique_ptr<BlockSum> make_sum(const Plan& plan, TaskPool& pool) {
  if (plan.cuda()) return make_device_sum(plan);
  if (plan.cpu()) return std::make_unique<CpuSum>(plan, pool);
  return make_reference_sum(plan.problem, pool);
}

}  // namespace convgrad
