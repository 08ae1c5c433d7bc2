// winograd.cpp - finds Winograd's algorithm with tiles in 16 bits: F(3, m) takes m pixels of dy and
// the m + 2 of x that three taps see (Lavin, Gray: Fast Algorithms for Convolutional Neural
// Networks, 2016). Its transforms are exact but for rounding.
#include <algorithm>
#include <array>
#include <set>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

constexpr std::size_t kMostPairs = 8;  // of an input and an output channel, all taps of each
// Right sums by Winograd have errors up to 4 times as large as those of the definition. Kernels
// multiply by sixths here or there, so a few roundings go the other way: their part of all.
constexpr double kLargerErrors = 4, kOtherRoundings = 1.0 / 16;

constexpr std::int64_t kMost = 6;  // pixels of x
using Matrix = std::array<std::array<double, kMost>, kMost>;
struct Form {
  std::int64_t dy;     // pixels of a tile, along an axis
  Matrix of_x, of_dy;  // rows make the transformed pixels
  Matrix taps;         // rows make the taps of products
};
constexpr Form kNone = {1, {{{1}}}, {{{1}}}, {{{1}}}};  // an axis with one tap
constexpr Form kForms[] = {{2,
                            {{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}}},
                            {{{1, 0}, {.5, .5}, {.5, -.5}, {0, 1}}},
                            {{{1, 1, 1, 0}, {0, 1, -1, 0}, {0, 1, 1, 1}}}},
                           {4,
                            {{{4, 0, -5, 0, 1, 0},
                              {0, -4, -4, 1, 1, 0},
                              {0, 4, -4, -1, 1, 0},
                              {0, -2, -1, 2, 1, 0},
                              {0, 2, -1, -2, 1, 0},
                              {0, 4, 0, -5, 0, 1}}},
                            {{{1 / 4., 0, 0, 0},
                              {-1 / 6., -1 / 6., -1 / 6., -1 / 6.},
                              {-1 / 6., 1 / 6., -1 / 6., 1 / 6.},
                              {1 / 24., 2 / 24., 4 / 24., 8 / 24.},
                              {1 / 24., -2 / 24., 4 / 24., -8 / 24.},
                              {0, 0, 0, 1}}},
                            {{{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 1}}}}};

// Returns a * tile * transposed b, each rounded to the type, if there is one.
Matrix transformed(const Matrix& a, const Matrix& tile, const Matrix& b,
                   std::optional<DType> type = {}) {
  Matrix result{};
  for (std::size_t i = 0; i < kMost; ++i) {
    std::array<double, kMost> row{};
    for (std::size_t j = 0; j < kMost; ++j) {
      for (std::size_t l = 0; l < kMost; ++l) row[j] += a[i][l] * tile[l][j];
    }
    for (std::size_t j = 0; j < kMost; ++j) {
      for (std::size_t l = 0; l < kMost; ++l) result[i][j] += row[l] * b[j][l];
      if (type) result[i][j] = rounded(*type, result[i][j]);
    }
  }
  return result;
}

// Sums all taps of a pair of channels, whose terms these are; the middle one sees the most of dy.
Matrix summed(const WgradProblem& pb, std::span<const Terms> taps, const Form& h, const Form& w,
              DType type) {
  const std::int64_t P = pb.axis[1].out, Q = pb.axis[2].out;
  const std::int64_t R = pb.axis[1].taps, S = pb.axis[2].taps;
  Matrix sums{};
  for (std::int64_t row = 0, rows = 0; row < pb.N * P; row += rows) {
    rows = std::min(h.dy, P - row % P);  // a tile ends with its image
    for (std::int64_t q = 0; q < Q; q += w.dy) {
      const std::int64_t columns = std::min(w.dy, Q - q);
      Matrix x{}, dy{};
      for (std::int64_t i = 0; i < rows + R - 1; ++i) {
        for (std::int64_t j = 0; j < columns + S - 1; ++j) {
          // A tap of a pixel of dy sees it, and others see the same.
          const std::int64_t a = std::min(i, rows - 1), b = std::min(j, columns - 1);
          const auto pixel = static_cast<std::size_t>((row + a) * Q + q + b);
          const auto tap = static_cast<std::size_t>((i - a) * S + j - b);
          const auto to_row = static_cast<std::size_t>(i), to = static_cast<std::size_t>(j);
          x[to_row][to] = taps[tap].x[pixel];
          if (i == a && j == b) dy[to_row][to] = taps[taps.size() / 2].dy[pixel];
        }
      }
      const Matrix u = transformed(h.of_x, x, w.of_x, type);
      const Matrix v = transformed(h.of_dy, dy, w.of_dy, type);
      for (std::size_t i = 0; i < kMost; ++i) {
        for (std::size_t j = 0; j < kMost; ++j) sums[i][j] += u[i][j] * v[i][j];
      }
    }
  }
  return transformed(h.taps, sums, w.taps);
}

}  // namespace

std::optional<Finding> find_winograd(const Judge& judge, const Sample& sample,
                                     const Images& images) {
  const Evidence& evidence = judge.evidence();
  const WgradProblem& pb = evidence.problem();
  const auto is_usual = [](const SpatialAxis& axis) {
    return axis.taps == 1 || (axis.taps == 3 && axis.stride == 1 && axis.dilation == 1);
  };
  const auto& [d, h, w] = pb.axis;
  if (!evidence.whole() || d.taps > 1 || d.out != 1 || !is_usual(h) || !is_usual(w) ||
      pb.taps() == 1) {
    return std::nullopt;
  }
  // All taps of a few pairs of channels, of those that are chosen for their errors.
  const std::int64_t cells = pb.group_c() * pb.K;
  const std::size_t most = std::clamp<std::size_t>(
      sample.at.size() / static_cast<std::size_t>(pb.taps()), 1, kMostPairs);
  std::set<std::int64_t> pairs;
  for (const std::size_t at : sample.at) {
    if (pairs.size() < most) pairs.insert(evidence.index(at) % cells);
  }
  Positions at;
  std::vector<EntryTerms> entries;
  for (const std::int64_t pair : pairs) {
    for (std::int64_t tap = 0; tap < pb.taps(); ++tap) {
      at.push_back(static_cast<std::size_t>(tap * cells + pair));
      entries.push_back(entry_terms(pb, tap * cells + pair));
    }
  }
  const std::vector<Terms> terms = terms_of(entries, images);
  const auto taps = static_cast<std::size_t>(pb.taps());
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const Form& form : kForms) {
      evidence.stop_if_late();
      Expected predicted;
      Squares misses;
      for (std::size_t first = 0; first < at.size(); first += taps) {
        const Matrix sums = summed(pb, {terms.data() + first, taps}, h.taps == 1 ? kNone : form,
                                   w.taps == 1 ? kNone : form, type);
        for (std::size_t tap = 0; tap < taps; ++tap) {
          const auto s = static_cast<std::size_t>(w.taps);
          predicted.values.push_back(sums[tap / s][tap % s]);
          misses.add(predicted.values.back() - evidence.want(at[first + tap]));
        }
      }
      const double others = kOtherRoundings * misses.rms();
      for (const std::size_t one : at) {
        predicted.scales.push_back(std::max(kLargerErrors * evidence.scale(one), others));
      }
      const auto fit = judge.judge(at, predicted, 2, false);
      if (!fit || !fit->parts.empty()) continue;
      return finding({"winograd_tiles",
                      cat("it is summed by Winograd's F(3, ", form.dy,
                          "), whose tiles are rounded to ", dtype_name(type)),
                      "a Winograd kernel that multiplies in that type", true},
                     *fit, Certainty::match, at.size());
    }
  }
  return std::nullopt;
}

}  // namespace convgrad::diagnosis
