// partial_tree.hpp - the partial gradients of the slices, added in a fixed binary tree while others
// are still being computed, so that few of them are in memory at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "convgrad/problem.hpp"
#include "engine/kernel.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

// Counts the partial gradients that a job needs at a time, where slices begin in their order. Those
// that are complete but wait for their neighbour in the tree are at most one for each level and
// worker. The sums of all nodes but one may be there before the last slices begin. One more lets 8
// slices of two threads begin in any order.
std::int64_t live_partials(const SliceGrid& slices, const std::vector<Range>& nodes, bool one_block,
                           int threads);

// The sums of the nodes are added as the tree of schedule.hpp says, tile by tile, by whichever
// worker completes the second of a pair. Which one that is changes no bit.
class PartialTree {
 public:
  // problem, tiles and memory are the caller's. memory has room for `live` partial gradients in
  // float64, [tap][c][k]; zeroed says that it is zeros. nodes are those of the slices that will be
  // completed, neighbours in ascending order.
  PartialTree(const WgradProblem& problem, std::int64_t slices, const std::vector<Range>& nodes,
              const std::vector<Tile>& tiles, double* memory, std::int64_t live, bool zeroed);

  // Tells whether there is memory for all slices at a time.
  bool holds_all() const { return holds_all_; }
  // Returns the memory of a slice, for which it may wait until others are complete; null after
  // cancel(). In the end, the memory of a node's first slice has the node's sums.
  double* partial(std::int64_t slice);
  // Tells whether its memory came as zeros.
  bool is_zero(std::int64_t slice) const { return zeros_[static_cast<std::size_t>(slice)] != 0; }
  // Is called when all chunks of the slice's tile have been added. Returns the sums of the whole
  // gradient if its tile is complete with that, else null.
  const double* complete(std::int64_t slice, std::size_t tile);
  // Wakes workers that wait, as a task has failed.
  void cancel();

 private:
  double* memory_of(std::int64_t slice) const;

  const WgradProblem& problem_;
  const std::int64_t count_, slices_;
  const Range part_;  // the slices that are summed
  const std::vector<Tile>& tiles_;
  double* const memory_;
  const bool zeroed_, holds_all_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::int64_t opened_ = part_.begin;  // the first slice that has not had memory
  std::int64_t used_ = 0;              // slots of memory that have been a slice's
  std::vector<std::int64_t> free_;     // slots of memory
  std::vector<std::int64_t> slot_;     // of an open slice
  std::vector<char> zeros_;            // of an open slice: is_zero()
  std::vector<std::int64_t> merged_;   // tiles of a slice that its left neighbour has
  std::vector<bool> waiting_;  // [first slice of the right one of a pair][tile]: one is there
  bool failed_ = false;
};

}  // namespace convgrad
