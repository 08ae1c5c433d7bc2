// kinds_of_winograd.cpp - see fault_kinds.hpp: filters of 3 taps along h, w or both by Toom and
// Cook's transforms, of tiles that are then rounded.
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
const Rows kAsIs = {Values{1.0}};  // of an axis with one tap

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

// of_h * tile * transposed of_w.
Values transformed(const Rows& of_h, const Rows& of_w, const Values& tile) {
  const std::size_t n = of_w[0].size();
  Values result;
  for (const Values& a : of_h) {
    for (const Values& b : of_w) {
      double sum = 0;
      for (std::size_t i = 0; i < tile.size(); ++i) sum += a[i / n] * b[i % n] * tile[i];
      result.push_back(sum);
    }
  }
  return result;
}

Values summed(const Case& c, const Transforms& of_h, const Transforms& of_w, DType type) {
  const WgradProblem& pb = c.pb;
  const auto& [d, h, w] = pb.axis;
  // The tile of a channel whose first pixel is (p, q), transformed and rounded.
  const auto tile = [&](bool of_x, std::int64_t n, std::int64_t p, std::int64_t q,
                        std::int64_t ch) {
    const Rows &rows = of_x ? of_h.x : of_h.dy, &columns = of_x ? of_w.x : of_w.dy;
    const std::int64_t H = of_x ? h.in : h.out, W = of_x ? w.in : w.out;
    const std::int64_t width = std::ssize(columns[0]), size = std::ssize(rows[0]) * width;
    const std::int64_t top = p - (of_x ? h.pad_before : 0), left = q - (of_x ? w.pad_before : 0);
    Values values;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t row = top + i / width, column = left + i % width;
      const bool inside = row >= 0 && row < H && column >= 0 && column < W;
      values.push_back(!inside ? 0
                       : of_x  ? at(c.x, ((n * H + row) * W + column) * pb.C + ch)
                               : at(c.dy, ((n * H + row) * W + column) * pb.K + ch));
    }
    Values result = transformed(rows, columns, values);
    for (double& value : result) value = rounded(type, value);
    return result;
  };
  const std::int64_t cells = pb.group_c() * pb.K;
  Values result(static_cast<std::size_t>(pb.dw_count()));
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    const std::int64_t k = cell % pb.K;
    Values sums(of_h.x.size() * of_w.x.size());
    for (std::int64_t n = 0; n < pb.N; ++n) {
      for (std::int64_t p = 0; p < h.out; p += std::ssize(of_h.dy[0])) {
        for (std::int64_t q = 0; q < w.out; q += std::ssize(of_w.dy[0])) {
          const std::int64_t group = k / pb.group_k() * pb.group_c();
          const Values x = tile(true, n, p, q, group + cell / pb.K), dy = tile(false, n, p, q, k);
          for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += x[i] * dy[i];
        }
      }
    }
    const Values taps = transformed(of_h.taps, of_w.taps, sums);
    for (std::int64_t tap = 0; tap < pb.taps(); ++tap) {
      at(result, tap * cells + cell) = at(taps, tap);
    }
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
          return a.stride == 1 && (a.taps == 1 || (a.taps == 3 && a.dilation == 1));
        };
        if (depth.in > 1 || depth.taps > 1 || !usual(h) || !usual(w)) return d.skip();
        if (h.taps + w.taps < 4) return d.skip();
        const Transforms one = {kAsIs, kAsIs, kAsIs};
        d.values = summed(d.c, h.taps == 3 ? t : one, w.taps == 3 ? t : one, type);
        d.words =
            cat("F(3, ", points.size() - 1, "), whose tiles are rounded to ", dtype_name(type));
      });
    }
  }
}

}  // namespace convgrad::testing
