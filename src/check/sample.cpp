#include "check/sample.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "base/integers.hpp"
#include "check/rounding.hpp"

namespace convgrad {
namespace {

// What SampledSum packs at a time: it stays in the caches, and threads rarely wait for each other.
constexpr std::int64_t kPackedBytes = std::int64_t{1} << 20;
// Rows of pixels that are packed, or seen by the taps, in one go.
constexpr std::int64_t kPackedRows = 4;

std::vector<std::int64_t> corners_of(const WgradProblem& pb) {
  if (pb.dw_count() == 0) return {};
  const std::int64_t extents[] = {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps, pb.group_c(),
                                  pb.K};
  std::vector<std::int64_t> corners = {0};
  for (const std::int64_t extent : extents) {
    std::vector<std::int64_t> next;
    for (const std::int64_t corner : corners) {
      next.push_back(corner * extent);
      if (extent > 1) next.push_back(corner * extent + extent - 1);
    }
    corners = next;
  }
  return corners;
}

std::vector<std::int64_t> shuffled(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::int64_t i = count; i > 1; --i) {
    std::swap(numbers[static_cast<std::size_t>(i - 1)],
              numbers[static_cast<std::size_t>(draw(random, i))]);
  }
  return numbers;
}

// Draws entries that take taps, input and output channels in turn, each in an order of its own. As
// many in a row as there are taps, c or k hit each of them; taps times as many hit each c and k of
// each tap.
class Diagonals {
 public:
  Diagonals(const WgradProblem& pb, std::mt19937_64& random)
      : taps_(shuffled(pb.taps(), random)),
        c_(shuffled(pb.group_c(), random)),
        k_(shuffled(pb.K, random)) {}

  std::int64_t entry(std::int64_t i) const {
    const std::int64_t taps = std::ssize(taps_), C = std::ssize(c_), K = std::ssize(k_);
    const std::int64_t tap = i % taps, round = i / taps;
    // Taps begin at different channels; from one cycle to the next c meets other k.
    const std::int64_t c = (tap * C / taps + round + round / C) % C;
    const std::int64_t k = (tap * K / taps + round + 2 * (round / K)) % K;
    return (taps_[static_cast<std::size_t>(tap)] * C + c_[static_cast<std::size_t>(c)]) * K +
           k_[static_cast<std::size_t>(k)];
  }

 private:
  std::vector<std::int64_t> taps_, c_, k_;
};

}  // namespace

Sample choose_entries(const WgradProblem& problem, std::int64_t wanted, std::uint64_t seed) {
  const std::int64_t count = problem.dw_count(), most = std::min(wanted, count);
  Sample sample;
  const std::vector<std::int64_t> corners = corners_of(problem);
  sample.corners = std::ssize(corners);
  std::mt19937_64 random(seed);
  std::unordered_set<std::int64_t> chosen(corners.begin(), corners.end());
  const Diagonals diagonals(problem, random);
  for (std::int64_t i = 0; i < most && std::ssize(chosen) < most; ++i) {
    chosen.insert(diagonals.entry(i));
  }
  if (wanted > count / 2) {  // so many that drawing again and again would not end soon
    for (const std::int64_t index : shuffled(count, random)) {
      if (std::ssize(chosen) < most) chosen.insert(index);
    }
  }
  while (std::ssize(chosen) < most) chosen.insert(draw(random, count));
  sample.indices.assign(chosen.begin(), chosen.end());
  std::ranges::sort(sample.indices);
  return sample;
}

std::vector<std::int64_t> choose_neighbours(const WgradProblem& pb, std::int64_t wanted) {
  const std::int64_t C = pb.group_c(), K = pb.K;
  std::uint64_t seed = 1;
  for (const std::int64_t extent :
       {pb.N, pb.C, K, pb.groups, pb.axis[0].in, pb.axis[1].in, pb.axis[2].in, pb.taps()}) {
    seed = seed * 0x100000001b3 + static_cast<std::uint64_t>(extent);
  }
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> indices = corners_of(pb);
  if (wanted == 0 || indices.empty()) return indices;
  const std::int64_t all = std::ssize(indices) + wanted;
  const std::vector<std::int64_t> taps = shuffled(pb.taps(), random);
  const std::int64_t some_taps = std::min(pb.taps(), wanted);
  // Channels come from two lines of memory in x, and in dy. Four sums cost as much as one.
  const std::int64_t each = round_up(ceil_div(wanted, some_taps), kQuad);
  const auto line = [&](std::int64_t channels) {
    const std::int64_t extent = 64 / dtype_bytes(pb.dtype);
    const std::int64_t first = draw(random, ceil_div(channels, extent)) * extent;
    return Range{first, std::min(first + extent, channels)};
  };
  const std::array<Range, 2> c_lines = {line(C), line(C)}, k_lines = {line(K), line(K)};
  const std::int64_t offset = draw(random, K);
  std::vector<std::int64_t> cells;  // of c and k
  for (std::int64_t i = 0; i < 4 * each && std::ssize(cells) < each; ++i) {
    const Range &c_line = c_lines[static_cast<std::size_t>(i % 2)],
                &k_line = k_lines[static_cast<std::size_t>(i % 2)];
    const std::int64_t c = c_line.begin + (i / 2) % c_line.size();
    const std::int64_t k = k_line.begin + (offset + i / 2) % k_line.size();
    const bool corner = (c == 0 || c == C - 1) && (k == 0 || k == K - 1);
    if (!corner) cells.push_back(c * K + k);
  }
  for (std::int64_t i = 0; i < some_taps; ++i) {
    for (const std::int64_t cell : cells) {
      indices.push_back(taps[static_cast<std::size_t>(i)] * C * K + cell);
    }
  }
  std::ranges::sort(indices);
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return std::ssize(indices) < all ? choose_entries(pb, all, seed).indices : indices;
}

double detectable_share(std::int64_t chosen, std::int64_t count) {
  if (chosen >= count) return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
  return 1 - std::pow(0.01, 1 / static_cast<double>(chosen));
}

Expected expected_of(const WgradProblem& problem, const Summation& summation,
                     std::span<EntrySum> sums) {
  Expected result;
  std::vector<double> plain, drift;
  const bool compensated = problem.dtype == DType::f64;
  for (EntrySum& sum : sums) {
    const TermSums ended = sum.sums(compensated);
    restart(ended, 1);
    const RoundingScale judged =
        judge_terms(ended, 0, problem, sum.pixels, summation, result.squares);
    result.values.push_back(sum.earlier);
    if (compensated) result.tails.push_back(sum.run.compensation);
    result.magnitudes.push_back(sum.run.magnitude);
    result.scales.push_back(judged.scale);
    result.limits.push_back(judged.limit);
    plain.push_back(judged.plain);
    drift.push_back(judged.drift);
  }
  widen_scales(problem, false, summation, plain, drift, result);
  return result;
}

std::int64_t SampledSum::memory_bytes(std::int64_t entries) {
  const std::size_t each = sizeof(QuadTask) + sizeof(Quad) + sizeof(EntrySum) + 8 * sizeof(double);
  return checked_add(kPackedBytes,
                     checked_mul(entries, static_cast<std::int64_t>(each), "the sampled entries"),
                     "the sampled entries");
}

// Channels that many taps have come first, so that these taps have quads in common.
SampledSum::SampledSum(const WgradProblem& problem, TaskPool& pool,
                       const std::vector<std::int64_t>& indices, const Summation& summation)
    : problem_(problem),
      pool_(pool),
      summation_(summation),
      rules_(problem, summation),
      sums_(indices.size()) {
  struct Entry {
    EntryTerms terms;
    std::int64_t at, tap, cell;
  };
  const std::int64_t cells = problem.group_c() * problem.K;
  std::vector<Entry> entries;
  std::map<std::int64_t, std::int64_t> uses;  // of cells
  for (const std::int64_t index : indices) {
    entries.push_back(
        {entry_terms(problem, index), std::ssize(entries), index / cells, index % cells});
    ++uses[index % cells];
  }
  std::ranges::sort(entries, {}, [&](const Entry& entry) {
    return std::tuple(entry.tap, -uses[entry.cell], entry.cell);
  });
  std::map<Quad, std::size_t> quads;
  for (std::size_t first = 0, end = 0; first < entries.size(); first = end) {
    while (end < entries.size() && end - first < kQuad && entries[end].tap == entries[first].tap) {
      ++end;
    }
    Quad quad;
    Entries at;
    for (std::size_t lane = 0; lane < kQuad; ++lane) {
      const Entry& entry = entries[std::min(first + lane, end - 1)];
      quad.x[lane] = entry.terms.x_channel;
      quad.dy[lane] = entry.terms.dy_channel;
      at[lane] = entry.at;
    }
    const auto [found, is_new] = quads.try_emplace(quad, quads_.size());
    if (is_new) quads_.push_back(quad);
    tasks_.push_back({entries[first].terms.tap, found->second, at});
  }
}

// Takes the quads' channels out of a row of pixels. Returns whether a number is 0.
template <typename Scalar, typename Packed>
bool pack_row(const Scalar* row, std::int64_t step, std::int64_t channel_step, std::int64_t count,
              const std::array<std::int64_t, kQuad>& channels, Packed* packed) {
  const Scalar* const a = row + channels[0] * channel_step;
  const Scalar* const b = row + channels[1] * channel_step;
  const Scalar* const c = row + channels[2] * channel_step;
  const Scalar* const d = row + channels[3] * channel_step;
  typedef Packed Four __attribute__((vector_size(kQuad * sizeof(Packed))));
  decltype(Four{} == 0) zeros{};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = [&](const Scalar* channel) {
      return static_cast<Packed>(to_double(channel[i * step]));
    };
    const Four four = {number(a), number(b), number(c), number(d)};
    std::memcpy(packed + i * kQuad, &four, sizeof four);
    zeros |= four == 0;
  }
  return (zeros[0] | zeros[1] | zeros[2] | zeros[3]) != 0;
}

std::int64_t positions(const std::array<Range, 3>& box) {
  return box[0].size() * box[1].size() * box[2].size();
}

// Packs the quads' channels in the box of `packed`, each line of memory read once.
template <typename Scalar, typename Packed>
bool SampledSum::pack(const Block& block, const Block& packed, Packed* x, Packed* dy) const {
  const std::array<Range, 3> out = {packed.pixels[1], packed.pixels[2], packed.pixels[3]};
  const std::int64_t images = packed.pixels[0].size();
  std::atomic<bool> zeros{false};
  const auto pack_rows = [&](const std::array<Range, 3>& box, bool is_x, std::int64_t first) {
    const std::int64_t rows = images * box[0].size() * box[1].size(), width = box[2].size();
    const Strides& strides = is_x ? block.x_strides : block.dy_strides;
    bool some = false;
    for (std::int64_t i = first; i < std::min(first + kPackedRows, rows); ++i) {
      const std::int64_t plane = i / box[1].size(), h = box[1].begin + i % box[1].size();
      const std::int64_t n = packed.pixels[0].begin + plane / box[0].size();
      const std::int64_t d = box[0].begin + plane % box[0].size();
      const Scalar* const row = is_x ? x_at<Scalar>(block, n, d, h, box[2].begin)
                                     : dy_at<Scalar>(block, n, d, h, box[2].begin);
      Packed* to = (is_x ? x : dy) + i * width * kQuad;
      for (const Quad& quad : quads_) {
        some |= pack_row(row, strides.spatial[2], strides.c, width, is_x ? quad.x : quad.dy, to);
        to += rows * width * kQuad;
      }
    }
    if (some) zeros = true;
  };
  const auto tasks = [&](const std::array<Range, 3>& box) {
    return ceil_div(images * box[0].size() * box[1].size(), kPackedRows);
  };
  const std::int64_t x_tasks = tasks(packed.input);
  pool_.run(x_tasks + tasks(out), [&](std::int64_t task, int) {
    if (task < x_tasks) {
      pack_rows(packed.input, true, task * kPackedRows);
    } else {
      pack_rows(out, false, (task - x_tasks) * kPackedRows);
    }
  });
  return zeros;
}

// Calls use(rows, x, dy) for some rows after the others, which begin so many numbers after the
// block: they are in a core's first cache while all taps see them.
template <typename Use>
void for_each_rows(const Block& block, const Use& use) {
  const auto [n, z, p, q] = block.pixels;
  Block rows = block;
  for (std::int64_t i = n.begin; i < n.end; ++i) {
    rows.pixels[0] = {i, i + 1};
    for (std::int64_t j = z.begin; j < z.end; ++j) {
      rows.pixels[1] = {j, j + 1};
      for (std::int64_t k = p.begin; k < p.end; k += kPackedRows) {
        rows.pixels[2] = {k, std::min(k + kPackedRows, p.end)};
        const std::int64_t image = i - n.begin;
        const Strides& s = block.dy_strides;
        use(rows, image * block.x_strides.n,
            image * s.n + (j - z.begin) * s.spatial[0] + (k - p.begin) * s.spatial[1]);
      }
    }
  }
}

// Sets the input of the piece; returns how many numbers a quad has of it in x and dy.
std::pair<std::int64_t, std::int64_t> quad_sizes(const WgradProblem& problem, Block& piece) {
  const auto& [n, z, p, q] = piece.pixels;
  piece.input = input_box(problem, piece.pixels);
  return {n.size() * positions(piece.input) * kQuad, n.size() * positions({z, p, q}) * kQuad};
}

template <typename Packed>
void SampledSum::add_line(const PixelLine<Packed>& line, bool zeros, QuadSums& s) const {
  for (std::int64_t q = 0, count = 0; q < line.q.size(); q += count) {
    count = line.q.size() - q;
    if (rules_.longest > 0) count = std::min(count, rules_.longest - s.pixels % rules_.longest);
    add_quads(QuadLine<Packed>{line.x + q * line.x_step, line.dy + q * kQuad, line.x_step, count,
                               rules_.every, zeros},
              s);
    if (rules_.longest > 0 && s.pixels % rules_.longest == 0) {
      restart({s.sum, std::is_same_v<Packed, double> ? s.compensation : nullptr, s.magnitude,
               s.squares, s.walk, s.terms, std::is_same_v<Packed, double> ? nullptr : s.plain,
               s.plain_error, s.earlier, s.plain_earlier},
              kQuad);
    }
  }
}

// Packs the channels of the piece, a box of the block, and adds their terms.
template <typename Scalar>
void SampledSum::add_piece(const Block& block, Block& piece) {
  using Packed = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;
  const auto [x_count, dy_count] = quad_sizes(problem_, piece);
  const auto room = [&](Buffer& buffer, std::int64_t count) {
    const std::int64_t bytes = std::ssize(quads_) * count * std::int64_t{sizeof(Packed)};
    if (buffer.size_bytes() < bytes) buffer = Buffer(bytes, "the sampled entries' pixels");
    return buffer.as<Packed>();
  };
  Packed* const x = room(x_, x_count);
  Packed* const dy = room(dy_, dy_count);
  const auto strides = [](const Range& a, const Range& b, const Range& c) {
    return box_strides(true, kQuad, {a.size(), b.size(), c.size()});
  };
  piece.x_strides = strides(piece.input[0], piece.input[1], piece.input[2]);
  piece.dy_strides = strides(piece.pixels[1], piece.pixels[2], piece.pixels[3]);
  const bool zeros = pack<Scalar>(block, piece, x, dy);
  const std::int64_t tasks = std::ssize(tasks_);
  const std::int64_t shares = std::min<std::int64_t>(tasks, pool_.threads());
  pool_.run(shares, [&, x_size = x_count, dy_size = dy_count](std::int64_t share, int) {
    for_each_rows(piece, [&](const Block& rows, std::int64_t x_at, std::int64_t dy_at) {
      Block own = rows;
      for (std::int64_t i = share * tasks / shares; i < (share + 1) * tasks / shares; ++i) {
        QuadTask& task = tasks_[static_cast<std::size_t>(i)];
        const auto quad = static_cast<std::int64_t>(task.quad);
        own.x = x + quad * x_size + x_at;
        own.dy = dy + quad * dy_size + dy_at;
        visit_pixel_lines<Packed>(problem_, own, task.tap, [&](const PixelLine<Packed>& line) {
          add_line(line, zeros, task.sums);
        });
      }
    });
  });
}

// Takes the block apart into pieces whose packed channels stay in the cache.
template <typename Scalar>
void SampledSum::add_block(const Block& block, const Progress& progress) {
  Block piece;
  piece.pixels = block.pixels;
  const auto bytes = [&] {
    const auto [x, dy] = quad_sizes(problem_, piece);
    return std::ssize(quads_) * (x + dy) * (problem_.dtype == DType::f64 ? 8 : 4);
  };
  std::array<std::int64_t, 3> steps{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    steps[axis] = std::max<std::int64_t>(block.pixels[axis].size(), 1);
    while (bytes() > kPackedBytes && steps[axis] > 1) {
      steps[axis] = ceil_div(steps[axis], 2);
      piece.pixels[axis].end = piece.pixels[axis].begin + steps[axis];
    }
  }
  const auto [n, z, p, q] = block.pixels;
  for (std::int64_t i = n.begin; i < n.end; i += steps[0]) {
    piece.pixels[0] = {i, std::min(i + steps[0], n.end)};
    for (std::int64_t j = z.begin; j < z.end; j += steps[1]) {
      piece.pixels[1] = {j, std::min(j + steps[1], z.end)};
      for (std::int64_t k = p.begin; k < p.end; k += steps[2]) {
        piece.pixels[2] = {k, std::min(k + steps[2], p.end)};
        add_piece<Scalar>(block, piece);
      }
    }
    if (progress) progress(piece.pixels[0].end - n.begin, n.size());
  }
}

void SampledSum::add(const Block& block, std::int64_t, const Progress& progress) {
  with_scalar(problem_.dtype, [&](auto scalar) { add_block<decltype(scalar)>(block, progress); });
}

double* SampledSum::finish(std::size_t) {
  for (const QuadTask& task : tasks_) {
    const QuadSums& s = task.sums;
    for (std::size_t i = 0; i < kQuad; ++i) {
      sums_[static_cast<std::size_t>(task.entries[i])] = {
          {s.sum[i], s.compensation[i], s.magnitude[i], s.squares[i], s.walk[i], s.terms[i]},
          s.plain_error[i],
          s.earlier[i],
          s.plain_earlier[i],
          s.plain[i],
          s.pixels};
    }
  }
  expected_ = expected_of(problem_, summation_, sums_);
  multiply(problem_.dtype, summation_.factor, expected_);
  return expected_.values.data();
}

}  // namespace convgrad
