#include "engine/partial_tree.hpp"

#include <algorithm>

namespace convgrad {

std::int64_t live_partials(const SliceGrid& slices, const std::vector<Range>& nodes, bool one_block,
                           int threads) {
  if (nodes.empty()) return 0;
  // Several blocks keep the slices of a partition from one to the next.
  const std::int64_t kept = one_block ? 1 : slices.interleave;
  return std::min(nodes.back().end - nodes.front().begin,
                  tree_levels(slices.count()) + std::ssize(nodes) + kept + threads);
}

PartialTree::PartialTree(const WgradProblem& problem, std::int64_t slices,
                         const std::vector<Range>& nodes, const std::vector<Tile>& tiles,
                         double* memory, std::int64_t live, bool zeroed)
    : problem_(problem),
      count_(problem.dw_count()),
      slices_(slices),
      part_(nodes.empty() ? Range{} : Range{nodes.front().begin, nodes.back().end}),
      tiles_(tiles),
      memory_(memory),
      zeroed_(zeroed),
      holds_all_(live >= part_.size()),
      slot_(static_cast<std::size_t>(slices_)),
      zeros_(static_cast<std::size_t>(slices_)),
      merged_(static_cast<std::size_t>(slices_), 0),
      waiting_(static_cast<std::size_t>(slices_) * tiles.size(), false) {
  for (std::int64_t slot = live; slot-- > 0;) free_.push_back(slot);
}

// Slices get memory in their order: if later ones could take it all, those before them would never
// complete, and it would never be free again.
double* PartialTree::partial(std::int64_t slice) {
  std::unique_lock lock(mutex_);
  while (opened_ <= slice) {
    freed_.wait(lock, [&] { return failed_ || opened_ > slice || !free_.empty(); });
    if (failed_) return nullptr;
    if (opened_ > slice) break;
    const std::int64_t slot = free_.back();
    free_.pop_back();
    // Slots are first used in their order.
    const bool first_use = slot == used_;
    if (first_use) ++used_;
    zeros_[static_cast<std::size_t>(opened_)] = zeroed_ && first_use;
    slot_[static_cast<std::size_t>(opened_++)] = slot;
  }
  return memory_of(slice);
}

double* PartialTree::memory_of(std::int64_t slice) const {
  return memory_ + slot_[static_cast<std::size_t>(slice)] * count_;
}

void PartialTree::cancel() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  freed_.notify_all();
}

const double* PartialTree::complete(std::int64_t slice, std::size_t tile) {
  std::unique_lock lock(mutex_);
  Range node = {slice, slice + 1};
  while (const auto pair = tree_pair(slices_, node)) {
    const auto& [left, right] = *pair;
    if (left.begin < part_.begin || right.end > part_.end) return nullptr;
    const std::size_t other = static_cast<std::size_t>(right.begin) * tiles_.size() + tile;
    if (!waiting_[other]) {
      waiting_[other] = true;
      return nullptr;
    }
    double* const to = memory_of(left.begin);
    double* const from = memory_of(right.begin);
    lock.unlock();
    for_each_row(problem_, tiles_[tile], [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) to[i] += from[i];
    });
    lock.lock();
    if (++merged_[static_cast<std::size_t>(right.begin)] == std::ssize(tiles_)) {
      free_.push_back(slot_[static_cast<std::size_t>(right.begin)]);
      freed_.notify_all();
    }
    node = {left.begin, right.end};
  }
  return memory_of(0);
}

}  // namespace convgrad
