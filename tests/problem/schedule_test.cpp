// schedule_test.cpp - chunks, slices and blocks cover every pixel exactly once.
#include "problem/schedule.hpp"

#include <doctest/doctest.h>

#include <set>

#include "support/problems.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

std::int64_t pixels(const PixelBox& box) {
  std::int64_t count = 1;
  for (const Range& range : box) count *= range.size();
  return count;
}

WgradProblem float_problem(const ProblemSpec& spec) { return make(spec, DType::f32, true); }

// A layer of 3136 pixels an image.
WgradProblem layer(std::int64_t images) {
  return float_problem({"3x3", "conv2d", images, 64, 64, 1, {{56, 3}, {56, 3}}});
}

std::vector<WgradProblem> problems() {
  std::vector<WgradProblem> result;
  for (const ProblemSpec& spec : basic_problems()) result.push_back(float_problem(spec));
  for (const ProblemSpec& spec :
       std::vector<ProblemSpec>{{"one row", "conv2d", 1, 1, 1, 1, {{1, 1}, {5000, 1}}},
                                {"513 columns", "conv2d", 2, 1, 1, 1, {{3, 1}, {513, 1}}},
                                {"512 columns", "conv2d", 3, 1, 1, 1, {{3, 1}, {512, 1}}},
                                {"many images", "conv2d", 1000, 1, 1, 1, {{5, 1}, {5, 1}}},
                                {"deep", "conv3d", 3, 1, 1, 1, {{40, 1}, {9, 1}, {11, 1}}}}) {
    result.push_back(float_problem(spec));
  }
  return result;
}

void check_inside(const ChunkGrid& grid, Range chunks, const PixelBox& box) {
  for (std::int64_t c = chunks.begin; c < chunks.end; ++c) {
    const PixelBox inner = grid.box(c);
    for (std::size_t a = 0; a < 4; ++a) {
      CHECK(inner[a].begin >= box[a].begin);
      CHECK(inner[a].end <= box[a].end);
    }
  }
}

}  // namespace

TEST_CASE("chunks cover every output pixel once, in order, with at most 512 each") {
  for (const WgradProblem& problem : problems()) {
    CAPTURE(describe(problem));
    const ChunkGrid grid = chunk_grid(problem);
    std::int64_t total = 0;
    std::set<std::array<std::int64_t, 4>> starts;
    for (std::int64_t chunk = 0; chunk < grid.count; ++chunk) {
      const PixelBox box = grid.box(chunk);
      CHECK(pixels(box) > 0);
      CHECK(pixels(box) <= kMaxChunkPixels);
      total += pixels(box);
      const std::array<std::int64_t, 4> start = {box[0].begin, box[1].begin, box[2].begin,
                                                 box[3].begin};
      CHECK((starts.empty() || *starts.rbegin() < start));
      starts.insert(start);
    }
    CHECK(total == term_count(problem));
  }
}

TEST_CASE("a few chunks are an even number, where an axis can be cut so") {
  const auto chunks_of = [](std::int64_t images, std::int64_t rows, std::int64_t columns) {
    return chunk_grid(float_problem({"", "conv2d", images, 8, 8, 1, {{rows, 3}, {columns, 3}}}))
        .count;
  };
  CHECK(chunks_of(1, 56, 56) == 8);  // of 7 rows; 7 of 8 rows would hold them
  CHECK(chunks_of(1, 30, 40) == 4);
  CHECK(chunks_of(3, 30, 40) == 12);
  CHECK(chunks_of(1, 6, 512) == 6);
  CHECK(chunks_of(3, 7, 7) == 1);
  CHECK(chunks_of(5, 10, 50) == 5);    // images have one each
  CHECK(chunks_of(1, 170, 50) == 17);  // many enough
}

TEST_CASE("long chunks are boxes of neighbouring short ones, in order") {
  for (const WgradProblem& problem : problems()) {
    CAPTURE(describe(problem));
    const ChunkGrid fine = chunk_grid(problem);
    CHECK(chunk_grid(problem, kMaxChunkPixels).count == fine.count);
    for (const std::int64_t most : {1024, 2048, 4096}) {
      const ChunkGrid grid = chunk_grid(problem, most);
      const BlockGrid blocks = {fine,      {0, problem.N}, grid.axis,
                                grid.step, grid.pieces,    grid.count};
      std::int64_t next = 0;
      for (std::int64_t chunk = 0; chunk < grid.count; ++chunk) {
        CHECK(pixels(grid.box(chunk)) <= most);
        const Range its = blocks.chunk_range(chunk);
        CHECK(its.begin == next);
        next = its.end;
        std::int64_t total = 0;
        for (std::int64_t c = its.begin; c < its.end; ++c) total += pixels(fine.box(c));
        CHECK(total == pixels(grid.box(chunk)));
        check_inside(fine, its, grid.box(chunk));
      }
      CHECK(next == fine.count);
    }
  }
}

TEST_CASE("slices deal out every chunk once, whatever the blocks") {
  for (const WgradProblem& problem : problems()) {
    CAPTURE(describe(problem));
    const ChunkGrid grid = chunk_grid(problem);
    const SliceGrid slices = slice_grid(problem, grid);
    CHECK(slices.count() >= 1);
    for (const std::int64_t block_chunks : {1, 3, 1 << 20}) {
      std::vector<int> seen(static_cast<std::size_t>(grid.count), 0);
      for (std::int64_t begin = 0; begin < grid.count; begin += block_chunks) {
        const Range within{begin, std::min(begin + block_chunks, grid.count)};
        for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
          const ChunkRun run = slices.chunks_of(slice, within);
          for (std::int64_t c = run.begin; c < run.end; c += run.step) {
            CHECK(c >= within.begin);
            ++seen[static_cast<std::size_t>(c)];
          }
        }
      }
      for (const int count : seen) CHECK(count == 1);
    }
  }
}

TEST_CASE("partitions and images do not cross, and each slice has a chunk") {
  for (const WgradProblem& problem : problems()) {
    CAPTURE(describe(problem));
    const ChunkGrid grid = chunk_grid(problem);
    for (const std::int64_t wanted : {1, 2, 7, 8, 50, 64, 1000}) {
      const std::int64_t most = std::clamp<std::int64_t>(grid.count / 4, 1, wanted);
      for (const std::int64_t most_interleave : {1, 5, 32, 4096}) {
        const SliceGrid slices = deal_slices(grid, most, 8, most_interleave);
        CAPTURE(most);
        CAPTURE(most_interleave);
        CHECK(slices.count() <= most);
        CHECK(slices.partitions >= 1);
        std::int64_t next = 0;
        for (std::int64_t partition = 0; partition < slices.partitions; ++partition) {
          const Range chunks = slices.chunks_of_partition(partition);
          CHECK(chunks.begin == next);
          next = chunks.end;
          if (grid.count > 0) CHECK(chunks.size() >= slices.interleave);
        }
        CHECK(next == grid.count);
        if (grid.count == 0) continue;
        // Every image is one of the cuts, or every cut is an image.
        const std::vector<BatchCut> cuts = batch_cuts(grid, slices);
        CHECK(cuts.front().image == 0);
        CHECK(cuts.back().image == problem.N);
        CHECK(cuts.back().partition == slices.partitions);
        const auto count = std::ssize(cuts) - 1;
        CHECK((count == problem.N || count == slices.partitions));
        for (std::size_t i = 1; i < cuts.size(); ++i) CHECK(cuts[i - 1].image < cuts[i].image);
      }
    }
  }
}

TEST_CASE("the nodes of a part are the largest that lie in it") {
  for (std::int64_t slices = 1; slices < 40; ++slices) {
    for (std::int64_t begin = 0; begin <= slices; ++begin) {
      for (std::int64_t end = begin; end <= slices; ++end) {
        const std::vector<Range> nodes = tree_nodes(slices, {begin, end});
        std::int64_t next = begin;
        for (const Range& node : nodes) {
          CHECK(node.begin == next);
          CHECK(node.size() > 0);
          next = node.end;
          // Aligned, and whole or the last of all.
          const auto size =
              static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(node.size())));
          CHECK(node.begin % size == 0);
          CHECK((node.size() == size || node.end == slices));
          // Its neighbour in the tree is not there as a whole.
          if (node == Range{0, slices}) continue;
          Range parent{0, slices};
          for (;;) {
            const auto [left, right] = tree_children(parent);
            if (left == node || right == node) break;
            parent = node.begin < right.begin ? left : right;
          }
          CHECK((parent.begin < begin || end < parent.end));
        }
        CHECK(next == end);
      }
    }
  }
}

TEST_CASE("shares of a batch are even, in order, and the first is not empty") {
  const WgradProblem problem = layer(64);
  const ChunkGrid grid = chunk_grid(problem);
  const SliceGrid slices = slice_grid(problem, grid);
  for (std::int64_t parts = 1; parts < 20; ++parts) {
    std::int64_t next = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const BatchPart share = batch_part(grid, slices, {{}, part, parts});
      CHECK(share.images.begin == next);
      next = share.images.end;
      const std::int64_t even = slices.partitions / parts;
      CHECK(share.partitions.size() >= even);
      CHECK(share.partitions.size() <= even + 1);
      if (part == 0) CHECK(share.images.size() > 0);
    }
    CHECK(next == problem.N);
  }
}

TEST_CASE("slices that are the only tasks are 2, 4 or 8 where there would be fewer") {
  // A chunk for each image.
  const auto slices_of = [](std::int64_t images, std::int64_t k) {
    const WgradProblem problem =
        float_problem({"1x1", "conv2d", images, 16, k, 1, {{16, 1}, {32, 1}}});
    const ChunkGrid grid = chunk_grid(problem);
    CHECK(grid.count == images);
    return slice_grid(problem, grid).count();
  };
  for (std::int64_t images = 1; images < 36; ++images) {
    CAPTURE(images);
    CHECK(slices_of(images, 256) == (images < 2 ? 1 : images < 12 ? 2 : images < 20 ? 4 : 8));
    CHECK(slices_of(images, 257) == std::max<std::int64_t>(images / 4, 1));  // two tiles
  }
}

TEST_CASE("a few slices are even in number and size, whatever the number of images") {
  std::set<std::int64_t> counts;
  for (const std::int64_t extent : {23, 27, 40, 55}) {
    for (std::int64_t images = 2; images < 12; ++images) {
      const WgradProblem problem =
          float_problem({"1x1", "conv2d", images, 16, 64, 1, {{extent, 1}, {extent, 1}}});
      CAPTURE(describe(problem));
      const SliceGrid slices = slice_grid(problem, chunk_grid(problem));
      if (slices.count() >= 8) continue;
      counts.insert(slices.count());
      CHECK(slices.count() % 2 == 0);
      std::set<std::int64_t> sizes;
      for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
        const ChunkRun run = slices.chunks_of(slice, {0, slices.chunks});
        sizes.insert((run.end - run.begin + run.step - 1) / run.step);
      }
      CHECK(*sizes.rbegin() - *sizes.begin() <= 1);
    }
  }
  CHECK(counts == std::set<std::int64_t>{2, 4, 6});
}

TEST_CASE("tiles that are the only tasks are an even number of a few") {
  const auto one_image = [](std::int64_t extent) {
    return float_problem({"one", "conv2d", 1, 192, 64, 1, {{extent, 3}, {extent, 3}}});
  };
  const auto step = [](const WgradProblem& pb, std::int64_t count, std::int64_t others) {
    return tile_step(pb, chunk_grid(pb), count, 64, others);
  };
  CHECK(step(one_image(14), 192, 1) == 48);  // not three
  CHECK(step(one_image(14), 64, 1) == 32);
  CHECK(step(one_image(14), 128, 1) == 64);
  CHECK(step(one_image(14), 192, 2) == 64);  // six with those beside
  CHECK(step(one_image(14), 576, 1) == 58);  // ten, not nine
  CHECK(step(one_image(14), 1088, 1) == 64);
  CHECK(step(one_image(2), 192, 1) == 64);  // too little to share
  CHECK(step(layer(8), 192, 1) == 64);      // slices are tasks, too
}

TEST_CASE("longer chunks leave as many slices as threads need") {
  struct Case {
    ProblemSpec spec;
    std::int64_t chunks, slices;  // as long ones
  };
  const Case cases[] = {
      {{"a slice each", "conv2d", 8, 37, 53, 1, {{28, 3}, {28, 3}}}, 4, 4},
      {{"one image", "conv2d", 1, 64, 64, 1, {{56, 3}, {56, 3}}}, 2, 2},
      {{"two tiles", "conv2d", 8, 96, 256, 2, {{27, 5}, {27, 5}}}, 2, 2},
      {{"many tiles", "conv2d", 16, 512, 512, 1, {{14, 3}, {14, 3}}}, 1, 1},
      {{"more images", "conv2d", 64, 37, 53, 1, {{28, 3}, {28, 3}}}, 13, 8},
      {{"few pixels", "conv2d", 1, 64, 64, 1, {{7, 3}, {7, 3}}}, 1, 1},
      {{"7 and 6 images", "conv2d", 13, 512, 512, 1, {{7, 3}, {7, 3}}}, 1, 1},
  };
  for (const Case& c : cases) {
    CAPTURE(c.spec.name);
    const WgradProblem problem = make(c.spec, DType::bf16, true);
    const ChunkGrid grid = chunk_grid(problem, long_chunk_pixels(problem));
    CHECK(grid.count == c.chunks);
    CHECK(slice_grid(problem, grid).count() == c.slices);
  }
}

TEST_CASE("a large batch has partitions for a thousand processes") {
  const WgradProblem problem = layer(400000);
  const ChunkGrid grid = chunk_grid(problem);
  const SliceGrid slices = slice_grid(problem, grid);
  CHECK(slices.partitions == 1024);
  CHECK(slices.interleave == 32);
  const BatchPart last = batch_part(grid, slices, {{}, 1023, 1024});
  CHECK(last.images.size() == 391);
}

TEST_CASE("blocks of a batch, or a part of it, are whole chunks in order, and no others") {
  for (const WgradProblem& problem : problems()) {
    const ChunkGrid grid = chunk_grid(problem);
    if (grid.count == 0) continue;
    CAPTURE(describe(problem));
    for (const BatchCut& from : batch_cuts(grid, slice_grid(problem, grid))) {
      const Range images{from.image, problem.N};
      if (images.size() == 0) continue;
      const BlockChoice smallest = choose_blocks(problem, grid, 0, images);
      CHECK(smallest.grid.count == -1);
      for (const std::int64_t budget :
           {smallest.smallest_bytes, 2 * smallest.smallest_bytes + 7, std::int64_t{1} << 40}) {
        const BlockChoice choice = choose_blocks(problem, grid, budget, images);
        CHECK(choice.x_bytes + choice.dy_bytes <= budget);
        std::int64_t next = slice_grid(problem, grid).chunks_of_partition(from.partition).begin;
        std::int64_t total = 0;
        for (std::int64_t block = 0; block < choice.grid.count; ++block) {
          const Range chunks = choice.grid.chunk_range(block);
          const PixelBox box = choice.grid.box(block);
          CHECK(chunks.begin == next);
          CHECK(chunks.end > chunks.begin);
          next = chunks.end;
          total += pixels(box);
          check_inside(grid, chunks, box);
        }
        CHECK(next == grid.count);
        CHECK(total == images.size() * problem.out_pixels());
      }
    }
  }
}

TEST_CASE("the input of a box is what its taps see inside x, and no more") {
  for (const WgradProblem& problem : problems()) {
    const ChunkGrid grid = chunk_grid(problem);
    CAPTURE(describe(problem));
    for (std::int64_t chunk = 0; chunk < grid.count; ++chunk) {
      const PixelBox box = grid.box(chunk);
      const std::array<Range, 3> input = input_box(problem, box);
      for (std::size_t a = 0; a < 3; ++a) {
        const SpatialAxis& axis = problem.axis[a];
        std::int64_t first = axis.in, last = -1;
        for (std::int64_t o = box[a + 1].begin; o < box[a + 1].end; ++o) {
          for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
            const std::int64_t at = o * axis.stride - axis.pad_before + tap * axis.dilation;
            if (at < 0 || at >= axis.in) continue;
            first = std::min(first, at);
            last = std::max(last, at);
          }
        }
        if (last < 0) continue;  // only padding: any range will do
        CHECK(input[a].begin <= first);
        CHECK(input[a].end >= last + 1);
        CHECK(input[a].size() <=
              (box[a + 1].size() - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1);
      }
    }
  }
}

TEST_CASE("outputs_inside agrees with trying every position") {
  for (std::int64_t in = 0; in < 7; ++in)
    for (std::int64_t out = 0; out < 8; ++out)
      for (std::int64_t stride = 1; stride < 4; ++stride)
        for (std::int64_t dilation = 1; dilation < 4; ++dilation)
          for (std::int64_t pad = 0; pad < 9; ++pad)
            for (std::int64_t tap = 0; tap < 4; ++tap) {
              const SpatialAxis axis{in, out, 4, stride, dilation, pad, 0};
              const Range range = outputs_inside(axis, tap);
              CHECK(range.begin >= 0);
              CHECK(range.begin <= range.end);
              CHECK(range.end <= out);
              for (std::int64_t o = 0; o < out; ++o) {
                const std::int64_t at = o * stride - pad + tap * dilation;
                const bool inside = at >= 0 && at < in;
                CHECK(inside == (o >= range.begin && o < range.end));
              }
            }
}

TEST_CASE("the schedule depends on shape and dtype alone") {
  const WgradProblem problem = layer(64);
  WgradProblem other = problem;
  other.channels_last = false;
  const ChunkGrid grid = chunk_grid(problem);
  CHECK(grid.count == chunk_grid(other).count);
  CHECK(slice_grid(problem, grid).count() == slice_grid(other, grid).count());
  // 3136 pixels an image: 7 chunks of 8 rows. Many slices for a small gradient, one for a huge one.
  CHECK(grid.count == 64 * 7);
  CHECK(slice_grid(problem, grid).count() == 64);
  CHECK(slice_grid(problem, grid).partitions == 8);
  const WgradProblem huge = float_problem({"7x7", "conv2d", 64, 2048, 1024, 1, {{14, 7}, {14, 7}}});
  CHECK(slice_grid(huge, chunk_grid(huge)).count() == 1);
}

TEST_CASE("a tensor of more than 2^31 pixels and elements is scheduled in 64 bits") {
  const WgradProblem problem =
      float_problem({"huge", "conv2d", 3, 1, 1, 1, {{40000, 3}, {50000, 3}}});
  const ChunkGrid grid = chunk_grid(problem);
  CHECK(term_count(problem) == 6000000000);
  const PixelBox last = grid.box(grid.count - 1);
  CHECK(last[0].end == 3);
  CHECK(last[2].end == 40000);
  CHECK(last[3].end == 50000);
  const BlockChoice choice = choose_blocks(problem, grid, std::int64_t{64} << 20, {0, problem.N});
  CHECK(choice.grid.axis == 2);
  CHECK(choice.grid.chunk_range(choice.grid.count - 1).end == grid.count);
}
