// ranks.hpp - the processes of one job under mpirun, and their sums in the one tree of all slices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mpi/mpi_module.hpp"
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

// Rank 0 speaks for all and has the status: this one ends with 0, since mpirun ends all others when
// it sees a process with another one, and rank 0 may not have said why.
struct SilentEnd {};

class Ranks final : public Messages {
 public:
  // Loads MPI and starts it. Throws Error(unavailable) in a build without it, or where it is not
  // installed.
  Ranks();
  ~Ranks() override;  // all ranks must get there
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const override { return place_.rank; }
  int size() const { return place_.size; }

  void send(const double* values, std::int64_t count, int to) override;
  void receive(double* values, std::int64_t count, int from) override;

  // Returns all ranks' texts in their order, each cut after kMostText bytes. All must call it.
  static constexpr std::size_t kMostText = 4096;
  std::vector<std::string> gather(const std::string& text) const;

  // Does the work of one step, and then learns whether all ranks have done theirs. If not, rank 0
  // throws the error of the first that has not, and the others SilentEnd.
  void together(const std::function<void()>& work) const;
  // Returns true if together() has thrown, which it then did on all ranks.
  bool all_failed() const { return all_failed_; }

  [[noreturn]] void abort(int status) const;

 private:
  const MpiModule* const module_;
  const MpiPlace place_;
  mutable bool all_failed_ = false;
};

// Returns true if another rank speaks for this process. The launcher's environment tells, for
// errors that come before MPI is started.
bool is_silent_rank();

}  // namespace convgrad::cli
