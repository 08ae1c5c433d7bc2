// rank_tree.cpp - see rank_tree.hpp.
#include "mpi/rank_tree.hpp"

#include <algorithm>

#include "base/buffer.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // doubles of a message: 2 MiB

// All ranks walk through the whole tree in the same order, and each does what concerns it. So two
// ranks meet for their messages in the same order, and none waits for ever.
class RankTree {
 public:
  RankTree(Messages& messages, const std::vector<Range>& parts, const std::vector<NodeSums>& nodes,
           std::int64_t count)
      : messages_(messages), parts_(parts), nodes_(nodes), count_(count) {}

  struct Place {
    int rank = 0;
    double* sums = nullptr;  // on that rank
  };

  Place sum_of(Range node) {
    const int owner = owner_of(node);
    if (parts_[static_cast<std::size_t>(owner)].end >= node.end) {
      return {owner, owner == messages_.rank() ? nodes_[next_++].sums : nullptr};
    }
    const auto [left, right] = tree_children(node);
    const Place to = sum_of(left), from = sum_of(right);
    if (to.rank != from.rank) {
      exchange(to, from);
    } else if (to.sums != nullptr) {
      for (std::int64_t i = 0; i < count_; ++i) to.sums[i] += from.sums[i];
    }
    return to;
  }

 private:
  // Returns the rank that has the node's first slice.
  int owner_of(Range node) const {
    const auto part = std::ranges::upper_bound(parts_, node.begin, {}, &Range::end);
    return static_cast<int>(part - parts_.begin());
  }

  void exchange(const Place& to, const Place& from) {
    for (std::int64_t begin = 0; begin < count_; begin += kPiece) {
      const std::int64_t n = std::min(kPiece, count_ - begin);
      if (from.rank == messages_.rank()) messages_.send(from.sums + begin, n, to.rank);
      if (to.rank != messages_.rank()) continue;
      if (received_.size_bytes() == 0) {
        received_ = Buffer(std::min(kPiece, count_) * 8, "sums of another rank");
      }
      double* const values = received_.as<double>();
      messages_.receive(values, n, from.rank);
      for (std::int64_t i = 0; i < n; ++i) to.sums[begin + i] += values[i];
    }
  }

  Messages& messages_;
  const std::vector<Range>& parts_;
  const std::vector<NodeSums>& nodes_;
  const std::int64_t count_;
  std::size_t next_ = 0;
  Buffer received_;
};

}  // namespace

double* add_ranks(Messages& messages, const std::vector<Range>& parts,
                  const std::vector<NodeSums>& nodes, std::int64_t count) {
  return RankTree(messages, parts, nodes, count).sum_of({0, parts.back().end}).sums;
}

}  // namespace convgrad::cli
