// reading.cpp - see reading.hpp: visits the terms of an entry as a reading has them.
#include "check/diagnosis/reading.hpp"

#include <cmath>

#include "base/integers.hpp"
#include "engine/kernel.hpp"

namespace convgrad::diagnosis {
namespace {

// At this place outside x the tap meets the padding's constant; at kNowhere it adds nothing.
constexpr std::int64_t kPadding = kNowhere + 1;

// Returns which of count parts, as even as can be and the larger ones first, has an index.
std::int64_t part_of(std::int64_t extent, std::int64_t count, std::int64_t index) {
  const std::int64_t size = extent / count, larger = extent % count * (size + 1);
  return index < larger ? index / (size + 1) : extent % count + (index - larger) / size;
}

// Returns the place that is read for one outside x.
std::int64_t outside_place(Outside how, std::int64_t at, std::int64_t extent, bool outermost) {
  const std::int64_t last = extent - 1, reflected = at < 0 ? -at : 2 * last - at;
  switch (how) {
    case Outside::constant:
      return kPadding;
    case Outside::edge:
      return at < 0 ? 0 : last;
    case Outside::reflected:
      return reflected < 0 || reflected > last ? kNowhere : reflected;
    case Outside::wrapped:
      return (at % extent + extent) % extent;
    case Outside::images:
      return outermost ? at : kNowhere;
    default:
      return kNowhere;
  }
}

// Returns the place in x that each output position of an axis meets under a tap.
std::vector<std::int64_t> places(const Reading& reading, std::size_t a, std::int64_t tap,
                                 bool outermost) {
  const SpatialAxis& axis = reading.axis[a];
  const Range &in = reading.in[a], &out = reading.out[a];
  const std::int64_t parts = reading.parts[a];
  std::vector<std::int64_t> result;
  for (std::int64_t o = 0; o < axis.out; ++o) {
    std::int64_t at = input_at(axis, o, tap);
    const bool inside = at >= 0 && at < axis.in;
    if (!inside) at = outside_place(reading.outside, at, axis.in, outermost);
    const bool lost =
        (inside && (at < in.begin || at >= in.end)) || o < out.begin || o >= out.end ||
        (parts > 1 && at >= 0 && part_of(axis.in, parts, at) != part_of(axis.out, parts, o));
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
  const Channel x_channel = {true, reading.x, entry.x_channel};
  const std::int64_t parts = x_channel.parts(), in = pixels_of(extents_of(pb, true));
  const double* const x = planes.of.at(x_channel).data() + (parts == 1 ? 0 : in);
  const std::vector<double>& dy = planes.of.at({false, reading.dy, entry.dy_channel});
  std::array<std::vector<std::int64_t>, 3> at;
  const std::size_t outermost = pb.spatial_rank() > 2 ? 0 : pb.spatial_rank() > 1 ? 1 : 2;
  for (std::size_t a = 0; a < 3; ++a) at[a] = places(reading, a, entry.tap[a], a == outermost);
  // Places past the ends of an image are in the parts beside it.
  const std::int64_t least = parts == 1 ? 0 : -in, most = parts == 1 ? in : 2 * in;
  const std::int64_t H = pb.axis[1].in, W = pb.axis[2].in;
  const std::int64_t first = planes.images.begin * pb.out_pixels();
  std::int64_t pixel = first;
  // Another stage is read where these images have it.
  const auto place_in_dy = [&](std::int64_t own) {
    const bool later = reading.stages_exchanged && own / reading.stage % 2 == 0;
    const std::int64_t other = own + (later ? reading.stage : -reading.stage) - first;
    return other >= 0 && other < std::ssize(dy) ? other : own - first;
  };
  for (std::int64_t n = 0; n < planes.images.size(); ++n) {
    for (const std::int64_t d : at[0]) {
      for (const std::int64_t h : at[1]) {
        for (const std::int64_t w : at[2]) {
          const std::int64_t own = pixel++;
          const double value = dy[static_cast<std::size_t>(place_in_dy(own))];
          if (d == kNowhere || h == kNowhere || w == kNowhere) continue;
          if (d == kPadding || h == kPadding || w == kPadding) {
            visit(Term{reading.padding, value, own});
            continue;
          }
          const std::int64_t place = (d * H + h) * W + w;
          if (place < least || place >= most) continue;
          visit(Term{x[n * parts * in + place], value, own});
        }
      }
    }
  }
}

// Calls visit(reading, term) for the terms of a reading that may hold for some pixels only; the
// others are read plainly.
template <typename Visit>
void visit_all(const WgradProblem& pb, const Reading& plain, const Reading& reading,
               const EntryTerms& entry, const Planes& planes, Visit&& visit) {
  const Range& range = reading.only.range;
  const bool everywhere = range.size() <= 0;
  const auto inside = [&](const Term& term) {
    const std::int64_t step = step_of(pb, reading.only, term.pixel);
    return step >= range.begin && step < range.end;
  };
  visit_read(pb, reading, entry, planes, [&](const Term& term) {
    if (everywhere || inside(term)) visit(reading, term);
  });
  if (everywhere) return;
  visit_read(pb, plain, entry, planes, [&](const Term& term) {
    if (!inside(term)) visit(plain, term);
  });
}

// Calls use(i, planes) for each of the wanted, by any thread, once their channels of a block are
// there.
template <typename Use>
void read_blocks(std::span<const Wanted> wanted, const Images& images, Use&& use) {
  const Reading plain = plain_reading(images.plan.problem);
  std::set<Channel> channels;
  for (const Wanted& w : wanted) {
    for (const Reading* reading : {w.reading, &plain}) {
      channels.insert({true, reading->x, w.terms.x_channel});
      channels.insert({false, reading->dy, w.terms.dy_channel});
      // A reading that holds everywhere needs no plain terms.
      if (w.reading->only.range.size() <= 0) break;
    }
  }
  std::array<BlockMemory, 2> memory;
  for (std::int64_t index = 0; index < images.plan.schedule.blocks.count; ++index) {
    const Planes planes = read_planes(images, index, channels, memory);
    images.pool.run(std::ssize(wanted),
                    [&](std::int64_t task, int) { use(static_cast<std::size_t>(task), planes); });
  }
  images.source.finish();
}

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

bool rounds_inputs(const Reading& r) {
  const auto narrows = [](Treatment t) {
    return t != Treatment::none && t != Treatment::flushed && t != Treatment::relu;
  };
  return narrows(r.x.treatment) || narrows(r.dy.treatment) || r.product == Product::without_low;
}

bool rounds(const Reading& r) {
  return rounds_inputs(r) || r.product == Product::f16 || r.product == Product::bf16;
}

std::vector<std::int64_t> image_starts(const WgradProblem& pb, bool of_x,
                                       const std::function<std::int64_t(std::int64_t)>& from) {
  const std::int64_t size = pixels_of(extents_of(pb, of_x)) * channels_of(pb, of_x);
  std::vector<std::int64_t> starts;
  bool own = true;
  for (std::int64_t n = 0; n < pb.N; ++n) {
    const std::int64_t image = from(n);
    starts.push_back(image == kNowhere ? kNowhere : image * size);
    own = own && image == n;
  }
  return own ? std::vector<std::int64_t>() : starts;
}

std::int64_t step_of(const WgradProblem& pb, const Pixels& walk, std::int64_t pixel) {
  const std::int64_t Q = pb.axis[2].out, P = pb.axis[1].out, image = pb.out_pixels();
  switch (walk.by) {
    case Pixels::By::line:
      return walk.unit == 2   ? pixel % Q
             : walk.unit == 1 ? pixel / Q % P
                              : pixel / Q / P % (image / Q / P);
    case Pixels::By::place:
      return pixel % image;
    case Pixels::By::tile:
    case Pixels::By::image_tile: {
      const std::int64_t across = ceil_div(Q, walk.unit), down = ceil_div(P, walk.unit);
      const std::int64_t tile = pixel / Q % P / walk.unit * across + pixel % Q / walk.unit;
      return walk.by == Pixels::By::tile ? tile : pixel / image * across * down + tile;
    }
    case Pixels::By::lane:
      return pixel % walk.unit;
    default:
      return pixel;
  }
}

std::int64_t step_count(const WgradProblem& pb, const Pixels& walk) {
  switch (walk.by) {
    case Pixels::By::line:
      return pb.axis[static_cast<std::size_t>(walk.unit)].out;
    case Pixels::By::place:
      return pb.out_pixels();
    case Pixels::By::lane:
      return walk.unit;
    case Pixels::By::pixel:
      return term_count(pb);
    default:
      return step_of(pb, walk, term_count(pb) - 1) + 1;
  }
}

Facts facts_of(const Images& images) {
  const WgradProblem& problem = images.plan.problem;
  Facts facts;
  Timing timing;
  const auto add = [&](const void* data, const Range& n, bool of_x) {
    const std::int64_t pixels = pixels_of(extents_of(problem, of_x));
    const std::int64_t channels = channels_of(problem, of_x), size = pixels * channels;
    Facts::Largest& most = of_x ? facts.x : facts.dy;
    most.channels.resize(static_cast<std::size_t>(channels));
    most.images.resize(static_cast<std::size_t>(problem.N));
    with_scalar(problem.dtype, [&](auto scalar) {
      const auto* const from = static_cast<const decltype(scalar)*>(data);
      for (std::int64_t i = 0; i < n.size() * size; ++i) {
        const double value = std::fabs(to_double(from[i]));
        if (!(value < HUGE_VAL)) continue;
        const std::int64_t c = problem.channels_last ? i % channels : i / pixels % channels;
        double& channel = most.channels[static_cast<std::size_t>(c)];
        double& image = most.images[static_cast<std::size_t>(n.begin + i / size)];
        channel = std::max(channel, value);
        image = std::max(image, value);
      }
    });
    for (const double value : most.images) most.all = std::max(most.all, value);
  };
  const auto use = [&](const Block& block, std::int64_t) {
    add(block.x, block.pixels[0], true);
    add(block.dy, block.pixels[0], false);
  };
  stream_blocks(images.plan, images.source, use, timing);
  return facts;
}

double product(Product how, DType dtype, double x, double dy) {
  switch (how) {
    case Product::flushed:
      return std::fabs(x * dy) < smallest_normal(accumulator_dtype(dtype)) ? 0 : x * dy;
    case Product::f16:
      return rounded(DType::f16, x * dy);
    case Product::bf16:
      return rounded(DType::bf16, x * dy);
    case Product::without_low: {
      const double low = treated(Treatment::bf16_twice, dtype, x) - rounded(DType::bf16, x);
      const double other = treated(Treatment::bf16_twice, dtype, dy) - rounded(DType::bf16, dy);
      const double high = rounded(DType::bf16, x);
      return (high + low) * rounded(DType::bf16, dy) + high * other;
    }
    default:
      return x * dy;
  }
}

std::vector<double> running_sums(const Terms& terms) {
  std::vector<double> sums(1);
  for (std::size_t i = 0; i < terms.x.size(); ++i) {
    sums.push_back(sums.back() + terms.x[i] * terms.dy[i]);
  }
  return sums;
}

std::vector<EntrySum> sums_of(std::span<const Wanted> wanted, const Images& images) {
  const WgradProblem& problem = images.plan.problem;
  const Reading plain = plain_reading(problem);
  std::vector<EntrySum> sums(wanted.size());
  const SumRules rules(problem, {});
  const auto add_to = [&](auto scalar, const Wanted& w, const Planes& planes, EntrySum& sum) {
    using Scalar = decltype(scalar);
    visit_all(problem, plain, *w.reading, w.terms, planes, [&](const Reading& r, const Term& t) {
      if (r.weight == 0) return;
      const bool exact = r.product == Product::exact;
      // EntrySum multiplies by itself, so another product goes in as x, with 1 for dy.
      const double x = exact ? t.x : product(r.product, problem.dtype, t.x, t.dy);
      sum.add<Scalar>(r.weight == 1 ? x : r.weight * x, exact ? t.dy : 1.0, rules);
    });
  };
  read_blocks(wanted, images, [&](std::size_t i, const Planes& planes) {
    if (problem.dtype == DType::f64) {
      add_to(double{}, wanted[i], planes, sums[i]);
    } else {
      add_to(float{}, wanted[i], planes, sums[i]);
    }
  });
  return sums;
}

std::vector<Terms> terms_of(std::span<const EntryTerms> entries, const Reading& reading,
                            const Images& images) {
  const WgradProblem& problem = images.plan.problem;
  const std::int64_t count = term_count(problem);
  std::vector<Terms> result(entries.size());
  for (Terms& terms : result) {
    terms.x.resize(static_cast<std::size_t>(count));
    terms.dy.resize(terms.x.size());
  }
  std::vector<Wanted> wanted;
  for (const EntryTerms& entry : entries) wanted.push_back({&reading, entry});
  read_blocks(wanted, images, [&](std::size_t i, const Planes& planes) {
    visit_read(problem, reading, entries[i], planes, [&](const Term& term) {
      result[i].x[static_cast<std::size_t>(term.pixel)] = term.x;
      result[i].dy[static_cast<std::size_t>(term.pixel)] = term.dy;
    });
  });
  return result;
}

}  // namespace convgrad::diagnosis
