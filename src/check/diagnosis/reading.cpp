#include "check/diagnosis/reading.hpp"

#include <map>
#include <set>

#include "engine/kernel.hpp"

namespace convgrad::diagnosis {
namespace {

// At this place outside x the tap meets the padding's constant; at kNowhere it adds nothing.
constexpr std::int64_t kPadding = kNowhere + 1;

// Returns the distances between neighbours if the memory of an image is taken for something.
Strides memory_strides(const WgradProblem& pb, Memory memory, std::int64_t channels,
                       const Extents& extent) {
  const bool last = pb.channels_last != (memory == Memory::other_channel_place);
  if (memory != Memory::h_and_w_swapped) return box_strides(last, channels, extent);
  Strides s = box_strides(last, channels, {extent[0], extent[2], extent[1]});
  std::swap(s.spatial[1], s.spatial[2]);
  return s;
}

// Returns the place in x that each output position of an axis meets under a tap.
std::vector<std::int64_t> places(const Reading& reading, std::size_t a, std::int64_t tap,
                                 bool outermost) {
  const SpatialAxis& axis = reading.axis[a];
  std::vector<std::int64_t> result;
  for (std::int64_t o = 0; o < axis.out; ++o) {
    std::int64_t at = o * axis.stride - axis.pad_before + tap * axis.dilation;
    const std::int64_t last = axis.in - 1;
    if (at < 0 || at > last) {
      switch (reading.outside) {
        case Outside::constant:
          at = kPadding;
          break;
        case Outside::edge:
          at = at < 0 ? 0 : last;
          break;
        case Outside::reflected:
          at = at < 0 ? -at : 2 * last - at;
          if (at < 0 || at > last) at = kNowhere;
          break;
        case Outside::wrapped:
          at = (at % axis.in + axis.in) % axis.in;
          break;
        case Outside::past:
          break;
        case Outside::past_first:
          if (outermost) break;
          [[fallthrough]];
        default:
          at = kNowhere;
      }
    } else if (at < reading.in[a].begin || at >= reading.in[a].end) {
      at = kNowhere;
    }
    if (o < reading.out[a].begin || o >= reading.out[a].end) at = kNowhere;
    result.push_back(at);
  }
  return result;
}

// A channel of x or dy is read as [n][d][h][w], with what stands beside each image.
struct Channel {
  bool of_x = false;
  TensorReading as;
  std::int64_t channel = 0;
  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr)
  std::int64_t parts() const { return as.beside == Beside::none ? 1 : 3; }
};
using Plane = std::vector<double>;

// Holds the channels that some sums need of the images of one block, from all blocks that have
// them: a reading may take other images than its own.
class Planes {
 public:
  Planes(const WgradProblem& problem, const Plan& plan, BlockSource& source, TaskPool& pool)
      : pb_(problem), plan_(plan), source_(source), pool_(pool) {}

  void read(std::int64_t index, const std::set<Channel>& channels) {
    const Block own = source_.load(plan_, index, own_memory_);
    images_ = own.pixels[0];
    planes_.clear();
    std::set<std::int64_t> blocks;
    std::vector<std::pair<const Channel*, Plane*>> list;
    for (const Channel& channel : channels) {
      Plane& plane = planes_[channel];
      plane.assign(static_cast<std::size_t>(images_.size() * channel.parts() * size_of(channel)),
                   0);
      list.emplace_back(&channel, &plane);
      add_blocks(channel, blocks);
    }
    for (const std::int64_t other : blocks) {
      const Block block = other == index ? own : source_.load(plan_, other, other_memory_);
      pool_.run(std::ssize(list), [&](std::int64_t task, int) {
        const auto& each = list[static_cast<std::size_t>(task)];
        with_scalar(pb_.dtype,
                    [&](auto scalar) { fill<decltype(scalar)>(*each.first, block, *each.second); });
      });
    }
  }

  const Range& images() const { return images_; }
  const Plane& of(const Channel& channel) const { return planes_.at(channel); }
  std::int64_t size_of(const Channel& c) const { return pixels_of(extents_of(pb_, c.of_x)); }

 private:
  std::int64_t count(const Channel& c) const { return channels_of(pb_, c.of_x); }

  // Returns the tensor's element at which image n is read, or kNowhere.
  std::int64_t start(const Channel& c, std::int64_t n) const {
    return c.as.starts.empty() ? n * size_of(c) * count(c)
                               : c.as.starts[static_cast<std::size_t>(n)];
  }

  // Returns what part 0, 1 or 2 of a plane holds for image n: the start of an image, and a channel.
  // Part 1 is the image itself, 0 and 2 stand before and after it.
  std::pair<std::int64_t, std::int64_t> part(const Channel& c, std::int64_t n,
                                             std::int64_t part) const {
    if (c.as.beside == Beside::none || part == 1) return {start(c, n), c.channel};
    const std::int64_t image = size_of(c) * count(c);
    if (c.as.beside == Beside::memory && !pb_.channels_last) {
      const std::int64_t at = n * count(c) + c.channel + part - 1;
      const bool there = at >= 0 && at < pb_.N * count(c);
      return {there ? at / count(c) * image : kNowhere, there ? at % count(c) : 0};
    }
    std::int64_t other = n + part - 1;
    if (c.as.beside == Beside::images_wrapped) other = (other + pb_.N) % pb_.N;
    return {other >= 0 && other < pb_.N ? other * image : kNowhere, c.channel};
  }

  void add_blocks(const Channel& c, std::set<std::int64_t>& blocks) const {
    const std::int64_t image = size_of(c) * count(c);
    for (std::int64_t n = images_.begin; n < images_.end; ++n) {
      for (std::int64_t p = 0; p < c.parts(); ++p) {
        const std::int64_t begin = part(c, n, c.parts() == 1 ? 1 : p).first;
        if (begin == kNowhere) continue;
        // An image that begins at a wrong distance lies across two.
        for (const std::int64_t at : {begin / image, (begin + image - 1) / image}) {
          if (at < pb_.N) blocks.insert(at / plan_.schedule.blocks.step);
        }
      }
    }
  }

  template <typename Scalar>
  void fill(const Channel& c, const Block& block, Plane& plane) const {
    const auto* const from = static_cast<const Scalar*>(c.of_x ? block.x : block.dy);
    const Extents extent = extents_of(pb_, c.of_x);
    const Strides s = memory_strides(pb_, c.as.memory, count(c), extent);
    const std::int64_t pixels = size_of(c);
    const std::int64_t rows = pb_.channels_last ? pixels : count(c);
    const std::int64_t columns = pb_.channels_last ? count(c) : pixels;
    const Neighbour& neighbour = c.as.neighbour;
    const Range there = {block.pixels[0].begin * s.n, block.pixels[0].end * s.n};
    double* to = plane.data();
    for (std::int64_t i = 0; i < images_.size() * c.parts(); ++i) {
      const std::int64_t n = images_.begin + i / c.parts();
      const auto [begin, channel] = part(c, n, c.parts() == 1 ? 1 : i % c.parts());
      if (begin == kNowhere || begin >= there.end || begin + s.n <= there.begin) {
        to += pixels;
        continue;
      }
      std::int64_t at[3];
      for (at[0] = 0; at[0] < extent[0]; ++at[0]) {
        for (at[1] = 0; at[1] < extent[1]; ++at[1]) {
          for (at[2] = 0; at[2] < extent[2]; ++at[2], ++to) {
            std::int64_t place = channel * s.c;
            for (std::size_t a = 0; a < 3; ++a) place += at[a] * s.spatial[a];
            if (neighbour.axis >= 0)
              place += moved(neighbour, at, extent) *
                       s.spatial[static_cast<std::size_t>(neighbour.axis)];
            // A tensor that was turned has its columns where its rows were.
            if (c.as.memory == Memory::turned) place = place % rows * columns + place / rows;
            place += begin;
            if (place < there.begin || place >= there.end) continue;
            *to = treated(c.as.treatment, pb_.dtype, to_double(from[place - there.begin]),
                          c.as.parameter);
          }
        }
      }
    }
  }

  static std::int64_t moved(const Neighbour& n, const std::int64_t (&at)[3],
                            const Extents& extent) {
    const auto a = static_cast<std::size_t>(n.axis);
    const std::int64_t line = n.line < 0 ? 0 : n.line > 0 ? extent[a] - 1 : at[a];
    const bool there = at[a] + n.step >= 0 && at[a] + n.step < extent[a];
    return at[a] == line && there ? n.step : 0;
  }

  const WgradProblem& pb_;
  const Plan& plan_;
  BlockSource& source_;
  TaskPool& pool_;
  BlockMemory own_memory_, other_memory_;
  Range images_;
  std::map<Channel, Plane> planes_;
};

// A term has its values, and the pixels of dy and of x that they belong to (-1: none).
struct Term {
  double x, dy;
  std::int64_t pixel, x_pixel;
};

// Calls visit(term) for the terms of an entry, in the order n, z, p, q.
template <typename Visit>
void visit_read(const WgradProblem& pb, const Reading& reading, const EntryTerms& entry,
                const Planes& planes, Visit&& visit) {
  const Channel x_channel = {true, reading.x, entry.x_channel};
  const Channel dy_channel = {false, reading.dy, entry.dy_channel};
  const std::int64_t parts = x_channel.parts(), in = planes.size_of(x_channel);
  const double* const x = planes.of(x_channel).data() + (parts == 1 ? 0 : in);
  const double* dy = planes.of(dy_channel).data();
  std::array<std::vector<std::int64_t>, 3> at;
  const std::size_t outermost = pb.spatial_rank() > 2 ? 0 : pb.spatial_rank() > 1 ? 1 : 2;
  for (std::size_t a = 0; a < 3; ++a) at[a] = places(reading, a, entry.tap[a], a == outermost);
  // Places past the ends of an image are in the parts beside it.
  const std::int64_t least = parts == 1 ? 0 : -in, most = parts == 1 ? in : 2 * in;
  const std::int64_t H = pb.axis[1].in, W = pb.axis[2].in;
  std::int64_t pixel = planes.images().begin * pb.out_pixels();
  for (std::int64_t n = 0; n < planes.images().size(); ++n) {
    const std::int64_t image = (planes.images().begin + n) * in;
    for (const std::int64_t d : at[0]) {
      for (const std::int64_t h : at[1]) {
        for (const std::int64_t w : at[2]) {
          const double value = *dy++;
          const std::int64_t own = pixel++;
          if (d == kNowhere || h == kNowhere || w == kNowhere) continue;
          if (d == kPadding || h == kPadding || w == kPadding) {
            visit(Term{reading.padding, value, own, -1});
            continue;
          }
          const std::int64_t place = (d * H + h) * W + w;
          if (place < least || place >= most) continue;
          visit(Term{x[n * parts * in + place], value, own, image + place});
        }
      }
    }
  }
}

bool holds(const Range& range, std::int64_t at) { return at >= range.begin && at < range.end; }

// Calls visit(reading, term) for the terms of a reading that may hold for some pixels only; the
// others are read plainly.
template <typename Visit>
void visit_all(const WgradProblem& pb, const Reading& plain, const Reading& reading,
               const EntryTerms& entry, const Planes& planes, Visit&& visit) {
  const bool everywhere = reading.only.size() <= 0;
  const auto inside = [&](const Term& term) {
    return holds(reading.only, reading.only_of_x ? term.x_pixel : term.pixel);
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
void read_blocks(const WgradProblem& problem, std::span<const Wanted> wanted, const Plan& images,
                 BlockSource& source, TaskPool& pool, Use&& use) {
  const Reading plain = plain_reading(problem);
  std::set<Channel> channels;
  for (const Wanted& w : wanted) {
    for (const Reading* reading : {w.reading, &plain}) {
      channels.insert({true, reading->x, w.terms.x_channel});
      channels.insert({false, reading->dy, w.terms.dy_channel});
      // A reading that holds everywhere needs no plain terms.
      if (w.reading->only.size() <= 0) break;
    }
  }
  Planes planes(problem, images, source, pool);
  for (std::int64_t index = 0; index < images.schedule.blocks.count; ++index) {
    planes.read(index, channels);
    pool.run(std::ssize(wanted),
             [&](std::int64_t task, int) { use(static_cast<std::size_t>(task), planes); });
  }
  source.finish();
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

bool same_memory(const WgradProblem& pb, Memory memory, bool of_x) {
  const Extents extent = extents_of(pb, of_x);
  const std::int64_t channels = channels_of(pb, of_x);
  const Strides plain = memory_strides(pb, Memory::as_it_is, channels, extent);
  // Turning changes nothing where taking the memory for the other layout does not.
  const Strides other = memory_strides(
      pb, memory == Memory::turned ? Memory::other_channel_place : memory, channels, extent);
  bool same = channels == 1 || plain.c == other.c;
  for (std::size_t a = 0; a < 3; ++a) {
    same = same && (extent[a] <= 1 || plain.spatial[a] == other.spatial[a]);
  }
  return same;
}

Facts facts_of(const WgradProblem& problem, const Plan& images, BlockSource& source) {
  Facts facts;
  Timing timing;
  const auto add = [&](const void* data, std::int64_t count, double& most) {
    with_scalar(problem.dtype, [&](auto scalar) {
      const auto* const from = static_cast<const decltype(scalar)*>(data);
      for (std::int64_t i = 0; i < count; ++i) {
        const double size = std::fabs(to_double(from[i]));
        if (size > most && size < HUGE_VAL) most = size;
      }
    });
  };
  const auto use = [&](const Block& block, std::int64_t) {
    const std::int64_t n = block.pixels[0].size();
    add(block.x, n * (problem.x_count() / problem.N), facts.x);
    add(block.dy, n * (problem.dy_count() / problem.N), facts.dy);
  };
  stream_blocks(images, source, use, timing);
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

std::vector<EntrySum> sums_of(const WgradProblem& problem, std::span<const Wanted> wanted,
                              const Plan& images, BlockSource& source, TaskPool& pool) {
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
  read_blocks(problem, wanted, images, source, pool, [&](std::size_t i, const Planes& planes) {
    if (problem.dtype == DType::f64) {
      add_to(double{}, wanted[i], planes, sums[i]);
    } else {
      add_to(float{}, wanted[i], planes, sums[i]);
    }
  });
  return sums;
}

std::vector<Terms> terms_of(const WgradProblem& problem, std::span<const EntryTerms> entries,
                            const Reading& reading, const Plan& images, BlockSource& source,
                            TaskPool& pool) {
  const std::int64_t count = problem.N * pixels_of(extents_of(problem, reading.only_of_x));
  std::vector<Terms> result(entries.size());
  for (Terms& terms : result) {
    terms.x.resize(static_cast<std::size_t>(count));
    terms.dy.resize(terms.x.size());
  }
  std::vector<Wanted> wanted;
  for (const EntryTerms& entry : entries) wanted.push_back({&reading, entry});
  read_blocks(problem, wanted, images, source, pool, [&](std::size_t i, const Planes& planes) {
    visit_read(problem, reading, entries[i], planes, [&](const Term& term) {
      const std::int64_t at = reading.only_of_x ? term.x_pixel : term.pixel;
      if (at < 0) return;
      result[i].x[static_cast<std::size_t>(at)] = term.x;
      result[i].dy[static_cast<std::size_t>(at)] = term.dy;
    });
  });
  return result;
}

}  // namespace convgrad::diagnosis
