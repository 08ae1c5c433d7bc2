// planes.hpp - the channels of x and dy that a faulty kernel reads, of the images of one block.
#pragma once

#include <map>
#include <set>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {

// A channel of x or dy is read as [n][d][h][w], with what stands beside each image.
struct Channel {
  bool of_x = false;
  TensorReading as;
  std::int64_t channel = 0;
  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr)
  std::int64_t parts() const { return as.beside ? 3 : 1; }
};
using Plane = std::vector<double>;

// Holds the channels that some sums need of the images of one block, from all blocks that have
// them: a reading may take other images than its own.
class Planes {
 public:
  Planes(const WgradProblem& problem, const Plan& plan, BlockSource& source, TaskPool& pool)
      : pb_(problem), plan_(plan), source_(source), pool_(pool) {}

  void read(std::int64_t index, const std::set<Channel>& channels);
  const Range& images() const { return images_; }
  const Plane& of(const Channel& channel) const { return planes_.at(channel); }
  std::int64_t size_of(const Channel& c) const { return pixels_of(extents_of(pb_, c.of_x)); }

 private:
  const WgradProblem& pb_;
  const Plan& plan_;
  BlockSource& source_;
  TaskPool& pool_;
  BlockMemory own_memory_, other_memory_;
  Range images_;
  std::map<Channel, Plane> planes_;
};

}  // namespace convgrad::diagnosis
