// rank_tree.hpp - the sums of several processes, added in the one tree of all slices.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/schedule.hpp"

namespace convgrad::cli {

// Passes sums between processes; tests pass them without MPI.
class Messages {
 public:
  virtual ~Messages() = default;
  virtual int rank() const = 0;
  // Each waits for the other side; messages between two ranks arrive in their order.
  virtual void send(const double* values, std::int64_t count, int to) = 0;
  virtual void receive(double* values, std::int64_t count, int from) = 0;
};

struct NodeSums {
  Range slices;
  double* sums;  // `count` values, not owned
};

// Every rank calls this with its nodes, from left to right. `parts` are the slices of each rank,
// which follow each other and make up all of them. Each pair of the tree that lies on two ranks is
// added on the left one's, so that ranks add in parallel wherever the tree does. Returns the whole
// sum on rank 0, in the memory of its first node, and null on the others.
double* add_ranks(Messages& messages, const std::vector<Range>& parts,
                  const std::vector<NodeSums>& nodes, std::int64_t count);

}  // namespace convgrad::cli
