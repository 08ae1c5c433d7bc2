#include "check/order_walk.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "check/block_walk.hpp"

namespace convgrad {

PartSum::PartSum(const WgradProblem& problem, TaskPool& pool,
                 const std::vector<std::int64_t>& indices, std::vector<PixelPart> parts,
                 const Summation& summation)
    : problem_(problem), pool_(pool), parts_(std::move(parts)), summation_(summation) {
  const std::array<std::int64_t, 4> pixels = {problem.N, problem.axis[0].out, problem.axis[1].out,
                                              problem.axis[2].out};
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::int64_t i = 0; i < pixels[a]; ++i) {
      for (const PixelPart& part : parts_) {
        const bool inside = part.box[a].begin <= i && i < part.box[a].end;
        const double circles = std::fmod(part.frequency[a] * static_cast<double>(i), 1.0);
        weights_[a].push_back(part.is_wave ? std::polar(1.0, -2 * std::numbers::pi * circles)
                                           : std::complex<double>(inside ? 1 : 0));
      }
    }
  }
  for (const std::int64_t index : indices) {
    const std::int64_t k = index % problem.K, cell = index / problem.K;
    const auto lane = static_cast<std::int64_t>(kLanes);
    const Unit unit = {cell / problem.group_c(), cell % problem.group_c(), k / lane * lane};
    if (units_.empty() || units_.back() != unit) units_.push_back(unit);
    entries_.emplace_back(units_.size() - 1, static_cast<std::size_t>(k - unit.k));
  }
  try {
    sums_.resize(units_.size());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the sums in other orders");
  }
}

std::int64_t PartSum::memory_bytes(std::size_t entries) {
  return static_cast<std::int64_t>(std::min<std::size_t>(entries, kEntriesAtOnce / kLanes + 64) *
                                   sizeof(Sums));
}

template <typename Scalar>
void PartSum::add_unit(const Block& block, const Unit& unit, Sums& sums) const {
  const WgradProblem& pb = problem_;
  const std::size_t parts = parts_.size();
  std::array<std::int64_t, kLanes> x_lane{}, dy_lane{};
  const auto used = static_cast<std::size_t>(std::min<std::int64_t>(kLanes, pb.K - unit.k));
  for (std::size_t i = 0; i < used; ++i) {
    const std::int64_t k = unit.k + static_cast<std::int64_t>(i);
    x_lane[i] = (k / pb.group_k() * pb.group_c() + unit.c) * block.x_strides.c;
    dy_lane[i] = k * block.dy_strides.c;
  }
  const auto weight = [&](std::size_t axis, std::int64_t pixel, std::size_t part) {
    return weights_[axis][static_cast<std::size_t>(pixel) * parts + part];
  };
  const TapPlace tap = tap_place(pb, unit.tap);
  visit_pixel_lines<Scalar>(pb, block, tap, [&](const PixelLine<Scalar>& at) {
    std::array<std::complex<double>, TermLayout::kMostParts> of_line;
    for (std::size_t i = 0; i < parts; ++i) {
      of_line[i] = weight(0, at.n, i) * weight(1, at.z, i) * weight(2, at.p, i);
    }
    for (std::int64_t q = at.q.begin; q < at.q.end; ++q) {
      const Scalar* const x = at.x + (q - at.q.begin) * at.x_step;
      const Scalar* const dy = at.dy + (q - at.q.begin) * at.dy_step;
      Lanes product{};
      for (std::size_t i = 0; i < used; ++i) {
        product[i] = to_double(x[x_lane[i]]) * to_double(dy[dy_lane[i]]);
      }
      for (std::size_t i = 0; i < parts; ++i) {
        const std::complex<double>&a = of_line[i],
              &b = weights_[3][static_cast<std::size_t>(q) * parts + i];
        sums.real[i] += (a.real() * b.real() - a.imag() * b.imag()) * product;
        sums.imaginary[i] += (a.real() * b.imag() + a.imag() * b.real()) * product;
      }
      const auto one = (decltype(product != 0))(Lanes{} + 1.0);
      sums.terms += (Lanes)((product != 0) & one);
      sums.repeats += (Lanes)((product != 0) & (product == sums.last) & one);
      sums.last = product;
    }
  });
}

void PartSum::add(const Block& block, std::int64_t, const Progress& progress) {
  run_tasks(pool_, problem_.dtype, std::ssize(units_), progress, [&](std::int64_t i, auto scalar) {
    const auto unit = static_cast<std::size_t>(i);
    add_unit<decltype(scalar)>(block, units_[unit], sums_[unit]);
  });
}

OrderWalk PartSum::widest(const Sums& sums, std::size_t lane) const {
  OrderWalk result;
  result.terms = sums.terms[lane];
  result.alike = sums.repeats[lane] > result.terms / 2;
  const double pixels = static_cast<double>(std::max<std::int64_t>(term_count(problem_), 1));
  const double longest = static_cast<double>(summation_.longest_sum);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    // Sums that are restarted after so many terms do not grow further.
    const double share =
        parts_[i].is_wave ? 0.5 : static_cast<double>(pixel_count(parts_[i].box)) / pixels;
    const double each = std::max(result.terms * share, 1.0);
    const double run = longest > 0 ? std::min(longest / each, 1.0) : 1;
    const double walk = parts_[i].walk({sums.real[i][lane], sums.imaginary[i][lane]});
    result.walk = std::max(result.walk, walk * run * run);
  }
  return result;
}

double* PartSum::finish(std::size_t) {
  for (const auto& [unit, lane] : entries_) walks_.push_back(widest(sums_[unit], lane));
  sums_ = {};
  return nullptr;
}

}  // namespace convgrad
