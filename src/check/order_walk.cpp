#include "check/order_walk.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

#include "check/block_walk.hpp"
#include "check/sample.hpp"

namespace convgrad {
namespace {

using Complex = std::complex<double>;
using Extents = std::array<std::int64_t, 4>;

std::int64_t volume(const Extents& e) { return e[0] * e[1] * e[2] * e[3]; }

Extents pixels_of(const WgradProblem& pb) {
  return {std::max<std::int64_t>(pb.N, 1), pb.axis[0].out, pb.axis[1].out, pb.axis[2].out};
}

// A layout has so many places at most, and so have all entries' together: a second, and 100 MB.
constexpr std::int64_t kMostPlaces = std::int64_t{1} << 21, kMostInAll = std::int64_t{1} << 23;
// A place of both layouts takes 64 bytes with the fewest entries: an eighth of the memory at most.
constexpr std::int64_t kLeastPlaces = 4096, kMemoryPart = 512;
// So many entries show the parts of most problems, each with sums of their own channels.
constexpr std::int64_t kMostLaidOut = 64, kLeastLaidOut = 4;
// A folded axis keeps turns of 2 to 8 and their multiples: they divide this.
constexpr std::int64_t kFolds[] = {840, 24, 2};
// The sums of a unit stay in a part of a core's second cache.
constexpr std::int64_t kUnitBytes = std::int64_t{512} << 10;

// Transforms `step` columns of 2^k numbers each, in place (Cooley, Tukey: An algorithm for the
// machine calculation of complex Fourier series, 1965). Coefficient i comes to reversed(i).
void transform(Complex* columns, std::int64_t count, std::int64_t step) {
  for (std::int64_t half = count / 2; half > 0; half /= 2) {
    const Complex turn = std::polar(1.0, -std::numbers::pi / static_cast<double>(half));
    Complex root = 1;
    for (std::int64_t i = 0; i < half; ++i, root *= turn) {
      for (std::int64_t row = i; row < count; row += 2 * half) {
        for (std::int64_t at = row * step; at < (row + 1) * step; ++at) {
          Complex &a = columns[at], &b = columns[at + half * step];
          const Complex less = a - b;
          a += b;
          b = {less.real() * root.real() - less.imag() * root.imag(),
               less.real() * root.imag() + less.imag() * root.real()};
        }
      }
    }
  }
}

// Returns the bits of a number below 2^k in reverse.
std::int64_t reversed(std::int64_t number, std::int64_t count) {
  std::int64_t result = 0;
  for (; count > 1; count /= 2, number /= 2) result = 2 * result + number % 2;
  return result;
}

// What chance makes the largest of so many squares in kMostLaidOut entries, but once in e^7 times.
double by_chance(double mean, double count) {
  return mean * (std::log(count * static_cast<double>(kMostLaidOut)) + 7);
}

// Makes terms, which zeros pad, |F|^2 of their waves.
void to_powers(std::vector<float>& terms, const Extents& padded) {
  std::vector<Complex> wave(terms.begin(), terms.end());
  std::int64_t step = std::ssize(wave);  // from one number of a column to the next
  for (const std::int64_t extent : padded) {
    const std::int64_t plane = std::exchange(step, step / extent);
    for (std::int64_t at = 0; at < std::ssize(wave); at += plane) {
      transform(wave.data() + at, extent, step);
    }
  }
  std::ranges::transform(wave, terms.begin(),
                         [](const Complex& value) { return static_cast<float>(std::norm(value)); });
}

}  // namespace

std::vector<TermLayout::Layout> TermLayout::layouts_of(const WgradProblem& pb,
                                                       std::int64_t memory) {
  const std::int64_t most_places = std::clamp(memory / kMemoryPart, kLeastPlaces, kMostPlaces);
  Layout layout;
  layout.pixels = pixels_of(pb);
  const auto pad = [&] {
    for (std::size_t a = 0; a < 4; ++a) {
      layout.padded[a] =
          static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(layout.places[a])));
    }
    return volume(layout.padded);
  };
  layout.places = layout.pixels;
  for (std::size_t a = 0; pad() > most_places && a < 4; ++a) {
    const std::int64_t others = volume(layout.padded) / layout.padded[a];
    const std::int64_t most = std::max<std::int64_t>(most_places / others, 2);
    const auto* const fold =
        std::ranges::find_if(kFolds, [&](std::int64_t each) { return each <= most; });
    layout.places[a] = std::min(layout.pixels[a], most / *fold * *fold);
  }
  if (layout.places == layout.pixels) return {layout};
  Layout folded = layout;
  folded.folded = true;
  return {layout, folded};
}

TermLayout::TermLayout(const WgradProblem& problem, TaskPool& pool,
                       const std::vector<std::int64_t>& indices, std::int64_t memory)
    : problem_(problem), pool_(pool), layouts_(layouts_of(problem, memory)) {
  const std::int64_t each = volume(layouts_[0].padded) * std::ssize(layouts_);
  const std::int64_t most =
      std::clamp(std::min(kMostInAll, memory / kMemoryPart) / each, kLeastLaidOut, kMostLaidOut);
  for (const std::size_t at : spread_positions(indices.size(), static_cast<std::size_t>(most))) {
    Entry& entry = entries_.emplace_back();
    entry.from = entry_terms(problem, indices[at]);
    for (const Layout& layout : layouts_) {
      entry.terms.emplace_back(static_cast<std::size_t>(volume(layout.padded)));
    }
  }
}

std::int64_t TermLayout::memory_bytes() const {
  // Terms of each entry; a transform at a time.
  return volume(layouts_[0].padded) * std::ssize(layouts_) * (4 * std::ssize(entries_) + 16);
}

void TermLayout::add(const Block& block, std::int64_t, const Progress& progress) {
  const auto add_entry = [&]<typename Scalar>(std::int64_t task, Scalar) {
    Entry& entry = entries_[static_cast<std::size_t>(task)];
    double before = 0;
    std::vector<double> line_before(static_cast<std::size_t>(problem_.axis[2].out));
    const auto add_line = [&](const PixelLine<Scalar>& line) {
      const Scalar* const x = line.x + entry.from.x_channel * block.x_strides.c;
      const Scalar* const dy = line.dy + entry.from.dy_channel * block.dy_strides.c;
      for (std::int64_t i = 0; i < line.q.size(); ++i) {
        const double term = to_double(x[i * line.x_step]) * to_double(dy[i * line.dy_step]);
        double& above = line_before[static_cast<std::size_t>(line.q.begin + i)];
        entry.squares += term * term;
        entry.nonzero += term != 0 ? 1 : 0;
        entry.repeats += term != 0 && term == before ? 1 : 0;
        entry.above += term != 0 && term == above ? 1 : 0;
        before = above = term;
        for (std::size_t l = 0; l < layouts_.size(); ++l) {
          const Extents at = {line.n, line.z, line.p, line.q.begin + i};
          entry.terms[l][layouts_[l].place(at)] += static_cast<float>(term);
        }
      }
    };
    visit_pixel_lines<Scalar>(problem_, block, block.pixels, entry.from.tap, add_line);
  };
  run_tasks(pool_, problem_.dtype, std::ssize(entries_), progress, add_entry);
}

Wave TermLayout::wave_at(const Layout& layout, std::size_t at) const {
  Wave wave;
  auto left = static_cast<std::int64_t>(at);
  for (std::size_t a = 4; a-- > 0;) {
    const auto places = static_cast<double>(layout.places[a]);
    wave[a] = static_cast<double>(reversed(left % layout.padded[a], layout.padded[a])) /
              static_cast<double>(layout.padded[a]);
    if (layout.folded) {
      wave[a] = std::rint(wave[a] * places) / places;  // it goes on from one fold to the next
    } else {
      wave[a] *= places / static_cast<double>(layout.pixels[a]);
    }
    left /= layout.padded[a];
  }
  return wave;
}

// Takes the wave that widens the entries most, beside those that were taken.
void TermLayout::choose(const std::set<Candidate>& candidates) {
  std::vector<double> widest(entries_.size());
  const auto walk = [&](const Candidate& candidate, std::size_t e) {
    const double square = entries_[e].terms[candidate.first][candidate.second];
    return square > 0 ? walk_by_wave(square, candidate.second == 0) / entries_[e].squares : 0;
  };
  while (waves_.size() < kMostWaves) {
    const Candidate* best = nullptr;
    double most = 1;  // a sum that has no more than the terms at random is no wider
    for (const Candidate& candidate : candidates) {
      double more = 0;
      for (std::size_t e = 0; e < widest.size(); ++e) {
        more += std::max(walk(candidate, e) - widest[e], 0.0);
      }
      if (more > most) std::tie(best, most) = std::pair(&candidate, more);
    }
    if (best == nullptr) return;
    waves_.push_back(wave_at(layouts_[best->first], best->second));
    for (std::size_t e = 0; e < widest.size(); ++e) widest[e] = std::max(widest[e], walk(*best, e));
  }
}

double* TermLayout::finish(std::size_t) {
  std::vector<std::vector<Candidate>> found(entries_.size());  // the constant and the largest wave
  pool_.run(std::ssize(entries_), [&](std::int64_t task, int) {
    Entry& entry = entries_[static_cast<std::size_t>(task)];
    for (std::size_t l = 0; l < layouts_.size(); ++l) {
      std::vector<float>& powers = entry.terms[l];
      to_powers(powers, layouts_[l].padded);
      const double chance = by_chance(entry.squares, static_cast<double>(powers.size()));
      const auto others = powers.begin() + std::min<std::ptrdiff_t>(1, std::ssize(powers) - 1);
      for (const auto highest : {powers.begin(), std::max_element(others, powers.end())}) {
        if (*highest <= chance) continue;
        found[static_cast<std::size_t>(task)].emplace_back(l, highest - powers.begin());
      }
    }
  });
  std::set<Candidate> candidates;
  for (const std::vector<Candidate>& each : found) candidates.insert(each.begin(), each.end());
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

WaveSum::WaveSum(const WgradProblem& pb, TaskPool& pool, std::span<const std::int64_t> indices,
                 const std::vector<Wave>& waves, const Summation& summation)
    : problem_(pb), pool_(pool), waves_(waves), summation_(summation) {
  const Extents pixels = pixels_of(pb);
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::int64_t i = 0; i < pixels[a]; ++i) {
      for (const Wave& wave : waves) {
        const double circles = std::fmod(wave[a] * static_cast<double>(i), 1.0);
        weights_[a].push_back(std::polar(1.0, -2 * std::numbers::pi * circles));
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
      std::clamp<std::int64_t>(kUnitBytes / (8 * (1 + 2 * std::ssize(waves)) * Kg), 1, Cg);
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
    sums_.resize(2 * waves.size() * terms_.size());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the sums in other orders");
  }
}

std::int64_t WaveSum::memory_bytes() const {
  return 8 * std::ssize(sums_) + 24 * std::ssize(terms_);
}

template <typename Scalar>
void WaveSum::add_unit(const Block& block, const Unit& unit) {
  const std::int64_t waves = std::ssize(waves_), views = 2 * waves, K = unit.dy.size();
  // The next pixels: where x is, and dy by each weight, or 1 where it is not 0.
  const Scalar* next_x[kBatchPixels] = {};
  std::vector<double> rows(static_cast<std::size_t>(kBatchPixels * K * views));
  std::vector<double> ones(static_cast<std::size_t>(kBatchPixels * K));
  std::vector<double> weights(static_cast<std::size_t>(views));
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
    const auto weight = [&](std::size_t axis, std::int64_t place, std::int64_t wave) {
      return weights_[axis][static_cast<std::size_t>(place * waves + wave)];
    };
    for (std::int64_t wave = 0; wave < waves; ++wave) {
      const Complex w = weight(0, line.n, wave) * weight(1, line.z, wave) *
                        weight(2, line.p, wave) * weight(3, line.q.begin + i, wave);
      weights[static_cast<std::size_t>(2 * wave)] = w.real();
      weights[static_cast<std::size_t>(2 * wave + 1)] = w.imag();
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

void WaveSum::add(const Block& block, std::int64_t, const Progress& progress) {
  run_tasks(pool_, problem_.dtype, std::ssize(units_), progress, [&](std::int64_t i, auto scalar) {
    add_unit<decltype(scalar)>(block, units_[static_cast<std::size_t>(i)]);
  });
}

double* WaveSum::finish(std::size_t) {
  const double longest = static_cast<double>(summation_.longest_sum);
  auto sum = sums_.begin();
  for (const double terms : terms_) {
    OrderWalk& result = walks_.emplace_back(OrderWalk{0, terms});
    for (const Wave& wave : waves_) {
      // Sums that are restarted after so many terms, of half of them all, do not grow further.
      const bool constant = wave == Wave{};
      const double each = std::max(constant ? terms : terms / 2, 1.0);
      const double run = longest > 0 ? std::min(longest / each, 1.0) : 1;
      const double square = sum[0] * sum[0] + sum[1] * sum[1];
      result.walk = std::max(result.walk, walk_by_wave(square, constant) * run * run);
      sum += 2;
    }
  }
  sums_ = {};
  return nullptr;
}

}  // namespace convgrad
