#include "problem/batch_part.hpp"

#include <algorithm>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/error.hpp"

namespace convgrad {
namespace {

// Returns the cuts around an image, as "4 or 6".
std::string nearest(const std::vector<BatchCut>& cuts, std::int64_t image) {
  const auto above = std::ranges::lower_bound(cuts, image, {}, &BatchCut::image);
  if (above == cuts.end()) return cat(cuts.back().image);
  if (above == cuts.begin()) return cat(above->image);
  return cat((above - 1)->image, " or ", above->image);
}

const BatchCut& cut_at(const std::vector<BatchCut>& cuts, std::int64_t image, const char* side) {
  const auto cut = std::ranges::lower_bound(cuts, image, {}, &BatchCut::image);
  if (cut != cuts.end() && cut->image == image) return *cut;
  misuse("--batch-range: the sums cannot be cut at image ", image, ", where it ", side,
         ", expected ", nearest(cuts, image), Hint("or let --batch-range K/R cut them"));
}

BatchPart images_part(const std::vector<BatchCut>& cuts, Range images) {
  const std::int64_t count = cuts.back().image;
  if (images.begin < 0 || images.begin > images.end || images.end > count) {
    misuse("--batch-range: ", images.begin, ":", images.end, " is no range of the batch's ", count,
           " images, expected A:B with 0 <= A <= B <= ", count);
  }
  // Both ends of an empty batch would be its first cut, which leaves no partition to sum.
  if (images == Range{0, count}) return {images, {0, cuts.back().partition}};
  const BatchCut& begin = cut_at(cuts, images.begin, "begins");
  const BatchCut& end = cut_at(cuts, images.end, "ends");
  return {images, {begin.partition, end.partition}};
}

}  // namespace

std::vector<BatchCut> batch_cuts(const ChunkGrid& grid, const SliceGrid& slices) {
  const std::int64_t images = grid.extent[0];
  if (grid.count == 0) return {{0, 0}, {images, slices.partitions}};
  std::vector<BatchCut> cuts;
  for (std::int64_t partition = 0; partition < slices.partitions; ++partition) {
    const std::int64_t chunk = slices.chunks_of_partition(partition).begin;
    if (grid.axis == 0) {
      cuts.push_back({chunk * grid.step, partition});
    } else if (chunk % (grid.count / images) == 0) {
      cuts.push_back({chunk / (grid.count / images), partition});
    }
  }
  cuts.push_back({images, slices.partitions});
  return cuts;
}

BatchPart batch_part(const ChunkGrid& grid, const SliceGrid& slices, const BatchRange& range) {
  const std::vector<BatchCut> cuts = batch_cuts(grid, slices);
  switch (range.kind) {
    case BatchRange::Kind::images:
      return images_part(cuts, range.images);
    case BatchRange::Kind::share: {
      // Cuts are rounded up, so that the first share is not the empty one.
      const auto cut = [&](std::int64_t part) {
        const std::int64_t pieces = std::ssize(cuts) - 1;
        return cuts[static_cast<std::size_t>(pieces / range.parts * part +
                                             ceil_div(pieces % range.parts * part, range.parts))];
      };
      const BatchCut begin = cut(range.part), end = cut(range.part + 1);
      return {{begin.image, end.image}, {begin.partition, end.partition}};
    }
    default:
      return {{0, cuts.back().image}, {0, cuts.back().partition}};
  }
}

}  // namespace convgrad
