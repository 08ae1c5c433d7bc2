#include "problem/schedule.hpp"

#include <bit>
#include <functional>
#include <numeric>
#include <tuple>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "problem/schedule_math.hpp"

namespace convgrad {
namespace {

// The partial gradients that are in memory at a time have at most this, threads left aside; a
// gradient larger than this has one slice.
constexpr std::int64_t kMaxPartialBytes = std::int64_t{128} << 20;
// A slice of fewer chunks would spend its time on zeroing and adding partials.
constexpr std::int64_t kMinChunksPerSlice = 4;
// In a slice of so many chunks that stays below a hundredth of the work.
constexpr std::int64_t kManyChunks = 64;
// Where slices are the only tasks, and fewer than this, there are 2, 4 or 8, as long as each has a
// chunk: one leaves a second thread idle, and 3 take two threads as long as 4.
constexpr std::int64_t kFewTasks = 8;
// Fewer chunks than this are an even number of them, where they can be: 3, 5 or 7 chunks take two
// threads longer than 4, 6 or 8 smaller ones.
constexpr std::int64_t kFewChunks = 16;
// Less is computed before a second thread has begun.
constexpr double kLeastShared = 1.5e6;
// Most kernels take this many channels of x, of x of a 1x1 filter, and of dy as one tile.
constexpr std::int64_t kTaskC = 64, kTaskC1 = 256, kTaskK = 256;
// A large gradient has so many slices even if they are shorter than that: its tiles are tasks too.
constexpr std::int64_t kEarlyPartialBytes = std::int64_t{32} << 20;
constexpr std::int64_t kEarlySlices = 64;
constexpr std::int64_t kMaxInterleave = 32, kMaxPartitions = 1024;
// Several processes need so many; a block within one partition still has interleave for threads.
constexpr std::int64_t kPartitions = 8;

using Extents = std::array<std::int64_t, 4>;

// Counts the positions along the axes outside this one.
std::int64_t count_outside(const Extents& extent, std::size_t axis) {
  return std::accumulate(extent.begin(), extent.begin() + axis, std::int64_t{1}, std::multiplies());
}

std::int64_t next_power_of_two(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

// Finds the box with this number among those that split `axis` into `pieces` of `step`, are full in
// the axes inside it and single in those outside.
PixelBox split_box(const Extents& extent, std::size_t axis, std::int64_t step, std::int64_t pieces,
                   std::int64_t index) {
  PixelBox box;
  for (std::size_t a = axis + 1; a < 4; ++a) box[a] = {0, extent[a]};
  const std::int64_t begin = index % pieces * step;
  box[axis] = {begin, std::min(begin + step, extent[axis])};
  std::int64_t rest = index / pieces;
  for (std::size_t a = axis; a-- > 0; rest /= extent[a]) {
    box[a] = {rest % extent[a], rest % extent[a] + 1};
  }
  return box;
}

// `out` neighbouring output positions see at most this extent of x along an axis. The products stay
// below in + pads + reach: make_problem has checked those.
std::int64_t input_extent(const SpatialAxis& axis, std::int64_t out) {
  return std::min(axis.in, (out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1);
}

// Returns the bytes of x and dy in a block of `step` along its axis. They are never more than those
// of the whole tensors, which make_problem has checked.
std::pair<std::int64_t, std::int64_t> block_bytes(const WgradProblem& problem, std::size_t axis,
                                                  std::int64_t step) {
  const std::int64_t item = dtype_bytes(problem.dtype), images = axis == 0 ? step : 1;
  std::int64_t x = problem.C * item * images, dy = problem.K * item * images;
  for (std::size_t a = 1; a < 4; ++a) {
    const SpatialAxis& spatial = problem.axis[a - 1];
    const std::int64_t out = a < axis ? 1 : a == axis ? step : spatial.out;
    dy *= out;
    x *= a <= axis ? input_extent(spatial, out) : spatial.in;
  }
  return {x, dy};
}

// Counts the slices of which no more partials are in memory than may be. All are, or those of a
// partition and one for each level of the tree.
std::int64_t slices_that_fit(std::int64_t bytes, std::int64_t interleave) {
  const std::int64_t partials = kMaxPartialBytes / bytes;
  const std::int64_t levels = std::clamp<std::int64_t>(partials - interleave - 2, 0, 15);
  return std::max(partials, std::min(std::int64_t{1} << levels, interleave * kMaxPartitions));
}

// Counts the tiles into which most kernels cut the gradient; they are tasks too. The shape alone
// decides, as the slices are the same for all kernels.
std::int64_t usual_tiles(const WgradProblem& problem) {
  if (problem.group_c() == 1) return ceil_div(problem.K, kTaskK);
  return problem.groups * ceil_div(problem.group_c(), problem.taps() == 1 ? kTaskC1 : kTaskC) *
         ceil_div(problem.group_k(), kTaskK);
}

// Counts the slices of a gradient whose partials take little memory.
std::int64_t short_slices(const WgradProblem& problem, const ChunkGrid& grid) {
  const std::int64_t slices = grid.count / kMinChunksPerSlice;
  if (slices >= kFewTasks || grid.count < 2 || usual_tiles(problem) > 1) return slices;
  return next_power_of_two(std::max<std::int64_t>(slices, 2));
}

// Counts the slices of short chunks, but no more than it takes for a few tasks: longer chunks make
// no fewer. Where tiles are tasks too, the partials are large, and half as many have to do.
std::int64_t least_slices(const WgradProblem& problem) {
  const std::int64_t tiles = usual_tiles(problem), tasks = tiles > 1 ? kFewTasks / 2 : kFewTasks;
  return std::clamp<std::int64_t>(short_slices(problem, chunk_grid(problem)), 1,
                                  ceil_div(tasks, tiles));
}

void add_nodes(Range node, Range part, std::vector<Range>& nodes) {
  if (node.begin >= part.end || part.begin >= node.end) return;
  if (part.begin <= node.begin && node.end <= part.end) {
    nodes.push_back(node);
    return;
  }
  for (const Range& child : tree_children(node)) add_nodes(child, part, nodes);
}

// The first cut is at image 0 and the last at the end, so image is one or lies between two.
const BatchCut& cut_at(const std::vector<BatchCut>& cuts, std::int64_t image, const char* side) {
  const auto cut = std::ranges::lower_bound(cuts, image, {}, &BatchCut::image);
  if (cut->image == image) return *cut;
  misuse("--batch-range: the sums cannot be cut at image ", image, ", where it ", side,
         ", expected ", (cut - 1)->image, " or ", cut->image,
         Hint("or let --batch-range K/R cut them"));
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

PixelBox ChunkGrid::box(std::int64_t chunk) const {
  return split_box(extent, axis, step, pieces, chunk);
}

ChunkGrid even_chunk_grid(const WgradProblem& problem, std::int64_t most_pixels,
                          const ChunkGrid* fine) {
  ChunkGrid grid;
  grid.extent = {problem.N, problem.axis[0].out, problem.axis[1].out, problem.axis[2].out};
  if (term_count(problem) == 0 || problem.dw_count() == 0) return grid;  // nothing to add
  std::int64_t inner = 1;
  // Axes from the innermost on are full as long as a chunk has room for them.
  grid.axis = 3;
  while (grid.axis > 0 && grid.extent[grid.axis] <= most_pixels / inner) {
    inner *= grid.extent[grid.axis--];
  }
  const std::int64_t extent = grid.extent[grid.axis];
  const std::int64_t unit = fine && fine->axis == grid.axis ? fine->step : 1;
  const std::int64_t units = ceil_div(extent, unit);
  const auto cut = [&](std::int64_t pieces) {
    grid.step = ceil_div(units, pieces) * unit;
    grid.pieces = ceil_div(extent, grid.step);
    grid.count = grid.pieces * count_outside(grid.extent, grid.axis);
  };
  const std::int64_t most = most_pixels / inner;
  const std::int64_t pieces = extent <= most ? 1 : ceil_div(units, most / unit);
  cut(pieces);
  if (grid.count % 2 == 1 && grid.count > 1 && grid.count < kFewChunks) cut(pieces + 1);
  return grid;
}

ChunkGrid chunk_grid(const WgradProblem& problem, std::int64_t most_pixels) {
  const ChunkGrid fine = even_chunk_grid(problem, kMaxChunkPixels);
  return most_pixels > kMaxChunkPixels ? even_chunk_grid(problem, most_pixels, &fine) : fine;
}

std::int64_t long_chunk_pixels(const WgradProblem& problem) {
  return std::clamp(ceil_div(term_count(problem), least_slices(problem)), kMaxChunkPixels,
                    kMaxLongChunkPixels);
}

ChunkRun SliceGrid::chunks_of(std::int64_t slice, Range within) const {
  ChunkRun run{0, 0, interleave};
  dealt_chunks(chunks, unit, partitions, interleave, slice, within.begin, within.end, run.begin,
               run.end);
  return run;
}

Range SliceGrid::chunks_of_partition(std::int64_t partition) const {
  return {partition_begin(chunks, unit, partitions, partition),
          partition_begin(chunks, unit, partitions, partition + 1)};
}

SliceGrid deal_slices(const ChunkGrid& grid, std::int64_t slices, std::int64_t partitions,
                      std::int64_t most_interleave) {
  SliceGrid result;
  result.chunks = grid.count;
  result.partitions = std::clamp(slices / most_interleave, std::min(partitions, slices),
                                 std::max(kMaxPartitions, partitions));
  if (grid.axis > 0 && grid.count > 0) {
    const std::int64_t images = grid.extent[0];
    // A part of the batch begins and ends between images, so images and partitions must not cross.
    if (images >= result.partitions) {
      result.unit = grid.count / images;
    } else {
      result.partitions -= result.partitions % images;
    }
  }
  result.interleave = std::clamp<std::int64_t>(slices / result.partitions, 1, most_interleave);
  return result;
}

SliceGrid slice_grid(const WgradProblem& problem, const ChunkGrid& grid) {
  if (grid.count == 0) return deal_slices(grid, 1, kPartitions, 1);
  const std::int64_t elements = problem.dw_count(), bytes = elements * 8;
  const std::int64_t few = std::min(least_slices(problem), grid.count);
  const std::int64_t early = std::min<std::int64_t>(
      {kEarlyPartialBytes / bytes, std::max(short_slices(problem, grid), few), kEarlySlices});
  // A small gradient has few tiles, so a block must bring its parallelism as slices.
  const std::int64_t wanted_interleave = (std::int64_t{32} << 16) / elements;
  const std::int64_t interleave = std::clamp<std::int64_t>(wanted_interleave, 1, kMaxInterleave);
  const std::int64_t many = std::min(slices_that_fit(bytes, interleave), grid.count / kManyChunks);
  const std::int64_t slices = std::max<std::int64_t>({early, many, 1}), images = grid.extent[0];
  SliceGrid result = deal_slices(grid, slices, kPartitions, interleave);
  if (grid.axis == 0 || usual_tiles(problem) > 1 || result.count() >= kFewTasks) return result;
  // The only tasks are a few slices. Those of whole images may be uneven, as 3 and 2 of 5 are, or
  // odd in number: then several take turns.
  if (images % result.count() != 0 && images > slices) {
    const std::int64_t even = std::gcd(images, slices);
    return deal_slices(grid, slices, even, slices / even);
  }
  if (result.count() % 2 == 1 && result.count() > 1) result.interleave *= 2;
  return result;
}

std::int64_t tile_step(const WgradProblem& problem, const ChunkGrid& grid, std::int64_t count,
                       std::int64_t most, std::int64_t others) {
  const std::int64_t tiles = ceil_div(count, most), all = tiles * others;
  // Kernels ask for each tile, and an even number stays one.
  const std::int64_t tasks = all % 2 == 0 ? all : all * slice_grid(problem, grid).count();
  const bool is_one_more =
      tasks % 2 == 1 && tasks < 2 * kFewTasks && flop_count(problem) >= kLeastShared;
  return ceil_div(count, is_one_more ? tiles + 1 : tiles);
}

std::array<Range, 2> tree_children(Range node) {
  // Neighbours are added from the bottom up, so the left child has a power of two of slices.
  const std::int64_t half = next_power_of_two(node.size()) / 2;
  return {Range{node.begin, node.begin + half}, Range{node.begin + half, node.end}};
}

std::optional<std::array<Range, 2>> tree_pair(std::int64_t slices, Range node) {
  // The last node of a level may be short: it is as long as the next power of two for its place.
  for (std::int64_t size = next_power_of_two(node.size()); size < slices; size *= 2) {
    if ((node.begin / size) % 2 == 1) return std::array{Range{node.begin - size, node.begin}, node};
    if (node.begin + size < slices) {
      return std::array{node, Range{node.begin + size, std::min(node.begin + 2 * size, slices)}};
    }
  }
  return std::nullopt;
}

std::int64_t tree_levels(std::int64_t slices) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(slices)));
}

std::vector<Range> tree_nodes(std::int64_t slices, Range part) {
  std::vector<Range> nodes;
  if (part.size() > 0) add_nodes({0, slices}, part, nodes);
  return nodes;
}

PixelBox BlockGrid::box(std::int64_t block) const {
  Extents extent = chunks.extent;
  extent[0] = images.size();
  PixelBox result = split_box(extent, axis, step, pieces, block);
  result[0] = {result[0].begin + images.begin, result[0].end + images.begin};
  return result;
}

Range BlockGrid::chunk_range(std::int64_t block) const {
  const PixelBox pixels = box(block);
  // Chunks that begin before a pixel come before it in the order.
  const auto chunks_before = [&](std::int64_t position) {
    std::int64_t outer = 0;  // index over the axes outside that of chunks
    const auto at = [&](std::size_t a) { return a == axis ? position : pixels[a].begin; };
    for (std::size_t a = 0; a < chunks.axis; ++a) outer = outer * chunks.extent[a] + at(a);
    return outer * chunks.pieces + ceil_div(at(chunks.axis), chunks.step);
  };
  return {chunks_before(pixels[axis].begin), chunks_before(pixels[axis].end)};
}

std::array<Range, 3> input_box(const WgradProblem& problem, const PixelBox& box) {
  std::array<Range, 3> input;
  for (std::size_t a = 0; a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[a];
    const Range out = box[a + 1];
    const std::int64_t begin = out.begin * axis.stride - axis.pad_before;
    const std::int64_t end =
        (out.end - 1) * axis.stride - axis.pad_before + (axis.taps - 1) * axis.dilation + 1;
    input[a] = {std::clamp<std::int64_t>(begin, 0, axis.in),
                std::clamp<std::int64_t>(end, 0, axis.in)};
    if (out.size() <= 0 || input[a].size() <= 0) input[a] = {0, 0};
  }
  return input;
}

BlockChoice choose_blocks(const WgradProblem& problem, const ChunkGrid& grid,
                          std::int64_t budget_bytes, Range images) {
  BlockChoice choice;
  choice.grid.chunks = grid;
  choice.grid.images = images;
  Extents extents = grid.extent;
  extents[0] = images.size();
  // Whole images come first: a stream can be read through in them, and neighbouring blocks of rows
  // read some of x twice.
  for (std::size_t axis = 0; axis <= grid.axis; ++axis) {
    const std::int64_t extent = extents[axis];
    const std::int64_t unit = axis == grid.axis ? grid.step : 1;
    const auto [x_unit, dy_unit] = block_bytes(problem, axis, std::min(unit, extent));
    choice.smallest_bytes = x_unit + dy_unit;
    std::int64_t low = 0, high = ceil_div(extent, unit);  // units that fit, by bisection
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      const auto [x, dy] = block_bytes(problem, axis, std::min(middle * unit, extent));
      if (x + dy <= budget_bytes) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == 0) continue;
    choice.grid.axis = axis;
    choice.grid.step = std::min(low * unit, extent);
    choice.grid.pieces = ceil_div(extent, choice.grid.step);
    choice.grid.count = choice.grid.pieces * count_outside(extents, axis);
    std::tie(choice.x_bytes, choice.dy_bytes) = block_bytes(problem, axis, choice.grid.step);
    return choice;
  }
  choice.grid.count = -1;
  return choice;
}

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
  if (range.images) return images_part(cuts, *range.images);
  // Cuts are rounded up, so that the first share is not the empty one.
  const auto cut = [&](std::int64_t part) {
    const std::int64_t pieces = std::ssize(cuts) - 1;
    return cuts[static_cast<std::size_t>(pieces / range.parts * part +
                                         ceil_div(pieces % range.parts * part, range.parts))];
  };
  const BatchCut begin = cut(range.part), end = cut(range.part + 1);
  return {{begin.image, end.image}, {begin.partition, end.partition}};
}

}  // namespace convgrad
