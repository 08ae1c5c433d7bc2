// eigen.cpp - finds sums of 16-bit numbers by Eigen's matrix products, as TensorFlow's on a CPU.
// Threads may take a part of the pixels each. A part is summed in blocks, a block in one of three
// ways, and all is rounded after each addition (Eigen's TensorContractionThreadPool.h,
// GeneralMatrixMatrix.h and GeneralBlockPanelKernel.h).
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// So many splits are tried, in bits.
constexpr double kEigenBits = 8;

using EigenSplit = std::pair<std::int64_t, std::int64_t>;  // pixels of a part, and of a block

std::set<EigenSplit> eigen_splits(const WgradProblem& pb, std::int64_t pixels) {
  constexpr std::int64_t kMost = 64;           // blocks, and threads
  constexpr std::int64_t kThreadsBlock = 320;  // at most, of the first cache, where there are some
  std::set<EigenSplit> splits = {{pixels, pb.out_pixels()}, {pixels, kThreadsBlock}};
  for (std::int64_t count = 1; count <= kMost; ++count) {
    splits.emplace(pixels, ceil_div(pixels + 1, 8 * count) * 8);
    for (const std::int64_t vector : {8, 16}) {
      splits.emplace(ceil_div(ceil_div(pixels, count), vector) * vector, kThreadsBlock);
    }
  }
  return splits;
}

// Products and sums are in float32, products are rounded by themselves, or these go to two sums in
// turn, but for what is left of eights.
enum class InBlock : std::uint8_t { through_f32, products, two_sums };

double block_sum(const Terms& terms, DType type, InBlock how, std::size_t begin, std::size_t end) {
  const std::size_t paired = how == InBlock::two_sums ? (end - begin) / 8 * 8 : 0;
  double sums[2] = {};
  for (std::size_t i = 0; begin + i < end; ++i) {
    if (i == paired) sums[0] = rounded(type, sums[0] + std::exchange(sums[1], 0));
    double& sum = sums[i < paired ? i % 2 : 0];
    const double product = terms.x[begin + i] * terms.dy[begin + i];
    sum = rounded(type, how == InBlock::through_f32 ? rounded(DType::f32, sum + product)
                                                    : sum + rounded(type, product));
  }
  return rounded(type, sums[0] + sums[1]);
}

// Adds parts three at a time to the first: in pairs, but for elements that fill no vector.
double total_of(std::span<const double> parts, DType type, bool pairs) {
  const auto add = [type](double a, double b) { return rounded(type, a + b); };
  double total = parts[0];
  std::size_t i = 1;
  for (; i + 2 < parts.size(); i += 3) {
    total = pairs ? add(add(total, parts[i]), add(parts[i + 1], parts[i + 2]))
                  : add(total, add(add(parts[i], parts[i + 1]), parts[i + 2]));
  }
  for (; i < parts.size(); ++i) total = add(total, parts[i]);
  return total;
}

// Returns the sums of an entry by all ways to sum in blocks and to add parts, of which vectors of
// elements are one and those that fill no vector another.
std::set<double> eigen_sums(const Terms& terms, DType type, const EigenSplit& split) {
  constexpr std::size_t kGroup = 4;  // of parts, which are added first
  const auto count = std::ssize(terms.x);
  const auto [part_pixels, block_pixels] = split;
  std::set<double> result;
  for (const InBlock how : {InBlock::through_f32, InBlock::products, InBlock::two_sums}) {
    std::vector<double> parts;
    for (std::int64_t part = 0; part < count; part += part_pixels) {
      const std::int64_t end = std::min(part + part_pixels, count);
      double& sum = parts.emplace_back();
      for (std::int64_t at = part; at < end; at += block_pixels) {
        const double block = block_sum(terms, type, how, static_cast<std::size_t>(at),
                                       static_cast<std::size_t>(std::min(at + block_pixels, end)));
        sum = rounded(type, sum + block);
      }
    }
    for (const bool pairs : {true, false}) {
      std::vector<double> groups;
      for (std::size_t i = 0; i < parts.size(); i += kGroup) {
        const std::size_t size = std::min(kGroup, parts.size() - i);
        groups.push_back(total_of(std::span(parts).subspan(i, size), type, pairs));
      }
      result.insert(total_of(groups, type, pairs));
    }
  }
  return result;
}

// Tells whether the sample's entries are such sums, each by some way.
bool is_eigens(const Evidence& evidence, const Sample& sample, const EigenSplit& split) {
  Squares steps;
  double ways = 0;  // in bits
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const std::set<double> sums = eigen_sums(sample.terms[e], evidence.problem().dtype, split);
    if (sums.count(evidence.got(at)) == 0) return false;
    if (add_steps(evidence, at, evidence.problem().dtype, steps))
      ways += std::log2(static_cast<double>(sums.size()));
  }
  return bits_told(steps, kByChance) - ways > kEigenBits + kLeastBits;
}

// Returns the terms in the order of the pixels of x that they see, images last, with zeros where
// there is none: TensorFlow's 3-D op multiplies x by patches of dy.
Sample by_pixels_of_x(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const auto& [d, h, w] = pb.axis;
  const std::vector<double> zeros(static_cast<std::size_t>(pb.N * d.in * h.in * w.in));
  Sample result = {sample.at, {sample.terms.size(), {zeros, zeros}}};
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const TapPlace tap = entry_terms(pb, evidence.index(sample.at[e])).tap;
    for (std::size_t i = 0; i < sample.terms[e].x.size(); ++i) {
      if (sample.terms[e].x[i] == 0) continue;  // as it is outside x
      const auto [n, z, p, q] = pixel_place(pb, static_cast<std::int64_t>(i));
      const std::int64_t at[] = {input_at(d, z, tap[0]), input_at(h, p, tap[1]),
                                 input_at(w, q, tap[2])};
      const auto to = static_cast<std::size_t>(((at[0] * h.in + at[1]) * w.in + at[2]) * pb.N + n);
      result.terms[e].x[to] = sample.terms[e].x[i];
      result.terms[e].dy[to] = sample.terms[e].dy[i];
    }
  }
  return result;
}

std::optional<Finding> eigen_finding(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const std::int64_t pixels = std::ssize(sample.terms[0].x);
  for (const EigenSplit& split : eigen_splits(pb, pixels)) {
    evidence.stop_if_late();
    if (!is_eigens(evidence, sample, split)) continue;
    const std::string blocks = cat("in blocks of ", std::min(split.first, split.second), " pixels");
    const std::string parts =
        split.first < pixels ? cat(", which make sums of ", split.first, " pixels each") : "";
    return finding(
        {"low_precision_sums",
         cat("sums are rounded to ", dtype_name(pb.dtype), " after each addition, ", blocks, parts),
         "Eigen's matrix products: TensorFlow on a CPU", true},
        {}, Certainty::bits, sample.at.size());
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> find_eigen(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const bool is_16_bit = pb.dtype == DType::f16 || pb.dtype == DType::bf16;
  if (!is_16_bit || pb.out_dtype != pb.dtype) return std::nullopt;
  if (pb.op != Op::conv3d) return eigen_finding(evidence, sample);
  auto found = eigen_finding(evidence, by_pixels_of_x(evidence, sample));
  return found ? found : eigen_finding(evidence, sample);
}

}  // namespace convgrad::diagnosis
