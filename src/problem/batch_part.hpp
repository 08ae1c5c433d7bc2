// batch_part.hpp - where a batch can be cut so that the parts add up to the bits of the whole.
//
// A part is made of whole partitions of slices (schedule.hpp). It begins and ends between images,
// so the batch can be cut where a partition begins with an image: everywhere, if there are at least
// as many partitions as images.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/schedule.hpp"

namespace convgrad {

// The request is images [begin, end), or part number `part` of `parts` (from 0).
struct BatchRange {
  enum class Kind : std::uint8_t { all, images, share };
  Kind kind = Kind::all;
  Range images;
  std::int64_t part = 0, parts = 1;
};

// These images and partitions are summed. Both ranges are empty for a share without an image.
struct BatchPart {
  Range images, partitions;
};

// A cut is a partition that begins with an image; the last cut is the end of the batch.
struct BatchCut {
  std::int64_t image = 0, partition = 0;
};
// Cuts are in ascending order. An empty batch has one part, which is empty too.
std::vector<BatchCut> batch_cuts(const ChunkGrid& grid, const SliceGrid& slices);

// Shares are as even as the cuts allow, and the first has something whenever any has. Error(usage)
// that names the nearest cuts if images are asked for that are none.
BatchPart batch_part(const ChunkGrid& grid, const SliceGrid& slices, const BatchRange& range);

}  // namespace convgrad
