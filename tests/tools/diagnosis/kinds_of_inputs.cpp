// kinds_of_inputs.cpp - see fault_kinds.hpp: numbers, images and borders of x and dy that are not
// what they were, attributes of one axis, and sums of parts.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

using Round = std::function<double(double)>;
const Names kPrecision = {"input_precision"};

double cut_f16(double v) {
  const double near = rounded(DType::f16, v);
  return std::fabs(near) > std::fabs(v) && std::isfinite(near)
             ? near - std::copysign(std::ldexp(1.0, std::max(std::ilogb(v), -14) - 10), near)
             : near;
}
double even_tf32(double v) {
  return v == 0 ? 0
                : std::ldexp(std::nearbyint(std::ldexp(v, 10 - std::ilogb(v))), std::ilogb(v) - 10);
}

// Both tensors, each by the function that is made for it.
void add_rounded(Kinds& kinds, const std::string& name, double u,
                 const std::function<Round(const Values&, DType)>& round) {
  kinds.add(name, kPrecision, [=](Draft& d) {
    if (u <= unit_roundoff(d.pb.dtype)) return d.skip();
    d.wrong.x = round(d.c.x, d.pb.dtype);
    d.wrong.dy = round(d.c.dy, d.pb.dtype);
  });
}

std::size_t drawn_axis(const WgradProblem& pb, Random& random) {
  return pb.op == Op::conv3d ? static_cast<std::size_t>(draw(random, 3))
                             : static_cast<std::size_t>(1 + draw(random, 2));
}

}  // namespace

void add_inputs(Kinds& kinds) {
  const auto same = [](const Round& round) { return [=](const Values&, DType) { return round; }; };
  add_rounded(kinds, "inputs TF32 half to even", 0x1p-11, same(even_tf32));
  add_rounded(kinds, "inputs float16 cut", 0x1p-11, same(cut_f16));
  add_rounded(kinds, "inputs in two bfloat16", 0x1p-17, same([](double v) {
                const double high = rounded(DType::bf16, v);
                return high + rounded(DType::bf16, v - high);
              }));
  for (const bool scaled : {false, true}) {
    const auto small = [=](int bits, int least, double most) {
      return [=](const Values& values, DType dtype) -> Round {
        const double scale = scaled ? largest(values) / most : 1;
        return [=](double v) {
          return small_float(quotient(dtype, v, scale), bits, least, most) * scale;
        };
      };
    };
    add_rounded(kinds, cat("inputs e4m3", scaled ? ", scaled" : ""), 1, small(4, -6, 448));
    add_rounded(kinds, cat("inputs e5m2", scaled ? ", scaled" : ""), 1, small(3, -14, 57344));
    kinds.add(cat("x e4m3, dy e5m2", scaled ? ", scaled" : ""), kPrecision, [=](Draft& d) {
      d.wrong.x = small(4, -6, 448)(d.c.x, d.pb.dtype);
      d.wrong.dy = small(3, -14, 57344)(d.c.dy, d.pb.dtype);
      d.words = "e4m3 and e5m2";
    });
  }
  for (const int bits : {4, 8, 12, 16}) {
    // It changes most numbers of a type of more digits.
    const double u = std::ldexp(1.0, 2 - bits);
    add_rounded(kinds, cat("inputs int", bits), u, [=](const Values& values, DType dtype) -> Round {
      const double step = largest(values) / (std::ldexp(1.0, bits - 1) - 1);
      return [=](double v) { return std::nearbyint(quotient(dtype, v, step)) * step; };
    });
  }
  kinds.add("TF32 half to even, small dy", kPrecision, [](Draft& d) {
    if (d.pb.dtype != DType::f32) return d.skip();
    for (double& v : d.c.dy) v = rounded(DType::f32, v * 1e-4);
    d.wrong.x = d.wrong.dy = even_tf32;
    d.words = "TF32";
  });
  kinds.add("bf16x3 without the low product", kPrecision, [](Draft& d) {
    if (d.pb.dtype == DType::f16 || d.pb.dtype == DType::bf16) return d.skip();
    // hi*(hi + lo) + lo*hi as the sum of gradients of a tensor in two terms.
    const auto high = [](double v) { return rounded(DType::bf16, v); };
    const auto low = [](double v) { return rounded(DType::bf16, v - rounded(DType::bf16, v)); };
    std::vector<Wrong> parts;
    for (const auto& [x, dy] : {std::pair<Round, Round>{high, high}, {high, low}, {low, high}}) {
      parts.push_back(d.wrong);
      parts.back().x = x;
      parts.back().dy = dy;
    }
    d.values = sum_of(d.c, parts);
  });
  for (const DType type : {DType::f16, DType::bf16}) {
    const Round narrow = [=](double v) { return rounded(type, v); };
    kinds.add(cat("products ", dtype_name(type)), {"product_precision"}, [=](Draft& d) {
      const DType sums = accumulator_dtype(d.pb.dtype);  // in which it is multiplied
      d.wrong.product = [=](double v) { return narrow(rounded(sums, v)); };
    });
    for (const bool turns : {false, true}) {
      kinds.add(
          cat(dtype_name(type), " inputs in ", turns ? "every second" : "one", " image"),
          kPrecision, [=](Draft& d) {
            if (d.pb.N < (turns ? 4 : 2) || unit_roundoff(d.pb.dtype) >= unit_roundoff(type)) {
              return d.skip();
            }
            for (std::int64_t n = turns ? 1 : draw(d.random, d.pb.N); n < d.pb.N;
                 n += turns ? 2 : d.pb.N) {
              for (Values* values : {&d.seen().x, &d.seen().dy}) {
                const auto size = std::ssize(*values) / d.pb.N, begin = n * size;
                std::transform(values->begin() + begin, values->begin() + begin + size,
                               values->begin() + begin, narrow);
              }
            }
            if (turns) d.words = "lane 1 of 2 that take images in turns";
          });
    }
  }
  for (const bool of_x : {true, false}) {
    const std::string name = of_x ? "x" : "dy";
    for (const int how : {0, 1, 2}) {
      constexpr const char* kHow[] = {"NaN zeroed in ", "Inf and NaN zeroed in ",
                                      "Inf made finite in "};
      kinds.add(kHow[how] + name, {"nonfinite_suppressed"}, [=](Draft& d) {
        Values& values = of_x ? d.c.x : d.c.dy;
        at(values, draw(d.random, std::ssize(values))) = how == 0 ? std::nan("") : HUGE_VAL;
        if (how == 2 && d.pb.dtype != DType::f16) return d.skip();
        (of_x ? d.wrong.x : d.wrong.dy) = [=](double v) {
          return std::isfinite(v) ? v : how == 2 && !std::isnan(v) ? 65504.0 : 0.0;
        };
      });
    }
  }
}

void add_images(Kinds& kinds) {
  using I = std::int64_t;
  const Names names = {"image_order"};
  for (const bool x : {true, false}) {
    const std::string of = x ? " of x" : " of dy";
    // Images that are others': from(n, N) of each.
    const auto add = [&](const std::string& name, bool rolled, const std::function<I(I, I)>& from) {
      kinds.add(name + of, names, [=](Draft& d) {
        if (d.pb.N < 2) return d.skip();
        if (!rolled) d.words = x ? "input" : "out_backprop";  // or the other, rolled back
        const Values& values = x ? d.c.x : d.c.dy;
        const I size = std::ssize(values) / d.pb.N;
        for (I n = 0; n < d.pb.N; ++n) {
          std::copy_n(values.begin() + from(n, d.pb.N) * size, size,
                      (x ? d.seen().x : d.seen().dy).begin() + n * size);
        }
      });
    };
    add("image 0 for all", false, [](I, I) { return 0; });
    add("last image for all", false, [](I, I N) { return N - 1; });
    add("images rolled", true, [](I n, I N) { return (n + N - 1) % N; });
    add("images rolled back", true, [](I n, I N) { return (n + 1) % N; });
    add("splits of N read the first", false, [](I n, I N) { return n % ((N + 1) / 2); });
    add("next image, the last twice", false, [](I n, I N) { return std::min(n + 1, N - 1); });
  }
}

void add_axes(Kinds& kinds) {
  struct Field {
    const char* name;
    std::int64_t SpatialAxis::*field;
  };
  const Names any = {"attribute_order",    "strides_ignored",         "dilations_ignored",
                     "padding_ignored",    "strides_off_by_one",      "dilations_off_by_one",
                     "padding_off_by_one", "stride_dilation_swapped", "padding_swapped"};
  for (const Field& f : {Field{"stride", &SpatialAxis::stride},
                         {"dilation", &SpatialAxis::dilation},
                         {"padding", &SpatialAxis::pad_before}}) {
    const auto field = f.field;
    const std::int64_t none = field == &SpatialAxis::pad_before ? 0 : 1;
    for (const int how : {0, 1, 2, 3}) {
      constexpr const char* kHow[] = {"ignored", "of another axis", "one more", "one less"};
      kinds.add(cat("one ", f.name, " ", kHow[how]), any, [=](Draft& d) {
        const std::size_t a = drawn_axis(d.pb, d.random), b = drawn_axis(d.pb, d.random);
        const std::int64_t old = d.pb.axis[a].*field;
        const std::int64_t values[] = {none, d.pb.axis[b].*field, old + 1, old - 1};
        if (values[how] < none || values[how] == old) return d.skip();
        d.wrong.axis[a].*field = values[how];
      });
    }
  }
}

void add_totals(Kinds& kinds) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const int how : {0, 1, 2}) {
      constexpr const char* kHow[] = {"total of images ", "total of splits ", "total of rows "};
      kinds.add(cat(kHow[how], dtype_name(type)), {"low_precision_sums", "result_precision"},
                [=](Draft& d) {
                  if (unit_roundoff(type) < unit_roundoff(d.pb.out_dtype)) return d.skip();
                  if (type == DType::f32 && d.pb.dtype != DType::f64) return d.skip();
                  const std::int64_t L = term_count(d.pb);
                  const std::int64_t chunk = how == 0   ? d.pb.out_pixels()
                                             : how == 1 ? (L + 3) / (2 + draw(d.random, 30))
                                                        : d.pb.axis[2].out;
                  if (chunk < 1 || chunk >= L) return d.skip();
                  const std::int64_t parts = (L + chunk - 1) / chunk;
                  const std::int64_t even = how == 1 ? (L + parts - 1) / parts : chunk;
                  d.end_parts_every(even);
                  d.wrong.total = [=](double v) { return rounded(type, v); };
                });
    }
  }
  kinds.add("sums that stop on ones", {"low_precision_sums"}, [](Draft& d) {
    if (term_count(d.pb) < 300) return d.skip();
    const DType type = draw(d.random, 2) == 0 ? DType::bf16 : DType::f16;
    std::ranges::fill(d.c.x, 1.0);
    std::ranges::fill(d.c.dy, 1.0);
    d.wrong.ends = {-1};
    d.wrong.add = [=](double sum, double product) { return rounded(type, sum + product); };
    d.words = "after each addition, pixel by pixel";
  });
}

}  // namespace convgrad::testing
