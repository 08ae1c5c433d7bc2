// reading.cpp - see reading.hpp.
#include "check/diagnosis/reading.hpp"

#include <bit>
#include <map>

namespace convgrad::diagnosis {
namespace {

using Extents = std::array<std::int64_t, 3>;

constexpr std::int64_t kNowhere = -1, kZero = -2;

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

// Images as they are read: [n][d][h][w][c].
std::vector<double> read_tensor(const WgradProblem& pb, const void* data, std::int64_t images,
                                std::int64_t channels, const Extents& extent,
                                const TensorReading& as) {
  const Strides s = memory_strides(pb, as.memory, channels, extent);
  const std::int64_t pixels = extent[0] * extent[1] * extent[2];
  const std::int64_t rows = pb.channels_last ? pixels : channels;
  const std::int64_t columns = pb.channels_last ? channels : pixels;
  std::vector<double> copy;
  copy.reserve(static_cast<std::size_t>(images * s.n));
  with_scalar(pb.dtype, [&](auto scalar) {
    const auto* from = static_cast<const decltype(scalar)*>(data);
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t d = 0; d < extent[0]; ++d) {
        for (std::int64_t h = 0; h < extent[1]; ++h) {
          for (std::int64_t w = 0; w < extent[2]; ++w) {
            for (std::int64_t c = 0; c < channels; ++c) {
              std::int64_t at = d * s.spatial[0] + h * s.spatial[1] + w * s.spatial[2] + c * s.c;
              if (as.memory == Memory::turned) at = at % rows * columns + at / rows;
              copy.push_back(treated(as.treatment, pb.dtype, to_double(from[n * s.n + at])));
            }
          }
        }
      }
    }
  });
  return copy;
}

// The place in x that each output position of an axis meets under a tap.
std::vector<std::int64_t> places(const Reading& reading, std::size_t a, std::int64_t tap,
                                 std::int64_t extent, std::int64_t out) {
  const SpatialAxis& axis = reading.axis[a];
  std::vector<std::int64_t> result;
  for (std::int64_t o = 0; o < out; ++o) {
    std::int64_t at = o * axis.stride - axis.pad_before + tap * axis.dilation;
    const std::int64_t last = extent - 1;
    if (at < 0 || at > last) {
      switch (reading.outside) {
        case Outside::skipped:
          at = kNowhere;
          break;
        case Outside::multiplied:
          at = kZero;
          break;
        case Outside::edge:
          at = at < 0 ? 0 : last;
          break;
        case Outside::reflected:
          at = at < 0 ? -at : 2 * last - at;
          if (at < 0 || at > last) at = kNowhere;
          break;
        case Outside::wrapped:
          at = (at % extent + extent) % extent;
      }
    } else if (at < reading.in[a].begin || at >= reading.in[a].end) {
      at = kNowhere;
    }
    if (o < reading.out[a].begin || o >= reading.out[a].end) at = kNowhere;
    result.push_back(at);
  }
  return result;
}

struct Tensors {
  std::vector<double> x, dy;
  Range images;
};

// Calls visit(x, dy, pixel) for the terms of an entry, in the order n, z, p, q.
template <typename Visit>
void visit_read(const WgradProblem& pb, const Reading& reading, const EntryTerms& entry,
                const Tensors& tensors, Visit&& visit) {
  const Extents in = x_extents(pb), out = dy_extents(pb);
  const std::int64_t taps[] = {entry.t, entry.r, entry.s};
  std::array<std::vector<std::int64_t>, 3> at;
  for (std::size_t a = 0; a < 3; ++a) at[a] = places(reading, a, taps[a], in[a], out[a]);
  const auto of = [](const std::vector<std::int64_t>& list, std::int64_t i) {
    return list[static_cast<std::size_t>(i)];
  };
  for (std::int64_t n = 0; n < tensors.images.size(); ++n) {
    for (std::int64_t z = 0; z < out[0]; ++z) {
      const std::int64_t d = of(at[0], z);
      if (d == kNowhere) continue;
      for (std::int64_t p = 0; p < out[1]; ++p) {
        const std::int64_t h = of(at[1], p);
        if (h == kNowhere) continue;
        const std::int64_t row = (n * out[0] + z) * out[1] + p;
        const double* const x =
            tensors.x.data() + ((n * in[0] + d) * in[1] + h) * in[2] * pb.C + entry.x_channel;
        const double* const dy = tensors.dy.data() + row * out[2] * pb.K + entry.dy_channel;
        const std::int64_t pixel = (tensors.images.begin * out[0] * out[1] + row) * out[2];
        for (std::int64_t q = 0; q < out[2]; ++q) {
          const std::int64_t w = at[2][static_cast<std::size_t>(q)];
          if (w == kNowhere) continue;
          const bool zero = d == kZero || h == kZero || w == kZero;
          visit(zero ? 0.0 : x[w * pb.C], dy[q * pb.K], pixel + q);
        }
      }
    }
  }
}

// Calls use(tensors) for each block.
template <typename Use>
void each_block(const WgradProblem& pb, const TensorReading& x, const TensorReading& dy,
                const Block& block, Use&& use) {
  Tensors tensors;
  tensors.images = block.pixels[0];
  tensors.x = read_tensor(pb, block.x, tensors.images.size(), pb.C, x_extents(pb), x);
  tensors.dy = read_tensor(pb, block.dy, tensors.images.size(), pb.K, dy_extents(pb), dy);
  use(tensors);
}

bool holds(const Range& range, std::int64_t at) { return at >= range.begin && at < range.end; }

}  // namespace

Reading plain_reading(const WgradProblem& problem) {
  Reading reading;
  reading.axis = problem.axis;
  for (std::size_t a = 0; a < 3; ++a) {
    reading.in[a] = {0, problem.axis[a].in};
    reading.out[a] = {0, problem.axis[a].out};
  }
  return reading;
}

double treated(Treatment treatment, DType dtype, double value) {
  const auto bits = [&] { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); };
  switch (treatment) {
    case Treatment::none:
      return value;
    case Treatment::f32:
      return rounded(DType::f32, value);
    case Treatment::tf32:
      return std::bit_cast<float>((bits() + 0x1000u) & 0xffffe000u);
    case Treatment::tf32_cut:
      return std::bit_cast<float>(bits() & 0xffffe000u);
    case Treatment::f16:
      return rounded(DType::f16, value);
    case Treatment::bf16:
      return rounded(DType::bf16, value);
    case Treatment::bf16_cut:
      return std::bit_cast<float>(bits() & 0xffff0000u);
    case Treatment::flushed:
      return std::fabs(value) < smallest_normal(dtype) ? 0 : value;
    default:
      return value < 0 ? 0 : value;
  }
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

std::vector<EntrySum> sums_of(const WgradProblem& problem, std::span<const Wanted> wanted,
                              const Plan& images, BlockSource& source, TaskPool& pool) {
  std::vector<EntrySum> sums(wanted.size());
  std::map<std::pair<TensorReading, TensorReading>, std::vector<std::size_t>> by_copies;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    by_copies[{wanted[i].reading->x, wanted[i].reading->dy}].push_back(i);
  }
  const SumRules rules(problem, {});
  const double least = smallest_normal(accumulator_dtype(problem.dtype));
  const auto add_to = [&](auto scalar, const Wanted& w, const Tensors& tensors, EntrySum& sum) {
    using Scalar = decltype(scalar);
    const Reading& reading = *w.reading;
    visit_read(problem, reading, w.terms, tensors, [&](double x, double dy, std::int64_t pixel) {
      if (holds(reading.skipped, pixel)) return;
      if (reading.products_flushed && std::fabs(x * dy) < least) x = 0;
      sum.add<Scalar>(x, dy, rules);
      if (holds(reading.doubled, pixel)) sum.add<Scalar>(x, dy, rules);
    });
  };
  Timing timing;
  const auto use = [&](const Block& block, std::int64_t) {
    for (const auto& [copies, some] : by_copies) {
      const std::vector<std::size_t>& list = some;
      each_block(problem, copies.first, copies.second, block, [&](const Tensors& tensors) {
        pool.run(std::ssize(list), [&](std::int64_t task, int) {
          const std::size_t i = list[static_cast<std::size_t>(task)];
          if (problem.dtype == DType::f64) {
            add_to(double{}, wanted[i], tensors, sums[i]);
          } else {
            add_to(float{}, wanted[i], tensors, sums[i]);
          }
        });
      });
    }
  };
  stream_blocks(images, source, use, timing);
  return sums;
}

std::vector<Terms> terms_of(const WgradProblem& problem, std::span<const EntryTerms> entries,
                            const Plan& images, BlockSource& source, TaskPool& pool) {
  std::vector<Terms> result(entries.size());
  for (Terms& terms : result) {
    terms.x.resize(static_cast<std::size_t>(term_count(problem)));
    terms.dy.resize(terms.x.size());
  }
  const Reading plain = plain_reading(problem);
  Timing timing;
  const auto use = [&](const Block& block, std::int64_t) {
    each_block(problem, {}, {}, block, [&](const Tensors& tensors) {
      pool.run(std::ssize(result), [&](std::int64_t task, int) {
        const auto i = static_cast<std::size_t>(task);
        visit_read(problem, plain, entries[i], tensors,
                   [&](double x, double dy, std::int64_t pixel) {
                     result[i].x[static_cast<std::size_t>(pixel)] = x;
                     result[i].dy[static_cast<std::size_t>(pixel)] = dy;
                   });
      });
    });
  };
  stream_blocks(images, source, use, timing);
  return result;
}

}  // namespace convgrad::diagnosis
