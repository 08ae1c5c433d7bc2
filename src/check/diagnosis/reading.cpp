// reading.cpp - see reading.hpp.
#include "check/diagnosis/reading.hpp"

#include <bit>
#include <cstring>

namespace convgrad::diagnosis {
namespace {

using Extents = std::array<std::int64_t, 3>;

Extents x_extents(const WgradProblem& pb) { return {pb.axis[0].in, pb.axis[1].in, pb.axis[2].in}; }
Extents dy_extents(const WgradProblem& pb) {
  return {pb.axis[0].out, pb.axis[1].out, pb.axis[2].out};
}

// Distances between neighbours where the memory of an image is taken for something.
Strides memory_strides(const WgradProblem& pb, Memory memory, std::int64_t channels,
                       const Extents& extent) {
  const bool last = pb.channels_last != (memory == Memory::other_channel_place);
  Strides s;
  std::int64_t step = last ? channels : 1;
  const bool swapped = memory == Memory::h_and_w_swapped;
  for (const std::size_t a : {swapped ? std::size_t{1} : 2, swapped ? std::size_t{2} : 1, 0ul}) {
    s.spatial[a] = step;
    step *= extent[a];
  }
  s.c = last ? 1 : step;
  s.n = channels * extent[0] * extent[1] * extent[2];
  return s;
}

// The images of a tensor with the channels in the other place.
std::vector<std::byte> turned(const WgradProblem& pb, const void* data, std::int64_t images,
                              std::int64_t channels, const Extents& extent) {
  const std::int64_t pixels = extent[0] * extent[1] * extent[2], item = dtype_bytes(pb.dtype);
  std::vector<std::byte> copy(static_cast<std::size_t>(images * channels * pixels * item));
  const auto* from = static_cast<const std::byte*>(data);
  const std::int64_t rows = pb.channels_last ? pixels : channels;
  const std::int64_t columns = pb.channels_last ? channels : pixels;
  for (std::int64_t n = 0; n < images; ++n) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t base = n * rows * columns;
        std::memcpy(copy.data() + (base + column * rows + row) * item,
                    from + (base + row * columns + column) * item, static_cast<std::size_t>(item));
      }
    }
  }
  return copy;
}

template <typename Scalar>
void add_images(const WgradProblem& pb, const Wanted& wanted, const Block& block,
                const TurnedCopies& copies, EntrySum& sum) {
  const Reading& reading = *wanted.reading;
  TensorView view = view_of(pb, reading, block, copies);
  const std::int64_t first = block.pixels[0].begin, end = block.pixels[0].end;
  const auto add = [&](std::int64_t from, std::int64_t to) {
    view.images = {std::max(from, first) - first, std::min(to, end) - first};
    if (view.images.size() <= 0) return;
    const SumRules rules(pb, {});
    if (reading.rounding == Rounding::none) {
      return add_terms<Scalar>(view, wanted.terms, rules, sum);
    }
    visit_terms<Scalar>(view, wanted.terms, [&](double x, double dy) {
      sum.add<Scalar>(round_value(reading.rounding, x), round_value(reading.rounding, dy), rules);
    });
  };
  if (reading.skipped.size() > 0) {
    add(0, reading.skipped.begin);
    add(reading.skipped.end, pb.N);
  } else {
    add(0, pb.N);
  }
  if (reading.doubled >= 0) add(reading.doubled, reading.doubled + 1);
}

}  // namespace

Reading plain_reading(const WgradProblem& problem) {
  Reading reading;
  reading.axis = problem.axis;
  for (std::size_t a = 0; a < 3; ++a) reading.out[a] = {0, problem.axis[a].out};
  return reading;
}

double round_value(Rounding rounding, double value) {
  const auto bits = [&] { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); };
  switch (rounding) {
    case Rounding::none:
      return value;
    case Rounding::f32:
      return rounded(DType::f32, value);
    case Rounding::tf32:
      return std::bit_cast<float>((bits() + 0x1000u) & 0xffffe000u);
    case Rounding::tf32_cut:
      return std::bit_cast<float>(bits() & 0xffffe000u);
    case Rounding::f16:
      return rounded(DType::f16, value);
    default:
      return rounded(DType::bf16, value);
  }
}

TensorView view_of(const WgradProblem& pb, const Reading& reading, const Block& block,
                   const TurnedCopies& copies) {
  TensorView view;
  view.axis = reading.axis;
  view.x = reading.x == Memory::turned ? copies.x : block.x;
  view.dy = reading.dy == Memory::turned ? copies.dy : block.dy;
  view.x_strides = memory_strides(pb, reading.x, pb.C, x_extents(pb));
  view.dy_strides = memory_strides(pb, reading.dy, pb.K, dy_extents(pb));
  view.images = {0, block.pixels[0].size()};
  view.out = reading.out;
  return view;
}

bool same_memory(const WgradProblem& pb, Memory memory, bool of_x) {
  const Extents extent = of_x ? x_extents(pb) : dy_extents(pb);
  const std::int64_t channels = of_x ? pb.C : pb.K;
  const Strides plain = memory_strides(pb, Memory::as_it_is, channels, extent);
  const Strides other = memory_strides(
      pb, memory == Memory::turned ? Memory::other_channel_place : memory, channels, extent);
  bool same = channels == 1 || plain.c == other.c;
  for (std::size_t a = 0; a < 3; ++a) {
    same = same && (extent[a] <= 1 || plain.spatial[a] == other.spatial[a]);
  }
  return same;
}

Expected sums_of(const WgradProblem& problem, std::span<const Wanted> wanted, const Plan& images,
                 BlockSource& source, TaskPool& pool) {
  std::vector<EntrySum> sums(wanted.size());
  bool turns_x = false, turns_dy = false;
  for (const Wanted& w : wanted) {
    turns_x = turns_x || w.reading->x == Memory::turned;
    turns_dy = turns_dy || w.reading->dy == Memory::turned;
  }
  Timing timing;
  const auto use = [&](const Block& block, std::int64_t) {
    const std::int64_t count = block.pixels[0].size();
    std::vector<std::byte> x, dy;
    if (turns_x) x = turned(problem, block.x, count, problem.C, x_extents(problem));
    if (turns_dy) dy = turned(problem, block.dy, count, problem.K, dy_extents(problem));
    const TurnedCopies copies = {x.data(), dy.data()};
    pool.run(static_cast<std::int64_t>(wanted.size()), [&](std::int64_t task, int) {
      const auto i = static_cast<std::size_t>(task);
      with_scalar(problem.dtype, [&](auto scalar) {
        add_images<decltype(scalar)>(problem, wanted[i], block, copies, sums[i]);
      });
    });
  };
  stream_blocks(images, source, use, timing);
  return expected_of(problem, {}, sums);
}

}  // namespace convgrad::diagnosis
