// kinds_of_winograd.cpp - see fault_kinds.hpp: 3x3 filters by Toom and Cook's transforms, of tiles
// that are then rounded.
#include <numeric>

#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

using Rows = std::vector<Values>;

// F(3, m) by m + 1 points and infinity: what makes tiles of m + 2 numbers of x, and of m of dy, and
// the taps of their products.
struct Transforms {
  Rows x, dy, taps = Rows(3);
};

Transforms transforms_by(const Values& points) {
  const std::size_t m = points.size() - 1;
  // The coefficients of the product of t - b for all points b, or all but one.
  const auto product = [&](std::size_t without) {
    Values of(m + 2);
    of[0] = 1;
    for (std::size_t b = 0; b < points.size(); ++b) {
      if (b == without) continue;
      for (std::size_t i = m + 2; i-- > 0;) of[i] = (i > 0 ? of[i - 1] : 0) - points[b] * of[i];
    }
    return of;
  };
  Transforms t;
  for (std::size_t a = 0; a <= points.size(); ++a) {
    t.x.push_back(product(a));
    Values powers = {1, 0, 0, 0};
    double scale = 1;
    if (a < points.size()) {
      for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * points[a];
      for (const double b : points) scale *= b == points[a] ? 1 : points[a] - b;
    } else {
      powers = {0, 0, 0, 0};
      powers[m - 1] = 1;
    }
    t.dy.push_back(powers);
    t.dy.back().resize(m);
    for (double& value : t.dy.back()) value /= scale;
    for (std::size_t i = 0; i < 3; ++i) {
      t.taps[i].push_back(a < points.size() ? powers[i] : i == 2 ? 1 : 0);
    }
  }
  return t;
}

// rows * square * transposed rows.
Values transformed(const Rows& rows, const Values& square) {
  const std::size_t n = rows[0].size();
  Values result;
  for (const Values& a : rows) {
    for (const Values& b : rows) {
      double sum = 0;
      for (std::size_t i = 0; i < n * n; ++i) sum += a[i / n] * b[i % n] * square[i];
      result.push_back(sum);
    }
  }
  return result;
}

Values summed(const Case& c, const Transforms& t, DType type) {
  const WgradProblem& pb = c.pb;
  const auto& [d, h, w] = pb.axis;
  const std::int64_t m = std::ssize(t.dy[0]), each = (m + 2) * (m + 2);
  // The tile of a channel whose first pixel is (p, q), transformed and rounded.
  const auto tile = [&](bool of_x, std::int64_t n, std::int64_t p, std::int64_t q,
                        std::int64_t ch) {
    const std::int64_t H = of_x ? h.in : h.out, W = of_x ? w.in : w.out, size = of_x ? m + 2 : m;
    const std::int64_t top = p - (of_x ? h.pad_before : 0), left = q - (of_x ? w.pad_before : 0);
    Values square;
    for (std::int64_t i = 0; i < size * size; ++i) {
      const std::int64_t row = top + i / size, column = left + i % size;
      const bool inside = row >= 0 && row < H && column >= 0 && column < W;
      square.push_back(!inside ? 0
                       : of_x  ? at(c.x, ((n * H + row) * W + column) * pb.C + ch)
                               : at(c.dy, ((n * H + row) * W + column) * pb.K + ch));
    }
    Values result = transformed(of_x ? t.x : t.dy, square);
    for (double& value : result) value = rounded(type, value);
    return result;
  };
  const std::int64_t cells = pb.group_c() * pb.K;
  Values result(static_cast<std::size_t>(9 * cells));
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    const std::int64_t k = cell % pb.K;
    Values sums(static_cast<std::size_t>(each));
    for (std::int64_t n = 0; n < pb.N; ++n) {
      for (std::int64_t p = 0; p < h.out; p += m) {
        for (std::int64_t q = 0; q < w.out; q += m) {
          const std::int64_t group = k / pb.group_k() * pb.group_c();
          const Values x = tile(true, n, p, q, group + cell / pb.K), dy = tile(false, n, p, q, k);
          for (std::int64_t i = 0; i < each; ++i) at(sums, i) += at(x, i) * at(dy, i);
        }
      }
    }
    const Values taps = transformed(t.taps, sums);
    for (std::int64_t tap = 0; tap < 9; ++tap) at(result, tap * cells + cell) = at(taps, tap);
  }
  return rounded_all(pb, result);
}

}  // namespace

void add_winograd(Kinds& kinds) {
  for (const Values& points : {Values{0, 1, -1}, Values{0, 1, -1, 2, -2}}) {
    for (const DType type : {DType::f16, DType::bf16}) {
      const std::string name = cat("Winograd F(3, ", points.size() - 1, ") ", dtype_name(type));
      kinds.add(name, {"winograd_tiles"}, [=, t = transforms_by(points)](Draft& d) {
        const auto& [depth, h, w] = d.pb.axis;
        const auto usual = [](const SpatialAxis& a) {
          return a.taps == 3 && a.stride == 1 && a.dilation == 1;
        };
        if (depth.in > 1 || depth.taps > 1 || !usual(h) || !usual(w)) return d.skip();
        d.values = summed(d.c, t, type);
        d.words =
            cat("F(3, ", points.size() - 1, "), whose tiles are rounded to ", dtype_name(type));
      });
    }
  }
}

}  // namespace convgrad::testing
