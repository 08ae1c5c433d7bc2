#include "check/order_walk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <tuple>
#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xpad.hpp>
#include <xtensor/xtensor.hpp>

#include "base/integers.hpp"
#include "check/block_walk.hpp"
#include "check/entry_sum.hpp"

namespace convgrad {
namespace {

using Complex = std::complex<double>;
using Extents = std::array<std::int64_t, 4>;

std::int64_t volume(const Extents& e) { return e[0] * e[1] * e[2] * e[3]; }
std::int64_t volume(const std::array<Range, 4>& box) {
  return volume(Extents{box[0].size(), box[1].size(), box[2].size(), box[3].size()});
}

std::size_t place_in(const Extents& e, const Extents& at) {
  return static_cast<std::size_t>(((at[0] * e[1] + at[1]) * e[2] + at[2]) * e[3] + at[3]);
}

// A layout has so many places at most, and all entries' together have so many: then they take about
// a second and 200 MB.
constexpr std::int64_t kMostPlaces = std::int64_t{1} << 21, kMostInAll = std::int64_t{1} << 23;
// A place takes 64 bytes with the fewest entries, and there may be two layouts: a quarter of the
// memory at most.
constexpr std::int64_t kLeastPlaces = 4096, kMemoryPart = 512;
// So many entries show the parts of most problems, each with sums of their own channels.
constexpr std::int64_t kMostLaidOut = 64, kLeastLaidOut = 4;
// A folded axis keeps turns of 2 to 8 and their multiples: they divide this.
constexpr std::int64_t kFolds[] = {840, 24, 2};
// The sums of a unit stay in a part of a core's second cache.
constexpr std::int64_t kUnitBytes = std::int64_t{512} << 10;
// Tiles are no smaller than this; smaller ones are waves.
constexpr std::int64_t kLeastTile = 4;

// Transforms 2^k numbers `step` apart (Cooley, Tukey: An algorithm for the machine calculation of
// complex Fourier series, 1965).
void transform(Complex* line, std::int64_t count, std::int64_t step, std::vector<Complex>& work) {
  work.resize(static_cast<std::size_t>(count));
  const int bits = std::countr_zero(static_cast<std::uint64_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t reversed = 0;
    for (int b = 0; b < bits; ++b) reversed |= (i >> b & 1) << (bits - 1 - b);
    work[static_cast<std::size_t>(reversed)] = line[i * step];
  }
  for (std::int64_t half = 1; half < count; half *= 2) {
    const Complex turn = std::polar(1.0, -std::numbers::pi / static_cast<double>(half));
    Complex root = 1;
    for (std::int64_t i = 0; i < half; ++i, root *= turn) {
      for (std::int64_t at = i; at < count; at += 2 * half) {
        Complex &a = work[static_cast<std::size_t>(at)],
                &b = work[static_cast<std::size_t>(at + half)];
        const Complex product = {b.real() * root.real() - b.imag() * root.imag(),
                                 b.real() * root.imag() + b.imag() * root.real()};
        b = a - product;
        a += product;
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i) line[i * step] = work[static_cast<std::size_t>(i)];
}

// What chance makes the largest of so many squares with that mean, in each of kMostLaidOut entries,
// but once in e^7 times.
double by_chance(double mean, double count) {
  return mean * (std::log(count * static_cast<double>(kMostLaidOut)) + 7);
}

// Returns the whole of an axis, its halves, quarters and so on.
std::vector<Range> tiles_of(std::int64_t extent) {
  std::vector<Range> tiles = {{0, extent}};
  for (std::int64_t parts = 2; extent / parts >= kLeastTile || (parts == 2 && extent >= 2);
       parts *= 2) {
    for (std::int64_t i = 0; i < parts; ++i) {
      tiles.push_back({i * extent / parts, (i + 1) * extent / parts});
    }
  }
  return tiles;
}

// Holds the sums of all boxes that begin at 0.
class BoxSums {
 public:
  BoxSums(const std::vector<float>& terms, const Extents& extents) {
    std::array<std::size_t, 4> shape{};
    for (std::size_t a = 0; a < 4; ++a) shape[a] = static_cast<std::size_t>(extents[a]);
    sums_ = xt::adapt(terms, shape);
    sums_ = xt::pad(sums_, {{1, 0}, {1, 0}, {1, 0}, {1, 0}});
    for (std::ptrdiff_t axis = 0; axis < 4; ++axis) sums_ = xt::cumsum(sums_, axis);
  }

  double of(const std::array<Range, 4>& box) const {
    double sum = 0;
    for (unsigned corner = 0; corner < 16; ++corner) {
      Extents at{};
      for (std::size_t a = 0; a < 4; ++a) at[a] = corner >> a & 1 ? box[a].begin : box[a].end;
      sum += (std::popcount(corner) % 2 == 0 ? 1 : -1) * sums_(at[0], at[1], at[2], at[3]);
    }
    return sum;
  }

 private:
  xt::xtensor<double, 4> sums_;
};

// Finds the box whose sum is the largest of those that chance does not make of terms with that mean
// square. Returns whether there is one.
bool largest_box(const std::vector<float>& terms, const Extents& places, double mean,
                 std::array<Range, 4>& box) {
  const BoxSums sums(terms, places);
  std::array<std::vector<Range>, 4> tiles;
  Extents counts{};
  for (std::size_t a = 0; a < 4; ++a) {
    tiles[a] = tiles_of(places[a]);
    counts[a] = std::ssize(tiles[a]);
  }
  const auto count = static_cast<double>(volume(counts));
  double largest = 0;
  for_places(counts, [&](const Extents& at) {
    std::array<Range, 4> each;
    for (std::size_t a = 0; a < 4; ++a) each[a] = tiles[a][static_cast<std::size_t>(at[a])];
    const double sum = sums.of(each), square = sum * sum;
    const double squares = mean * static_cast<double>(volume(each));
    if (square <= largest || square <= 2 * by_chance(squares, count)) return;
    largest = square;
    box = each;
  });
  return largest > 0;
}

// Returns |F|^2 of the waves of the terms, which zeros pad; none of the constant one.
std::vector<float> transformed(const std::vector<float>& terms, const Extents& places,
                               const Extents& padded) {
  std::vector<Complex> wave(static_cast<std::size_t>(volume(padded))), work;
  auto from = terms.begin();
  for_places(places, [&](const Extents& at) { wave[place_in(padded, at)] = *from++; });
  std::int64_t step = std::ssize(wave);  // from one number of a line to the next
  for (const std::int64_t extent : padded) {
    step /= extent;
    for (std::int64_t plane = 0; extent > 1 && plane < std::ssize(wave); plane += step * extent) {
      for (std::int64_t i = 0; i < step; ++i)
        transform(wave.data() + plane + i, extent, step, work);
    }
  }
  std::vector<float> powers(wave.size());
  std::transform(wave.begin() + 1, wave.end(), powers.begin() + 1,
                 [](const Complex& value) { return static_cast<float>(std::norm(value)); });
  return powers;
}

}  // namespace

std::vector<TermLayout::Layout> TermLayout::layouts_of(const WgradProblem& pb,
                                                       std::int64_t memory) {
  const std::int64_t most_places = std::clamp(memory / kMemoryPart, kLeastPlaces, kMostPlaces);
  Layout layout;
  layout.pixels = {std::max<std::int64_t>(pb.N, 1), pb.axis[0].out, pb.axis[1].out, pb.axis[2].out};
  const auto pad = [&] {
    for (std::size_t a = 0; a < 4; ++a) {
      layout.padded[a] =
          static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(layout.places[a])));
    }
    return volume(layout.padded);
  };
  layout.places = layout.pixels;
  if (pad() <= most_places) return {layout};
  for (std::size_t a = 0; pad() > most_places && a < 4; ++a) {
    const std::int64_t others = volume(layout.padded) / layout.padded[a];
    const std::int64_t most = std::max<std::int64_t>(most_places / others, 2);
    const auto* const fold =
        std::ranges::find_if(kFolds, [&](std::int64_t each) { return each <= most; });
    layout.places[a] = std::min(layout.pixels[a], most / *fold * *fold);
  }
  Layout folded = layout;
  folded.folded = true;
  return {layout, folded};
}

std::size_t TermLayout::entries_for(const WgradProblem& problem, std::int64_t memory) {
  const std::vector<Layout> layouts = layouts_of(problem, memory);
  const std::int64_t each = volume(layouts[0].padded) * std::ssize(layouts);
  return static_cast<std::size_t>(
      std::clamp(std::min(kMostInAll, memory / kMemoryPart) / each, kLeastLaidOut, kMostLaidOut));
}

std::int64_t TermLayout::memory_bytes(const WgradProblem& problem, std::int64_t memory) {
  const std::vector<Layout> layouts = layouts_of(problem, memory);
  const std::int64_t each = volume(layouts[0].padded) * std::ssize(layouts);
  // Terms and powers of each entry; a transform and sums of boxes at a time.
  return each * (8 * static_cast<std::int64_t>(entries_for(problem, memory)) + 32);
}

TermLayout::TermLayout(const WgradProblem& problem, TaskPool& pool,
                       std::vector<std::int64_t> indices, std::int64_t memory)
    : problem_(problem),
      pool_(pool),
      indices_(std::move(indices)),
      layouts_(layouts_of(problem, memory)),
      entries_(indices_.size()) {
  for (Entry& entry : entries_) {
    for (const Layout& layout : layouts_) {
      entry.terms.emplace_back(static_cast<std::size_t>(volume(layout.places)));
    }
  }
}

template <typename Scalar>
void TermLayout::add_entry(const Block& block, std::size_t index) {
  const EntryTerms from = entry_terms(problem_, indices_[index]);
  Entry& entry = entries_[index];
  double before = 0;
  std::vector<double> line_before(static_cast<std::size_t>(problem_.axis[2].out));
  visit_pixel_lines<Scalar>(
      problem_, block, block.pixels, from.tap, [&](const PixelLine<Scalar>& line) {
        const Scalar* const x = line.x + from.x_channel * block.x_strides.c;
        const Scalar* const dy = line.dy + from.dy_channel * block.dy_strides.c;
        for (std::int64_t i = 0; i < line.q.size(); ++i) {
          const double term = to_double(x[i * line.x_step]) * to_double(dy[i * line.dy_step]);
          double& above = line_before[static_cast<std::size_t>(line.q.begin + i)];
          entry.squares += term * term;
          entry.nonzero += term != 0 ? 1 : 0;
          entry.repeats += term != 0 && term == before ? 1 : 0;
          entry.above += term != 0 && term == above ? 1 : 0;
          before = above = term;
          for (std::size_t l = 0; l < layouts_.size(); ++l) {
            const Layout& layout = layouts_[l];
            Extents at = {line.n, line.z, line.p, line.q.begin + i};
            for (std::size_t a = 0; a < 4; ++a) at[a] = layout.place(a, at[a]);
            entry.terms[l][place_in(layout.places, at)] += static_cast<float>(term);
          }
        }
      });
}

void TermLayout::add(const Block& block, std::int64_t, const Progress& progress) {
  run_tasks(pool_, problem_.dtype, std::ssize(entries_), progress,
            [&](std::int64_t i, auto scalar) {
              add_entry<decltype(scalar)>(block, static_cast<std::size_t>(i));
            });
}

PixelPart TermLayout::wave_at(const Layout& layout, std::size_t at) const {
  PixelPart wave;
  wave.is_wave = true;
  auto left = static_cast<std::int64_t>(at);
  for (std::size_t a = 4; a-- > 0;) {
    const auto places = static_cast<double>(layout.places[a]);
    double turns =
        static_cast<double>(left % layout.padded[a]) / static_cast<double>(layout.padded[a]);
    if (layout.folded) {
      turns = std::rint(turns * places) / places;  // it goes on from one fold to the next
    } else {
      turns *= places / static_cast<double>(layout.pixels[a]);
    }
    wave.frequency[a] = turns;
    left /= layout.padded[a];
  }
  return wave;
}

// Returns the wave and the box with the largest sums, of each layout, that chance does not make.
std::vector<TermLayout::Candidate> TermLayout::widest(Entry& entry) const {
  std::vector<Candidate> found;
  for (std::size_t l = 0; l < layouts_.size(); ++l) {
    const Layout& layout = layouts_[l];
    const std::vector<float>& terms = entry.terms[l];
    std::vector<float>& powers =
        entry.powers.emplace_back(transformed(terms, layout.places, layout.padded));
    const auto highest = std::ranges::max_element(powers);
    if (*highest > by_chance(entry.squares, static_cast<double>(powers.size()))) {
      const auto at = static_cast<std::size_t>(highest - powers.begin());
      found.push_back({wave_at(layout, at), l, at});
    }
    if (layout.folded) continue;  // its neighbours are far from each other
    const double mean = entry.squares / static_cast<double>(volume(layout.places));
    Candidate box = {{}, l, 0};
    if (!largest_box(terms, layout.places, mean, box.places)) continue;
    for (std::size_t a = 0; a < 4; ++a) {
      // The first pixel of a place.
      const auto pixel = [&](std::int64_t place) {
        return ceil_div(place * layout.pixels[a], layout.places[a]);
      };
      box.part.box[a] = {pixel(box.places[a].begin), pixel(box.places[a].end)};
    }
    found.push_back(box);
  }
  return found;
}

// Takes the part that widens the entries most, beside those that were taken.
void TermLayout::choose(const std::vector<Candidate>& candidates) {
  std::vector<std::vector<double>> walks(candidates.size(), std::vector<double>(entries_.size()));
  pool_.run(std::ssize(entries_), [&](std::int64_t task, int) {
    const auto e = static_cast<std::size_t>(task);
    const Entry& entry = entries_[e];
    if (!(entry.squares > 0)) return;
    std::optional<BoxSums> boxes;  // of the first layout, as there are in no other
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& c = candidates[i];
      if (!c.part.is_wave && !boxes) boxes.emplace(entry.terms[0], layouts_[0].places);
      const double sum =
          c.part.is_wave ? std::sqrt(entry.powers[c.layout][c.at]) : boxes->of(c.places);
      walks[i][e] = c.part.walk(sum) / entry.squares;
    }
  });
  std::vector<double> widest(entries_.size());
  while (parts_.size() < kMostParts) {
    std::size_t best = 0;
    double most = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      double more = 0;
      for (std::size_t e = 0; e < widest.size(); ++e)
        more += std::max(walks[i][e] - widest[e], 0.0);
      if (more > most) std::tie(best, most) = std::pair(i, more);
    }
    // A sum that has no more than the terms at random is no wider.
    if (!(most > 1)) return;
    parts_.push_back(candidates[best].part);
    for (std::size_t e = 0; e < widest.size(); ++e) {
      widest[e] = std::max(widest[e], walks[best][e]);
    }
  }
}

double* TermLayout::finish(std::size_t) {
  std::vector<std::vector<Candidate>> found(entries_.size());
  pool_.run(std::ssize(entries_), [&](std::int64_t task, int) {
    const auto i = static_cast<std::size_t>(task);
    found[i] = widest(entries_[i]);
  });
  std::vector<Candidate> candidates;
  for (const std::vector<Candidate>& each : found) {
    for (const Candidate& candidate : each) {
      const auto known = std::ranges::find(candidates, candidate.part, &Candidate::part);
      if (known == candidates.end()) candidates.push_back(candidate);
    }
  }
  choose(candidates);
  alike_ =
      2 * std::ranges::count_if(entries_,
                                [](const Entry& entry) {
                                  return 2 * std::max(entry.repeats, entry.above) > entry.nonzero;
                                }) >
      std::ssize(entries_);
  entries_ = {};
  return nullptr;
}

PartSum::PartSum(const WgradProblem& pb, TaskPool& pool, std::span<const std::int64_t> indices,
                 const std::vector<PixelPart>& parts, const Summation& summation)
    : problem_(pb), pool_(pool), parts_(parts), summation_(summation) {
  const Extents pixels = {pb.N, pb.axis[0].out, pb.axis[1].out, pb.axis[2].out};
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::int64_t i = 0; i < pixels[a]; ++i) {
      for (const PixelPart& part : parts) {
        const bool inside = part.box[a].begin <= i && i < part.box[a].end;
        const double circles = std::fmod(part.frequency[a] * static_cast<double>(i), 1.0);
        weights_[a].push_back(part.is_wave ? std::polar(1.0, -2 * std::numbers::pi * circles)
                                           : Complex(inside ? 1 : 0));
      }
    }
  }
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  std::int64_t entries = 0;
  for (const std::int64_t index : indices) {
    const EntryTerms e = entry_terms(pb, index);
    const Range x = {e.x_channel, e.x_channel + 1}, dy = {e.dy_channel, e.dy_channel + 1};
    units_.push_back({e.tap, x, dy, entries++});
  }
  const std::int64_t step =
      std::clamp<std::int64_t>(kUnitBytes / (8 * (1 + 2 * std::ssize(parts)) * Kg), 1, Cg);
  for (std::int64_t i = 0; indices.empty() && i < pb.taps() * pb.groups; ++i) {
    const std::int64_t tap = i / pb.groups, group = i % pb.groups;
    for (std::int64_t c = 0; c < Cg; c += step) {
      const Range x = {group * Cg + c, group * Cg + std::min(c + step, Cg)};
      const Range dy = {group * Kg, (group + 1) * Kg};
      units_.push_back({tap_place(pb, tap), x, dy, (tap * Cg + c) * pb.K + dy.begin});
      entries += x.size() * Kg;
    }
  }
  try {
    terms_.resize(static_cast<std::size_t>(entries));
    sums_.resize(2 * parts.size() * terms_.size());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the sums in other orders");
  }
}

std::int64_t PartSum::memory_bytes() const {
  return 8 * std::ssize(sums_) + 24 * std::ssize(terms_);
}

template <typename Scalar>
void PartSum::add_unit(const Block& block, const Unit& unit) {
  const std::int64_t parts = std::ssize(parts_), views = 2 * parts, K = unit.dy.size();
  // The next pixels: where x is, and dy by each weight, or 1 where it is not 0.
  const Scalar* next_x[kBatchPixels] = {};
  std::vector<double> rows(static_cast<std::size_t>(kBatchPixels * K * views));
  std::vector<double> ones(static_cast<std::size_t>(kBatchPixels * K)), weights(rows.size() / 8);
  std::int64_t next = 0;
  const auto add_pending = [&] {
    std::fill(rows.begin() + next * K * views, rows.end(), 0.0);
    for (std::int64_t c = unit.x.begin; c < unit.x.end; ++c) {
      double values[kBatchPixels] = {}, nonzero[kBatchPixels] = {};
      for (std::int64_t i = 0; i < next; ++i) {
        values[i] = to_double(next_x[i][c * block.x_strides.c]);
        nonzero[i] = values[i] != 0 ? 1 : 0;
      }
      const std::int64_t entry = unit.first + (c - unit.x.begin) * problem_.K;
      add_batch({kBatchPixels, K * views, rows.data()}, values, {sums_.data() + entry * views});
      add_batch({kBatchPixels, K, ones.data()}, nonzero, {terms_.data() + entry});
    }
    next = 0;
  };
  const auto add_pixel = [&](const PixelLine<Scalar>& line, std::int64_t i) {
    const auto weight = [&](std::size_t axis, std::int64_t place, std::int64_t part) {
      return weights_[axis][static_cast<std::size_t>(place * parts + part)];
    };
    for (std::int64_t part = 0; part < parts; ++part) {
      const Complex w = weight(0, line.n, part) * weight(1, line.z, part) *
                        weight(2, line.p, part) * weight(3, line.q.begin + i, part);
      weights[static_cast<std::size_t>(2 * part)] = w.real();
      weights[static_cast<std::size_t>(2 * part + 1)] = w.imag();
    }
    double* row = rows.data() + next * K * views;
    for (std::int64_t k = 0; k < K; ++k) {
      const double dy =
          to_double(line.dy[i * line.dy_step + (unit.dy.begin + k) * block.dy_strides.c]);
      ones[static_cast<std::size_t>(next * K + k)] = dy != 0 ? 1 : 0;
      for (std::int64_t v = 0; v < views; ++v) *row++ = dy * weights[static_cast<std::size_t>(v)];
    }
    next_x[next++] = line.x + i * line.x_step;
    if (next == kBatchPixels) add_pending();
  };
  visit_pixel_lines<Scalar>(problem_, block, block.pixels, unit.tap,
                            [&](const PixelLine<Scalar>& line) {
                              for (std::int64_t i = 0; i < line.q.size(); ++i) add_pixel(line, i);
                            });
  add_pending();
}

void PartSum::add(const Block& block, std::int64_t, const Progress& progress) {
  run_tasks(pool_, problem_.dtype, std::ssize(units_), progress, [&](std::int64_t i, auto scalar) {
    add_unit<decltype(scalar)>(block, units_[static_cast<std::size_t>(i)]);
  });
}

double* PartSum::finish(std::size_t) {
  const double pixels = static_cast<double>(std::max<std::int64_t>(term_count(problem_), 1));
  const double longest = static_cast<double>(summation_.longest_sum);
  auto sum = sums_.begin();
  for (const double terms : terms_) {
    OrderWalk& result = walks_.emplace_back(OrderWalk{0, terms});
    for (const PixelPart& part : parts_) {
      // Sums that are restarted after so many terms do not grow further.
      const double share = part.is_wave ? 0.5 : static_cast<double>(volume(part.box)) / pixels;
      const double each = std::max(terms * share, 1.0);
      const double run = longest > 0 ? std::min(longest / each, 1.0) : 1;
      result.walk = std::max(result.walk, part.walk({sum[0], sum[1]}) * run * run);
      sum += 2;
    }
  }
  sums_ = {};
  return nullptr;
}

}  // namespace convgrad
