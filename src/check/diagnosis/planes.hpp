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

// Holds the channels that some sums need of the images of one block, from all blocks that have
// them: a reading may take other images than its own.
struct Planes {
  Range images;
  std::map<Channel, std::vector<double>> of;
};
Planes read_planes(const WgradProblem& problem, const Plan& plan, BlockSource& source,
                   TaskPool& pool, std::int64_t index, const std::set<Channel>& channels,
                   std::array<BlockMemory, 2>& memory);

}  // namespace convgrad::diagnosis
