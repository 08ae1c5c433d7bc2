// reading.cpp - see reading.hpp: reads channels as a reading has their memory and their numbers,
// and visits the terms of an entry.
#include "check/diagnosis/reading.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/integers.hpp"
#include "check/groups.hpp"

namespace convgrad::diagnosis {
namespace {

// A channel of x or dy is read as [n][d][h][w].
struct Channel {
  bool of_x = false;
  TensorReading as;
  std::int64_t channel = 0;
  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr)
  bool across_images() const { return as.order && as.order->axes[0].letter != 'N'; }
};

// Fills the plane of a channel from the blocks that have what it reads.
struct Filler {
  const WgradProblem& pb;
  const Range images;
  const Channel& c;
  const std::int64_t pixels = pixels_of(extents_of(pb, c.of_x));
  const std::int64_t channels = channels_of(pb, c.of_x), image = pixels * channels;  // of one
  std::vector<double> plane = std::vector<double>(static_cast<std::size_t>(images.size() * pixels));

  void add_blocks(const Plan& plan, std::set<std::int64_t>& blocks) const {
    if (c.across_images()) {
      for (std::int64_t i = 0; i < plan.schedule.blocks.count; ++i) blocks.insert(i);
    }
    for (std::int64_t n = images.begin; n < images.end; ++n) {
      blocks.insert(image_read_for(n) / plan.schedule.blocks.step);
    }
  }

  template <typename Scalar>
  void fill(const Block& block) {
    const auto* const from = static_cast<const Scalar*>(c.of_x ? block.x : block.dy);
    const Range there = {block.pixels[0].begin * image, block.pixels[0].end * image};
    double* to = plane.data();
    for (std::int64_t n = images.begin; n < images.end; ++n, to += pixels) {
      const std::int64_t begin = image_read_for(n) * image;
      const bool elsewhere = begin < there.begin || begin >= there.end;
      if (elsewhere && !c.across_images()) continue;
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        const std::int64_t own =
            begin + (pb.channels_last ? pixel * channels + c.channel : c.channel * pixels + pixel);
        const std::int64_t place = !c.as.order   ? own
                                   : c.as.turned ? c.as.order->index(own)
                                                 : c.as.order->position(own);
        if (place < there.begin || place >= there.end) continue;
        to[pixel] = value_of(from + (place - there.begin), n);
      }
    }
  }

  std::vector<double> take() {
    const auto size = static_cast<std::size_t>(c.as.block);
    const bool scaled = c.as.by == Scaled::pixel_blocks;
    for (std::size_t begin = 0; scaled && begin < plane.size(); begin += size) {
      const std::span block(plane.data() + begin, std::min(size, plane.size() - begin));
      double most = 0;
      for (const double value : block) most = std::max(most, std::fabs(value));
      for (double& value : block) value = block_treated(value, most);
    }
    return std::move(plane);
  }

  std::int64_t image_read_for(std::int64_t n) const {
    return c.as.images.empty() ? n : c.as.images[static_cast<std::size_t>(n)];
  }

  // Returns a number of image n as the reading treats it.
  template <typename Scalar>
  double value_of(const Scalar* at, std::int64_t n) const {
    const double value = to_double(*at);
    const std::vector<double>& scales = c.as.scales;
    if (c.as.by == Scaled::pixel_blocks) return value;  // take() has all pixels
    if (c.as.by == Scaled::channel_blocks) {
      const std::int64_t step = pb.channels_last ? 1 : pixels;
      const std::int64_t first = c.channel / c.as.block * c.as.block;
      double most = 0;
      for (std::int64_t i = first; i < std::min(first + c.as.block, channels); ++i) {
        most = std::max(most, std::fabs(to_double(at[(i - c.channel) * step])));
      }
      return block_treated(value, most);
    }
    if (scales.empty()) return treated(value, c.as.parameter);
    return treated(value,
                   scales[static_cast<std::size_t>(c.as.by == Scaled::channels ? c.channel : n)]);
  }

  double treated(double value, double scale) const {
    return diagnosis::treated(c.as.treatment, pb.dtype, value, scale);
  }
  // Rounds with a scale that makes the block's largest number the type's, or near to it.
  double block_treated(double value, double most) const {
    if (!(most > 0) || !std::isfinite(most)) return value;
    double scale = rounded(accumulator_dtype(pb.dtype), most / c.as.parameter);
    if (c.as.power) scale = std::ldexp(1.0, std::ilogb(most) - std::ilogb(c.as.parameter));
    for (const double all : c.as.scales) {
      scale = diagnosis::treated(Treatment::e4m3, pb.dtype, scale / all) * all;
    }
    const double largest = c.as.parameter * scale;
    return scale > 0 ? treated(std::clamp(value, -largest, largest), scale) : 0;
  }
};

// Holds the channels that some sums need of the images of one block, from all blocks that have
// them: a reading may take other images than its own.
struct Planes {
  Range images;
  std::map<Channel, std::vector<double>> of;
};

Planes read_planes(const Images& images, std::int64_t block, const std::set<Channel>& channels,
                   std::array<BlockMemory, 2>& memory) {
  const Plan& plan = images.plan;
  const Block own = images.source.load(plan, block, memory[0]);
  Planes planes = {own.pixels[0], {}};
  std::vector<Filler> fillers;
  std::set<std::int64_t> blocks;
  for (const Channel& channel : channels) {
    fillers.push_back({plan.problem, planes.images, channel});
    fillers.back().add_blocks(plan, blocks);
  }
  for (const std::int64_t i : blocks) {
    const Block other = i == block ? own : images.source.load(plan, i, memory[1]);
    const auto fill = [&](std::int64_t task, auto scalar) {
      fillers[static_cast<std::size_t>(task)].fill<decltype(scalar)>(other);
    };
    run_tasks(images.pool, plan.problem.dtype, std::ssize(fillers), {}, fill);
  }
  for (Filler& filler : fillers) planes.of[filler.c] = filler.take();
  return planes;
}

// At these places a tap adds nothing, or meets padding that is multiplied.
constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kPadding = kNowhere + 1;

// Returns which of count parts, as even as can be and the larger ones first, has an index.
std::int64_t part_of(std::int64_t extent, std::int64_t count, std::int64_t index) {
  const std::int64_t size = extent / count, larger = extent % count * (size + 1);
  return index < larger ? index / (size + 1) : extent % count + (index - larger) / size;
}

// Returns the place that is read for one outside x.
std::int64_t outside_place(Outside how, std::int64_t at, std::int64_t extent) {
  const std::int64_t last = extent - 1, reflected = at < 0 ? -at : 2 * last - at;
  switch (how) {
    case Outside::multiplied:
      return kPadding;
    case Outside::edge:
      return at < 0 ? 0 : last;
    case Outside::reflected:
      return reflected < 0 || reflected > last ? kNowhere : reflected;
    case Outside::wrapped:
      return (at % extent + extent) % extent;
    default:
      return kNowhere;
  }
}

// Returns the place in x that each output position of an axis meets under a tap.
std::vector<std::int64_t> places(const Reading& reading, std::size_t a, std::int64_t tap) {
  const SpatialAxis& axis = reading.axis[a];
  const Range& left_out = reading.left_out[a];
  const std::int64_t parts = reading.parts[a], tile = reading.tiles[a];
  std::vector<std::int64_t> result;
  result.reserve(static_cast<std::size_t>(axis.out));
  for (std::int64_t o = 0; o < axis.out; ++o) {
    std::int64_t at = input_at(axis, o, tap);
    const bool inside = at >= 0 && at < axis.in;
    if (!inside) at = outside_place(reading.outside, at, axis.in);
    bool lost = at >= left_out.begin && at < left_out.end;
    // Returns how many parts further on that place is.
    const auto apart = [&] {
      return tile > 0 ? at / (tile * axis.stride) - o / tile
                      : part_of(axis.in, parts, at) - part_of(axis.out, parts, o);
    };
    if ((parts > 1 || tile > 0) && at >= 0) {
      const std::int64_t step = apart() > 0 ? -1 : 1;
      while (reading.halo == Halo::edge && apart() * step < 0 && at + step < axis.in) at += step;
      lost = lost || (apart() < 0 && reading.halo != Halo::zeros_behind) ||
             (apart() > 0 && reading.halo != Halo::zeros_before);
    }
    result.push_back(lost ? kNowhere : at);
  }
  return result;
}

// A term has its values, and the pixel of dy that they belong to.
struct Term {
  double x, dy;
  std::int64_t pixel;
};

// Calls visit(term) for the terms of an entry, in the order n, z, p, q.
template <typename Visit>
void visit_read(const WgradProblem& pb, const Reading& reading, const EntryTerms& entry,
                const Planes& planes, Visit&& visit) {
  const std::vector<double>& x = planes.of.at({true, reading.x, entry.x_channel});
  const std::vector<double>& dy = planes.of.at({false, reading.dy, entry.dy_channel});
  std::array<std::vector<std::int64_t>, 3> at;
  for (std::size_t a = 0; a < 3; ++a) at[a] = places(reading, a, entry.tap[a]);
  const std::int64_t D = pb.axis[0].in, H = pb.axis[1].in, W = pb.axis[2].in;
  const std::int64_t first = planes.images.begin * pb.out_pixels();
  std::int64_t pixel = first;
  // Another stage is read where these images have it.
  const auto place_read_for = [&](std::int64_t own) {
    if (reading.stage == 0) return static_cast<std::size_t>(own - first);
    const std::int64_t other = pixel_of_stage(reading, own) - first;
    return static_cast<std::size_t>(other >= 0 && other < std::ssize(dy) ? other : own - first);
  };
  std::vector<double> of_pixels(reading.stage_of_x ? dy.size() : 0);
  for (std::int64_t n = 0; n < planes.images.size(); ++n) {
    for (const std::int64_t d : at[0]) {
      for (const std::int64_t h : at[1]) {
        const bool lost = d == kNowhere || h == kNowhere, pads = d == kPadding || h == kPadding;
        const std::int64_t line = lost || pads ? 0 : ((n * D + d) * H + h) * W;
        for (const std::int64_t w : at[2]) {
          const std::int64_t own = pixel++;
          if (lost || w == kNowhere) continue;
          const bool padding = pads || w == kPadding;
          const double seen = padding ? 0 : x[static_cast<std::size_t>(line + w)];
          if (reading.stage_of_x) {
            of_pixels[static_cast<std::size_t>(own - first)] = seen;
          } else {
            visit(Term{seen, dy[place_read_for(own)], own});
          }
        }
      }
    }
  }
  for (std::size_t i = 0; i < of_pixels.size(); ++i) {
    const std::int64_t own = first + static_cast<std::int64_t>(i);
    visit(Term{of_pixels[place_read_for(own)], dy[i], own});
  }
}

// Calls use(i, planes) for each of the wanted, by any thread, for each block of images.
template <typename Use>
void read_blocks(std::span<const Wanted> wanted, const Images& images, Use&& use) {
  const Reading plain = plain_reading(images.plan.problem);
  std::set<Channel> channels;
  for (const Wanted& w : wanted) {
    for (const Reading* reading : {w.reading, &plain}) {
      channels.insert({true, reading->x, w.terms.x_channel});
      channels.insert({false, reading->dy, w.terms.dy_channel});
      // A reading that holds everywhere needs no plain terms.
      if (w.reading->only.are_all()) break;
    }
  }
  std::array<BlockMemory, 2> memory;
  for (std::int64_t index = 0; index < images.plan.schedule.blocks.count; ++index) {
    if (images.before_block) images.before_block();
    const Planes planes = read_planes(images, index, channels, memory);
    images.pool.run(std::ssize(wanted),
                    [&](std::int64_t task, int) { use(static_cast<std::size_t>(task), planes); });
  }
  images.source.finish();
}

bool narrows(Treatment t) {
  return t != Treatment::none && t != Treatment::flushed && t != Treatment::relu;
}

double product(const Reading& reading, DType dtype, double x, double dy) {
  const DType sums = accumulator_dtype(dtype);
  if (reading.product != Treatment::bf16_three)
    return treated(reading.product, sums, rounded(sums, x * dy));
  const double high = rounded(DType::bf16, x), other_high = rounded(DType::bf16, dy);
  const double low = treated(Treatment::bf16_twice, dtype, x) - high;
  const double other_low = treated(Treatment::bf16_twice, dtype, dy) - other_high;
  return (high + low) * other_high + high * other_low;
}

}  // namespace

Reading plain_reading(const WgradProblem& problem) {
  Reading reading;
  reading.axis = problem.axis;
  return reading;
}

bool rounds_inputs(const Reading& r) {
  return narrows(r.x.treatment) || narrows(r.dy.treatment) || r.product == Treatment::bf16_three;
}

bool rounds(const Reading& r) { return rounds_inputs(r) || narrows(r.product); }

std::int64_t step_of(const WgradProblem& pb, const Pixels& walk, std::int64_t pixel) {
  switch (walk.by) {
    case Pixels::By::line:
      return pixel_place(pb, pixel)[static_cast<std::size_t>(walk.unit) + 1];
    case Pixels::By::place:
      return pixel % pb.out_pixels();
    case Pixels::By::border: {
      const std::array<std::int64_t, 4> at = pixel_place(pb, pixel);
      std::int64_t distance = pixel;  // which is no smaller
      for (std::size_t a = 0; a < 3; ++a) {
        const std::int64_t last = pb.axis[a].out - 1;
        if (last > 0) distance = std::min({distance, at[a + 1], last - at[a + 1]});
      }
      return distance;
    }
    case Pixels::By::tile:
    case Pixels::By::image_tile: {
      const auto [n, z, p, q] = pixel_place(pb, pixel);
      const std::int64_t across = ceil_div(pb.axis[2].out, walk.unit);
      const std::int64_t down = ceil_div(pb.axis[1].out, walk.unit);
      const std::int64_t image = walk.by == Pixels::By::tile ? 0 : n * down;
      return (image + p / walk.unit) * across + q / walk.unit;
    }
    case Pixels::By::lane:
      return pixel % walk.unit;
    case Pixels::By::image_lane:
      return pixel / pb.out_pixels() % walk.unit;
    default:
      return pixel;
  }
}

std::int64_t step_count(const WgradProblem& pb, const Pixels& walk) {
  if (walk.by >= Pixels::By::lane) return walk.unit;
  // The last pixel is in the last step; of the border one in the middle is.
  const auto& [z, p, q] = pb.axis;
  const std::int64_t middle = (z.out / 2 * p.out + p.out / 2) * q.out + q.out / 2;
  return step_of(pb, walk, walk.by == Pixels::By::border ? middle : term_count(pb) - 1) + 1;
}

Facts facts_of(const Images& images) {
  const WgradProblem& problem = images.plan.problem;
  Facts facts;
  Timing timing;
  const auto use = [&](const Block& block, std::int64_t) {
    for (const bool of_x : {true, false}) {
      const std::int64_t pixels = pixels_of(extents_of(problem, of_x));
      const std::int64_t channels = channels_of(problem, of_x), size = pixels * channels;
      Facts::Largest& most = of_x ? facts.x : facts.dy;
      most.channels.resize(static_cast<std::size_t>(channels));
      most.images.resize(static_cast<std::size_t>(problem.N));
      with_scalar(problem.dtype, [&]<typename Scalar>(Scalar) {
        const auto* const from = static_cast<const Scalar*>(of_x ? block.x : block.dy);
        for (std::int64_t i = 0; i < block.pixels[0].size() * size; ++i) {
          const double value = std::fabs(to_double(from[i]));
          if (!(value < HUGE_VAL)) continue;
          const std::int64_t c = problem.channels_last ? i % channels : i / pixels % channels;
          for (double* const each :
               {&most.all, &most.channels[static_cast<std::size_t>(c)],
                &most.images[static_cast<std::size_t>(block.pixels[0].begin + i / size)]}) {
            *each = std::max(*each, value);
          }
        }
      });
    }
  };
  stream_blocks(images.plan, images.source, use, timing);
  return facts;
}

std::vector<EntrySum> sums_of(std::span<const Wanted> wanted, const Images& images,
                              bool values_alone) {
  const WgradProblem& problem = images.plan.problem;
  const Reading plain = plain_reading(problem);
  std::vector<EntrySum> sums(wanted.size());
  const SumRules rules(problem, {});
  read_blocks(wanted, images, [&](std::size_t i, const Planes& planes) {
    const Wanted& w = wanted[i];
    const Pixels& only = w.reading->only;
    const bool everywhere = only.are_all();
    EntrySum sum = sums[i];  // which no other store can be taken to change
    for (const Reading* const r : {w.reading, &plain}) {
      if ((r == &plain && everywhere) || r->weight == 0) continue;
      const bool exact = r->product == Treatment::none;
      if (values_alone && everywhere && exact) {
        double total = 0;
        visit_read(problem, *r, w.terms, planes, [&](const Term& t) { total += t.x * t.dy; });
        sum.run.sum += r->weight * total;
        continue;
      }
      visit_read(problem, *r, w.terms, planes, [&](const Term& t) {
        const auto inside = [&] {
          const std::int64_t step = step_of(problem, only, t.pixel);
          return step >= only.range.begin && step < only.range.end;
        };
        if (!everywhere && inside() != (r == w.reading)) return;
        // EntrySum multiplies by itself, so another product goes in as x, with 1 for dy.
        const double x = exact ? t.x : product(*r, problem.dtype, t.x, t.dy);
        sum.add(r->weight == 1 ? x : r->weight * x, exact ? t.dy : 1.0, rules);
      });
    }
    sums[i] = sum;
  });
  return sums;
}

std::vector<Terms> terms_of(std::span<const EntryTerms> entries, const Images& images) {
  const WgradProblem& problem = images.plan.problem;
  const std::vector<double> zeros(static_cast<std::size_t>(term_count(problem)));
  std::vector<Terms> result(entries.size(), {zeros, zeros});
  const Reading plain = plain_reading(problem);
  std::vector<Wanted> wanted;
  for (const EntryTerms& entry : entries) wanted.push_back({&plain, entry});
  read_blocks(wanted, images, [&](std::size_t i, const Planes& planes) {
    const std::vector<double>& dy = planes.of.at({false, plain.dy, entries[i].dy_channel});
    std::ranges::transform(dy, result[i].dy.begin() + planes.images.begin * problem.out_pixels(),
                           [](double value) { return std::isfinite(value) ? value : 0; });
    visit_read(problem, plain, entries[i], planes, [&](const Term& term) {
      result[i].x[static_cast<std::size_t>(term.pixel)] = term.x;
      result[i].dy[static_cast<std::size_t>(term.pixel)] = term.dy;
    });
  });
  return result;
}

}  // namespace convgrad::diagnosis
