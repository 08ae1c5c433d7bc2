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
double small_float(double v, int bits, int least, double most) {
  if (v == 0) return 0;
  const int unit = std::max(std::ilogb(v), least) + 1 - bits;
  return std::clamp(std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit), -most, most);
}
double most_of(const Values& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}
double mean_of(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// Both tensors, each by the function that is made for it.
void add_rounded(Kinds& kinds, const std::string& name, double u,
                 const std::function<Round(const Values&)>& round) {
  kinds.add(name, kPrecision, [=](Case& c, Random&, std::string&) {
    if (u <= unit_roundoff(c.pb.dtype)) return Values();
    Wrong wrong = right(c);
    wrong.x = round(c.x);
    wrong.dy = round(c.dy);
    return gradient(c, wrong);
  });
}

// Images of x or dy that are others': from(n, N) of each.
void add_images(Kinds& kinds, const std::string& name, const Names& faults, bool of_x,
                const std::function<std::int64_t(std::int64_t, std::int64_t)>& from) {
  kinds.add(name, faults, [=](Case& c, Random&, std::string&) {
    if (c.pb.N < 2) return Values();
    Case other = c;
    const Values& values = of_x ? c.x : c.dy;
    const auto size = std::ssize(values) / c.pb.N;
    for (std::int64_t n = 0; n < c.pb.N; ++n) {
      const auto begin = values.begin() + from(n, c.pb.N) * size;
      std::copy(begin, begin + size, (of_x ? other.x : other.dy).begin() + n * size);
    }
    return gradient(other, right(c));
  });
}

std::size_t drawn_axis(const WgradProblem& pb, Random& random) {
  return pb.op == Op::conv3d ? static_cast<std::size_t>(draw(random, 3))
                             : static_cast<std::size_t>(1 + draw(random, 2));
}

}  // namespace

void add_inputs(Kinds& kinds) {
  const auto same = [](const Round& round) { return [=](const Values&) { return round; }; };
  add_rounded(kinds, "inputs TF32 half to even", 0x1p-11, same(even_tf32));
  add_rounded(kinds, "inputs float16 cut", 0x1p-11, same(cut_f16));
  add_rounded(kinds, "inputs in two bfloat16", 0x1p-17, same([](double v) {
                const double high = rounded(DType::bf16, v);
                return high + rounded(DType::bf16, v - high);
              }));
  for (const bool scaled : {false, true}) {
    const auto small = [=](int bits, int least, double most) {
      return [=](const Values& values) -> Round {
        const double scale = scaled ? most_of(values) / most : 1;
        return [=](double v) { return small_float(v / scale, bits, least, most) * scale; };
      };
    };
    add_rounded(kinds, cat("inputs e4m3", scaled ? ", scaled" : ""), 1, small(4, -6, 448));
    add_rounded(kinds, cat("inputs e5m2", scaled ? ", scaled" : ""), 1, small(3, -14, 57344));
  }
  add_rounded(kinds, "inputs int8", 1, [](const Values& values) -> Round {
    const double step = most_of(values) / 127;
    return [=](double v) { return std::nearbyint(v / step) * step; };
  });
  kinds.add("TF32 half to even, small dy", kPrecision, [](Case& c, Random&, std::string& words) {
    if (c.pb.dtype != DType::f32) return Values();
    for (double& v : c.dy) v = rounded(DType::f32, v * 1e-4);
    Wrong wrong = right(c);
    wrong.x = wrong.dy = even_tf32;
    words = "TF32";
    return gradient(c, wrong);
  });
  kinds.add("bf16x3 without the low product", kPrecision, [](Case& c, Random&, std::string&) {
    if (c.pb.dtype == DType::f16 || c.pb.dtype == DType::bf16) return Values();
    // hi*(hi + lo) + lo*hi as the sum of two gradients of a tensor in two terms.
    Values dw(static_cast<std::size_t>(c.pb.dw_count()), 0.0);
    const auto high = [](double v) { return rounded(DType::bf16, v); };
    const auto low = [](double v) { return rounded(DType::bf16, v - rounded(DType::bf16, v)); };
    Case wide = c;
    wide.pb.out_dtype = DType::f64;
    for (const auto& [x, dy] : {std::pair<Round, Round>{high, high}, {high, low}, {low, high}}) {
      Wrong wrong = right(wide);
      wrong.x = x;
      wrong.dy = dy;
      const Values part = gradient(wide, wrong);
      for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += part[i];
    }
    return rounded_all(c.pb, dw);
  });
  for (const DType type : {DType::f16, DType::bf16}) {
    kinds.add(cat("products ", dtype_name(type)), {"product_precision"},
              [=](Case& c, Random&, std::string&) {
                Wrong wrong = right(c);
                wrong.product = [=](double v) { return rounded(type, v); };
                return gradient(c, wrong);
              });
    kinds.add(cat(dtype_name(type), " inputs in one image"), kPrecision,
              [=](Case& c, Random& random, std::string&) {
                if (c.pb.N < 2 || unit_roundoff(c.pb.dtype) >= unit_roundoff(type)) return Values();
                const std::int64_t n = draw(random, c.pb.N);
                Case other = c;
                for (Values* values : {&other.x, &other.dy}) {
                  const auto size = std::ssize(*values) / c.pb.N;
                  for (std::int64_t i = n * size; i < (n + 1) * size; ++i) {
                    double& v = (*values)[static_cast<std::size_t>(i)];
                    v = rounded(type, v);
                  }
                }
                return gradient(other, right(c));
              });
  }
  for (const bool of_x : {true, false}) {
    const std::string name = of_x ? "x" : "dy";
    for (const int how : {0, 1, 2}) {
      kinds.add(cat(how == 0   ? "NaN zeroed in "
                    : how == 1 ? "Inf and NaN zeroed in "
                               : "Inf made finite in ",
                    name),
                {"nonfinite_suppressed"}, [=](Case& c, Random& random, std::string&) {
                  Values& values = of_x ? c.x : c.dy;
                  values[static_cast<std::size_t>(draw(random, std::ssize(values)))] =
                      how == 0 ? std::nan("") : HUGE_VAL;
                  if (how == 2 && c.pb.dtype != DType::f16) return Values();
                  Wrong wrong = right(c);
                  (of_x ? wrong.x : wrong.dy) = [=](double v) {
                    return std::isfinite(v) ? v : how == 2 && !std::isnan(v) ? 65504.0 : 0.0;
                  };
                  return gradient(c, wrong);
                });
    }
  }
}

void add_images(Kinds& kinds) {
  using I = std::int64_t;
  const Names names = {"image_order"};
  for (const bool x : {true, false}) {
    const std::string of = x ? " of x" : " of dy";
    const auto add = [&](const std::string& name, const std::function<I(I, I)>& from) {
      add_images(kinds, name + of, names, x, from);
    };
    add("image 0 for all", [](I, I) { return 0; });
    add("last image for all", [](I, I N) { return N - 1; });
    add("images rolled", [](I n, I N) { return (n + N - 1) % N; });
    add("images rolled back", [](I n, I N) { return (n + 1) % N; });
    add("splits of N read the first", [](I n, I N) { return n % ((N + 1) / 2); });
    add("next image, the last twice", [](I n, I N) { return std::min(n + 1, N - 1); });
    kinds.add("wrong batch stride" + of, names, [=](Case& c, Random& random, std::string&) {
      const I channels = x ? c.pb.C : c.pb.K;
      const I pixels = c.pb.x_count() / c.pb.C / c.pb.N, out = c.pb.out_pixels();
      const I strides[] = {x ? out * channels : pixels * channels, x ? pixels : out};
      const I stride = strides[draw(random, 2)], size = (x ? pixels : out) * channels;
      if (c.pb.N < 2 || stride >= size || stride < 1) return Values();
      // In memory order, as the layout has it.
      const auto in_memory = [&](I n, I i) {  // of the element that stands i-th in the file
        return c.pb.channels_last
                   ? n * size + i
                   : n * size + i % (size / channels) * channels + i / (size / channels);
      };
      Case other = c;
      const Values& from = x ? c.x : c.dy;
      for (I n = 0; n < c.pb.N; ++n) {
        for (I i = 0; i < size; ++i) {
          const I at = n * stride + i;
          (x ? other.x : other.dy)[static_cast<std::size_t>(in_memory(n, i))] =
              from[static_cast<std::size_t>(in_memory(at / size, at % size))];
        }
      }
      return gradient(other, right(c));
    });
  }
  for (const bool half : {true, false}) {
    kinds.add(half ? "half of the batch weighted" : "an image weighted",
              {"weighted_images", "missing_image", "doubled_image"},
              [=](Case& c, Random& random, std::string&) {
                if (c.pb.N < 2 || (half && c.pb.N % 2 != 0)) return Values();
                const double weights[] = {0.5, 0.9, 3, -1, 1.1};
                const double weight = weights[draw(random, 5)];
                const I count = half ? c.pb.N / 2 : 1;
                const I first = half ? count * draw(random, 2) : draw(random, c.pb.N);
                Wrong wrong = right(c);
                wrong.weight = [=, pixels = c.pb.out_pixels()](I at) {
                  return at / pixels >= first && at / pixels < first + count ? weight : 1.0;
                };
                return gradient(c, wrong);
              });
  }
}

void add_axes(Kinds& kinds) {
  struct Field {
    const char* name;
    std::int64_t SpatialAxis::*field;
    Names names;
  };
  const Names any = {"attribute_order",    "strides_ignored",
                     "dilations_ignored",  "padding_ignored",
                     "strides_off_by_one", "dilations_off_by_one",
                     "padding_off_by_one", "stride_dilation_swapped",
                     "padding_swapped",    "shifted"};
  for (const Field& f :
       {Field{"stride", &SpatialAxis::stride, any}, Field{"dilation", &SpatialAxis::dilation, any},
        Field{"padding", &SpatialAxis::pad_before, any}}) {
    const auto field = f.field;
    const std::int64_t none = field == &SpatialAxis::pad_before ? 0 : 1;
    for (const int how : {0, 1, 2, 3}) {
      constexpr const char* kHow[] = {"ignored", "of another axis", "one more", "one less"};
      kinds.add(cat("one ", f.name, " ", kHow[how]), any,
                [=](Case& c, Random& random, std::string&) {
                  const std::size_t a = drawn_axis(c.pb, random), b = drawn_axis(c.pb, random);
                  Wrong wrong = right(c);
                  std::int64_t& value = wrong.axis[a].*field;
                  value = how == 0   ? none
                          : how == 1 ? c.pb.axis[b].*field
                          : how == 2 ? value + 1
                                     : value - 1;
                  if (value < none || value == c.pb.axis[a].*field) return Values();
                  return gradient(c, wrong);
                });
    }
  }
  for (const bool mean : {true, false}) {
    kinds.add(mean ? "padding holds the mean" : "padding holds a constant", {"padding_values"},
              [=](Case& c, Random& random, std::string&) {
                const double constants[] = {1, -1, 0.5, 0.125, 7};
                const double value =
                    rounded(c.pb.dtype, mean ? mean_of(c.x) : constants[draw(random, 5)]);
                Case padded = c;
                // x in a frame of that value.
                std::int64_t extent[3], before[3];
                for (std::size_t a = 0; a < 3; ++a) {
                  const SpatialAxis& axis = c.pb.axis[a];
                  const std::int64_t reach =
                      (axis.out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
                  before[a] = axis.pad_before;
                  extent[a] = std::max(reach, axis.in + before[a]);
                  padded.pb.axis[a].in = extent[a];
                  padded.pb.axis[a].pad_before = 0;
                }
                padded.x.assign(
                    static_cast<std::size_t>(c.pb.N * extent[0] * extent[1] * extent[2] * c.pb.C),
                    value);
                for (std::int64_t i = 0; i < std::ssize(c.x); ++i) {
                  std::int64_t rest = i / c.pb.C, at[3];
                  for (int a = 3; a-- > 0;) {
                    at[a] = rest % c.pb.axis[static_cast<std::size_t>(a)].in + before[a];
                    rest /= c.pb.axis[static_cast<std::size_t>(a)].in;
                  }
                  const std::int64_t to =
                      ((rest * extent[0] + at[0]) * extent[1] + at[1]) * extent[2] + at[2];
                  padded.x[static_cast<std::size_t>(to * c.pb.C + i % c.pb.C)] =
                      c.x[static_cast<std::size_t>(i)];
                }
                return gradient(padded, right(padded));
              });
  }
}

void add_totals(Kinds& kinds) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const int how : {0, 1, 2}) {
      kinds.add(cat(how == 0   ? "total of images "
                    : how == 1 ? "total of splits "
                               : "total of rows ",
                    dtype_name(type)),
                {"low_precision_sums", "result_precision"},
                [=](Case& c, Random& random, std::string&) {
                  if (unit_roundoff(type) < unit_roundoff(c.pb.out_dtype)) return Values();
                  if (type == DType::f32 && c.pb.dtype != DType::f64) return Values();
                  const std::int64_t L = term_count(c.pb);
                  const std::int64_t chunk = how == 0   ? c.pb.out_pixels()
                                             : how == 1 ? (L + 3) / (2 + draw(random, 30))
                                                        : c.pb.axis[2].out;
                  if (chunk < 1 || chunk >= L) return Values();
                  const std::int64_t parts = (L + chunk - 1) / chunk;
                  const std::int64_t even = how == 1 ? (L + parts - 1) / parts : chunk;
                  Wrong wrong = right(c);
                  for (std::int64_t at = even; at < L; at += even) wrong.ends.insert(at);
                  wrong.total = [=](double v) { return rounded(type, v); };
                  return gradient(c, wrong);
                });
    }
  }
  kinds.add("sums that stop on ones", {"low_precision_sums"},
            [](Case& c, Random& random, std::string&) {
              if (term_count(c.pb) < 300) return Values();
              const DType type = draw(random, 2) == 0 ? DType::bf16 : DType::f16;
              std::fill(c.x.begin(), c.x.end(), 1.0);
              std::fill(c.dy.begin(), c.dy.end(), 1.0);
              Wrong wrong = right(c);
              wrong.ends = {-1};
              wrong.add = [=](double sum, double product) { return rounded(type, sum + product); };
              return gradient(c, wrong);
            });
  kinds.add("padding reads the image before", {"padding_values"},
            [](Case& c, Random&, std::string&) {
              // Rows above the first, of x with an image's last rows in front of the next.
              if (c.pb.op == Op::conv3d || c.pb.N < 2 || c.pb.axis[1].pad_before < 1)
                return Values();
              Values dw(static_cast<std::size_t>(c.pb.dw_count()), 0.0);
              Case image = c;
              const SpatialAxis& h = c.pb.axis[1];
              const std::int64_t row = c.pb.axis[2].in * c.pb.C, size = row * h.in,
                                 above = std::min(h.pad_before, h.in);
              image.pb.N = 1;
              image.pb.out_dtype = DType::f64;
              image.pb.axis[1].in += above;
              image.pb.axis[1].pad_before -= above;
              const std::int64_t out = c.pb.out_pixels() * c.pb.K;
              for (std::int64_t n = 0; n < c.pb.N; ++n) {
                image.x.assign(static_cast<std::size_t>(above * row), 0.0);
                if (n > 0)
                  std::copy_n(c.x.begin() + n * size - above * row, above * row, image.x.begin());
                image.x.insert(image.x.end(), c.x.begin() + n * size, c.x.begin() + (n + 1) * size);
                image.dy.assign(c.dy.begin() + n * out, c.dy.begin() + (n + 1) * out);
                const Values part = gradient(image, right(image));
                for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += part[i];
              }
              return rounded_all(c.pb, dw);
            });
}

}  // namespace convgrad::testing
