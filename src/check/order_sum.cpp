#include "check/order_sum.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <span>

#include "check/block_walk.hpp"

namespace convgrad {
namespace {

// These are taken apart in turns of so many.
constexpr const char* kTurns[] = {"images", "rows", "pixels", "columns"};
constexpr std::size_t kCounts[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32};
// Even and odd ones of several axes are taken apart at once; rows and columns in so many turns.
constexpr const char* kAxes[] = {"images", "planes", "rows", "columns"};
constexpr std::pair<std::size_t, std::size_t> kSquares[] = {{2, 4}, {4, 2}, {4, 4}};
// Runs of pixels are taken in turns of 2, 4 and so on, up to kRunTurns pixels in all.
constexpr std::size_t kRuns[] = {8, 16, 32}, kRunTurns = 256;
constexpr std::size_t kPieces[] = {2, 16};  // of an image
// The first of orders that are about as wide is named.
constexpr double kClearlyWider = 1.1;

// Lists every order by its number: what a sum does, after "a sum".
std::vector<std::string> all_orders() {
  std::vector<std::string> orders;
  const auto turns = [](const std::string& what, std::size_t count) {
    return count == 2 ? "that takes even and odd " + what + " apart"
                      : "that takes " + what + " in " + std::to_string(count) + " turns";
  };
  for (const char* what : kTurns) {
    for (const std::size_t count : kCounts) orders.push_back(turns(what, count));
  }
  for (unsigned axes = 0; axes < 16; ++axes) {
    if (std::popcount(axes) < 2) continue;
    std::string names;
    for (std::size_t a = 0; a < 4; ++a) {
      if (axes >> a & 1) names += (names.empty() ? "" : " and ") + std::string(kAxes[a]);
    }
    orders.push_back("that takes even and odd " + names + " apart at once");
  }
  for (const auto& [rows, columns] : kSquares) {
    orders.push_back("that takes rows in " + std::to_string(rows) + " and columns in " +
                     std::to_string(columns) + " turns at once");
  }
  for (const std::size_t run : kRuns) {
    for (std::size_t count = 2; count * run <= kRunTurns; count *= 2) {
      orders.push_back(turns("runs of " + std::to_string(run) + " pixels", count));
    }
  }
  for (const std::size_t pieces : kPieces) {
    orders.push_back(pieces == 2
                         ? "that takes the halves of each image apart"
                         : "that takes the " + std::to_string(pieces) + "ths of each image apart");
  }
  for (const char* walk :
       {"with the images innermost", "with the rows outermost", "with the columns outermost",
        "with the planes outermost", "with the images innermost, even and odd ones apart"}) {
    orders.emplace_back(walk);
  }
  return orders;
}

}  // namespace

std::string order_text(std::size_t order) {
  static const std::vector<std::string> orders = all_orders();
  return orders[order];
}

OrderSum::OrderSum(const WgradProblem& problem, TaskPool& pool,
                   const std::vector<std::int64_t>& indices, const Summation& summation)
    : problem_(problem), pool_(pool), summation_(summation) {
  for (const std::int64_t index : indices) {
    const std::int64_t k = index % problem.K, cell = index / problem.K;
    const auto lane = static_cast<std::int64_t>(kLanes);
    const Unit unit = {cell / problem.group_c(), cell % problem.group_c(), k / lane * lane};
    if (units_.empty() || units_.back() != unit) units_.push_back(unit);
    entries_.emplace_back(units_.size() - 1, static_cast<std::size_t>(k - unit.k));
  }
  try {
    parts_.resize(units_.size());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the sums in other orders");
  }
}

std::int64_t OrderSum::memory_bytes(std::size_t entries) {
  return static_cast<std::int64_t>(std::min<std::size_t>(entries, kEntriesAtOnce / kLanes + 64) *
                                   sizeof(Parts));
}

template <typename Scalar>
void OrderSum::add_unit(const Block& block, const Unit& unit, Parts& parts) const {
  const WgradProblem& pb = problem_;
  const std::int64_t Z = pb.axis[0].out, P = pb.axis[1].out, Q = pb.axis[2].out;
  std::array<std::int64_t, kLanes> x_lane{}, dy_lane{};
  const auto used = static_cast<std::size_t>(std::min<std::int64_t>(kLanes, pb.K - unit.k));
  for (std::size_t i = 0; i < used; ++i) {
    const std::int64_t k = unit.k + static_cast<std::int64_t>(i);
    x_lane[i] = (k / pb.group_k() * pb.group_c() + unit.c) * block.x_strides.c;
    dy_lane[i] = k * block.dy_strides.c;
  }
  const auto part = [](std::int64_t place, std::int64_t count) {
    const auto most = static_cast<std::int64_t>(kParts);
    return static_cast<std::size_t>(count <= most ? place : place * most / count);
  };
  const TapPlace tap = tap_place(pb, unit.tap);
  visit_pixel_lines<Scalar>(pb, block, tap, [&](const PixelLine<Scalar>& at) {
    const std::int64_t line = (at.z * P + at.p) * Q;  // its first place in the image
    const auto line_parity = static_cast<std::size_t>(at.n % 2 + at.z % 2 * 2 + at.p % 2 * 4);
    Lanes sum{}, terms{};
    for (std::int64_t q = at.q.begin; q < at.q.end; ++q) {
      const Scalar* const x = at.x + (q - at.q.begin) * at.x_step;
      const Scalar* const dy = at.dy + (q - at.q.begin) * at.dy_step;
      Lanes product{};
      for (std::size_t i = 0; i < used; ++i) {
        product[i] = to_double(x[x_lane[i]]) * to_double(dy[dy_lane[i]]);
      }
      const std::int64_t pixel = at.n * Z * P * Q + line + q;
      parts.place[static_cast<std::size_t>(at.n) % 2][part(line + q, Z * P * Q)] += product;
      parts.column[part(q, Q)] += product;
      parts.pixel.add(pixel, product);
      parts.run[static_cast<std::size_t>(pixel / 8) % kParts] += product;
      parts.lane.add(q, product);
      parts.parity[line_parity + static_cast<std::size_t>(q % 2 * 8)] += product;
      parts.square[static_cast<std::size_t>(at.p % 4 * 4 + q % 4)] += product;
      sum += product;
      const auto one = (decltype(product != 0))(Lanes{} + 1.0);
      terms += (Lanes)((product != 0) & one);
      parts.repeats += (Lanes)((product != 0) & (product == parts.last) & one);
      parts.last = product;
    }
    parts.row[part(at.p, P)] += sum;
    parts.plane[part(at.z, Z)] += sum;
    parts.image.add(at.n, sum);
    parts.line.add((at.n * Z + at.z) * P + at.p, sum);
    parts.terms += terms;
  });
}

void OrderSum::add(const Block& block, std::int64_t, const Progress& progress) {
  std::atomic<std::int64_t> done{0};
  const auto count = static_cast<std::int64_t>(units_.size());
  pool_.run(count, [&](std::int64_t task, int) {
    const auto unit = static_cast<std::size_t>(task);
    with_scalar(problem_.dtype, [&](auto scalar) {
      add_unit<decltype(scalar)>(block, units_[unit], parts_[unit]);
    });
    if (progress) progress(++done, count);
  });
}

OrderWalk OrderSum::widest(const Parts& parts, std::size_t lane) const {
  const WgradProblem& pb = problem_;
  OrderWalk result;
  result.terms = parts.terms[lane];
  // Sums that are restarted after so many terms do not grow further.
  const auto restarted = [&](double share) {
    const double longest = static_cast<double>(summation_.longest_sum);
    const double each = std::max(result.terms * share, 1.0);
    const double run = longest > 0 ? std::min(longest / each, 1.0) : 1;
    return run * run;
  };
  std::size_t order = 0;
  const auto keep = [&](double walk) {
    if (walk > kClearlyWider * result.walk) {
      result.walk = walk;
      result.order = order;
    }
    ++order;
  };
  using Sums = std::array<Lanes, kParts>;
  // Returns the mean square of the sum of the first parts, which grows evenly in each.
  const auto walk = [&](const auto& at, std::int64_t count) {
    const std::size_t used = static_cast<std::size_t>(std::min<std::int64_t>(count, kParts));
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < used; ++i) {
      const double before = sum;
      sum += at(i);
      squares += (before * before + before * sum + sum * sum) / 3;
    }
    return squares / static_cast<double>(std::max<std::size_t>(used, 1));
  };
  const auto of = [&](const Sums& sums) { return [&](std::size_t i) { return sums[i][lane]; }; };
  // Returns a third of the mean square of the sums of `count` parts, to which part(i) deals sums.
  const auto apart = [&](std::span<const Lanes> sums, std::size_t count, const auto& part) {
    std::array<double, kParts> each{};
    for (std::size_t i = 0; i < sums.size(); ++i) each[part(i)] += sums[i][lane];
    double squares = 0;
    for (const double sum : each) squares += sum * sum;
    return squares / 3 / static_cast<double>(count) * restarted(1 / static_cast<double>(count));
  };
  const auto turns = [&](std::span<const Lanes> sums, std::size_t runs, std::size_t count) {
    return apart(sums, count, [&](std::size_t i) { return i / runs % count; });
  };
  const std::int64_t places = pb.axis[0].out * pb.axis[1].out * pb.axis[2].out;
  const auto both = [&](std::size_t i) {
    return parts.place[0][i][lane] + parts.place[1][i][lane];
  };
  const std::pair<const Turns*, std::int64_t> in_turns[] = {
      {&parts.image, pb.N},
      {&parts.line, pb.N * pb.axis[0].out * pb.axis[1].out},
      {&parts.pixel, pb.N * places},
      {&parts.lane, pb.axis[2].out}};
  for (const auto& [sums, extent] : in_turns) {
    for (const std::size_t count : kCounts) {
      const std::span<const Lanes> each = count % 3 == 0   ? std::span<const Lanes>(sums->of_3)
                                          : count % 5 == 0 ? std::span<const Lanes>(sums->of_5)
                                          : count % 7 == 0 ? std::span<const Lanes>(sums->of_7)
                                                           : std::span<const Lanes>(sums->of_2);
      keep(static_cast<std::int64_t>(count) <= extent ? turns(each, 1, count) : 0);
    }
  }
  for (std::size_t axes = 0; axes < 16; ++axes) {
    const auto count = std::size_t{1} << std::popcount(axes);
    if (count > 2) keep(apart(parts.parity, count, [&](std::size_t i) { return i & axes; }));
  }
  for (const auto& [rows, columns] : kSquares) {
    keep(apart(parts.square, rows * columns,
               [r = rows, c = columns](std::size_t i) { return i / 4 % r * c + i % 4 % c; }));
  }
  for (const std::size_t run : kRuns) {
    for (std::size_t count = 2; count * run <= kRunTurns; count *= 2) {
      const bool there = static_cast<std::int64_t>(count * run) <= pb.N * places;
      keep(there ? turns(parts.run, run / 8, count) : 0);
    }
  }
  for (const std::size_t pieces : kPieces) {
    Sums sums{};
    const auto used = static_cast<std::size_t>(std::min<std::int64_t>(places, kParts));
    for (std::size_t i = 0; i < used; ++i) sums[i * pieces / used][lane] += both(i);
    keep(used >= pieces ? turns(sums, 1, pieces) : 0);
  }
  const double whole = restarted(1), half = restarted(.5);
  keep(walk(both, places) * whole);
  keep(walk(of(parts.row), pb.axis[1].out) * whole);
  keep(walk(of(parts.column), pb.axis[2].out) * whole);
  keep(walk(of(parts.plane), pb.axis[0].out) * whole);
  keep((walk(of(parts.place[0]), places) + walk(of(parts.place[1]), places)) / 2 * half);
  result.alike = parts.repeats[lane] > result.terms / 2;
  return result;
}

double* OrderSum::finish(std::size_t) {
  for (const auto& [unit, lane] : entries_) walks_.push_back(widest(parts_[unit], lane));
  parts_ = {};
  return nullptr;
}

}  // namespace convgrad
