// measure_diagnosis.cpp - puts faults into gradients of random problems and counts how many of them
// the diagnosis names. The faulty gradients are made here, from the definition, by code of its own.
//   measure_diagnosis [--short] [--problems COUNT] [--kind WORD] [--seed N] [--verbose]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "check/diagnosis.hpp"
#include "check/draw.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/plan.hpp"

using namespace convgrad;

namespace {

using Values = std::vector<double>;
using Random = std::mt19937_64;
enum class Data : std::uint8_t { normal, relu, positive };

double uniform(Random& random) { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; }
double normal(Random& random) {
  return std::sqrt(-2 * std::log(uniform(random))) * std::cos(6.283185307179586 * uniform(random));
}

// TF32 numbers, and those of narrow types, cut off or rounded.
double bits_kept(double value, int bits, bool cut) {
  value = static_cast<double>(static_cast<float>(value));
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double scaled = std::ldexp(std::frexp(value, &exponent), bits);
  return std::ldexp(cut ? std::trunc(scaled) : std::round(scaled), exponent - bits);
}

struct Case {
  WgradProblem pb;
  Values x, dy;  // [n][d][h][w][c]
};

// What is done otherwise than by the definition.
struct Wrong {
  std::array<SpatialAxis, 3> axis;
  std::function<double(double)> x, dy, product;
  std::function<double(std::int64_t)> weight;  // of a pixel
  // The place in x along an axis of what lies outside it: -1 for none, -2 for a 0.
  std::function<std::int64_t(std::int64_t, std::int64_t)> outside;
  std::function<double(double, double)> add;  // to the sum
  std::function<double(double)> part;         // of the sum, where it ends
  std::set<std::int64_t> ends;                // of the parts
};

Values gradient(const Case& c, const Wrong& wrong) {
  const WgradProblem& pb = c.pb;
  const bool wide = pb.dtype == DType::f64;
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  Values dw;
  for (std::int64_t index = 0; index < pb.dw_count(); ++index) {
    const std::int64_t k = index % pb.K, ch = k / Kg * Cg + index / pb.K % Cg;
    std::int64_t tap = index / pb.K / Cg, at[3];
    for (int a = 3; a-- > 0;) {
      at[a] = tap % pb.axis[static_cast<std::size_t>(a)].taps;
      tap /= pb.axis[static_cast<std::size_t>(a)].taps;
    }
    double total = 0, sum = 0;
    std::int64_t pixel = 0;
    const auto end_part = [&] {
      total = wrong.part ? wrong.part(sum) + total : total + sum;
      if (wrong.part && wrong.add) total = wrong.part(total);
      sum = 0;
    };
    for (std::int64_t n = 0; n < pb.N; ++n) {
      for (std::int64_t out = 0; out < pb.out_pixels(); ++out, ++pixel) {
        if (wrong.ends.empty() ? pixel % 512 == 0 : wrong.ends.count(pixel) > 0) end_part();
        std::int64_t rest = out, place = n, o[3];
        bool there = true, zero = false;
        for (int a = 3; a-- > 0;) {
          o[a] = rest % pb.axis[static_cast<std::size_t>(a)].out;
          rest /= pb.axis[static_cast<std::size_t>(a)].out;
        }
        for (std::size_t a = 0; a < 3; ++a) {
          const SpatialAxis& axis = wrong.axis[a];
          const std::int64_t in = pb.axis[a].in;
          std::int64_t i = o[a] * axis.stride - axis.pad_before + at[a] * axis.dilation;
          if (i < 0 || i >= in) i = wrong.outside ? wrong.outside(i, in) : -1;
          there = there && i != -1;
          zero = zero || i == -2;
          place = place * in + std::max<std::int64_t>(i, 0);
        }
        const double weight = wrong.weight ? wrong.weight(pixel) : 1;
        if (!there || weight == 0) continue;
        double x = zero ? 0 : c.x[static_cast<std::size_t>(place * pb.C + ch)];
        double dy = c.dy[static_cast<std::size_t>(pixel * pb.K + k)];
        if (wrong.x) x = wrong.x(x);
        if (wrong.dy) dy = wrong.dy(dy);
        double product = x * dy * weight;
        if (wrong.product) product = wrong.product(product);
        if (wrong.add && !wrong.part) {
          sum = wrong.add(sum, product);
        } else {
          sum = wide ? sum + product
                     : static_cast<double>(static_cast<float>(sum) + static_cast<float>(product));
        }
      }
    }
    end_part();
    dw.push_back(rounded(pb.out_dtype, total));
  }
  return dw;
}

Wrong right(const Case& c) {
  Wrong wrong;
  wrong.axis = c.pb.axis;
  return wrong;
}

Values rounded_all(const WgradProblem& pb, Values values) {
  for (double& v : values) v = rounded(pb.out_dtype, v);
  return values;
}

std::vector<std::byte> bytes_of(const WgradProblem& pb, const Values& values,
                                std::int64_t channels) {
  Values ordered = values;
  if (!pb.channels_last) {
    const auto pixels = std::ssize(values) / pb.N / channels;
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const std::int64_t n = i / (pixels * channels), p = i / channels % pixels, c = i % channels;
      ordered[static_cast<std::size_t>((n * channels + c) * pixels + p)] =
          values[static_cast<std::size_t>(i)];
    }
  }
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(pb.dtype)));
  round_to(pb.dtype, ordered.data(), std::ssize(ordered), bytes.data());
  return bytes;
}

// A tensor whose memory is taken for the other data format.
Values other_format(const WgradProblem& pb, const Values& values, std::int64_t channels) {
  const std::int64_t pixels = std::ssize(values) / pb.N / channels;
  Values result;
  for (std::int64_t i = 0; i < std::ssize(values); ++i) {
    const std::int64_t n = i / (pixels * channels), p = i / channels % pixels, c = i % channels;
    // Where it would be in the other format, and what stands there.
    const std::int64_t at = pb.channels_last ? c * pixels + p : p * channels + c;
    const std::int64_t q = pb.channels_last ? at / channels : at % pixels;
    const std::int64_t d = pb.channels_last ? at % channels : at / pixels;
    result.push_back(values[static_cast<std::size_t>((n * pixels + q) * channels + d)]);
  }
  return result;
}

Case random_case(Random& random, double scale) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + draw(random, high - low + 1);
  };
  while (true) {
    WgradAttributes attributes;
    const std::int64_t op = pick(0, 5);
    attributes.op = op < 4 ? "conv2d" : op == 4 ? "depthwise" : "conv3d";
    const std::size_t rank = op == 5 ? 3 : 2;
    const std::int64_t groups = op == 4 ? pick(2, 40) : std::max<std::int64_t>(1, pick(-3, 4));
    const std::int64_t C = op == 4 ? groups : groups * pick(1, groups > 1 ? 6 : 36);
    const std::int64_t K = groups * pick(1, op == 4 ? 3 : groups > 1 ? 8 : 36);
    constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f32,
                                DType::f64, DType::f16, DType::bf16};
    TensorInfo x = {"x", kTypes[pick(0, 5)], {pick(1, 6)}}, dy = {"dy", x.dtype, {}};
    const bool last = pick(0, 1) == 1;
    attributes.data_format = std::string(rank == 3 ? (last ? "NDHWC" : "NCDHW")
                                         : last    ? "NHWC"
                                                   : "NCHW");
    attributes.padding = pick(0, 2) > 0 ? "SAME" : "VALID";
    for (std::size_t a = 0; a < rank; ++a) {
      x.shape.push_back(pick(3, rank == 3 ? 7 : 16));
      attributes.kernel.push_back(pick(1, 3));
      attributes.strides.push_back(pick(1, 2));
      attributes.dilations.push_back(pick(0, 1) == 1 ? pick(1, 3) : 1);
    }
    x.shape.insert(last ? x.shape.end() : x.shape.begin() + 1, C);
    attributes.groups = groups;
    if (op == 4) attributes.groups.reset();
    try {
      dy.shape = out_backprop_shape(x, attributes, K);
      Case c;
      c.pb = make_problem(x, dy, attributes);
      const double work = static_cast<double>(c.pb.dw_count() * term_count(c.pb));
      if (term_count(c.pb) < 20 || c.pb.dw_count() < 12 || work > 3e6) continue;
      if (c.pb.dtype != DType::f64 && pick(0, 3) == 0) c.pb.out_dtype = DType::f32;
      const auto data = static_cast<Data>(pick(0, 2));
      const auto fill = [&](std::int64_t count) {
        Values values;
        for (std::int64_t i = 0; i < count; ++i) {
          double v = data == Data::positive ? 0.1 + uniform(random) : normal(random);
          if (data == Data::relu) v = std::max(v, 0.0);
          values.push_back(rounded(c.pb.dtype, v * scale));
        }
        return values;
      };
      c.x = fill(c.pb.x_count());
      c.dy = fill(c.pb.dy_count());
      if (data == Data::relu) {  // of x alone
        for (double& v : c.dy) v = rounded(c.pb.dtype, normal(random) * scale);
      }
      return c;
    } catch (const Error&) {
      continue;
    }
  }
}

// names: of the fault, in any order, or alternatives that say the same; words that must be there.
struct Kind {
  std::string name;
  std::vector<std::string> faults;
  std::function<Values(Case&, Random&, std::string&)> make;  // empty: not for this problem
};

using Names = std::vector<std::string>;

std::vector<Kind> kinds() {
  std::vector<Kind> list;
  const auto add = [&](const std::string& name, const Names& faults,
                       const std::function<Values(Case&, Random&, std::string&)>& make) {
    list.push_back({name, faults, make});
  };
  const auto moved = [](const WgradProblem& pb, const Values& dw,
                        const std::function<void(std::int64_t(&)[5])>& move) {
    Values result;
    const std::int64_t extent[] = {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps, pb.group_c(),
                                   pb.K};
    for (std::int64_t i = 0; i < std::ssize(dw); ++i) {
      std::int64_t at[5], rest = i, from = 0;
      for (int a = 5; a-- > 0;) {
        at[a] = rest % extent[a];
        rest /= extent[a];
      }
      move(at);
      for (int a = 0; a < 5; ++a) from = from * extent[a] + at[a];
      result.push_back(dw[static_cast<std::size_t>(from)]);
    }
    return result;
  };
  const auto flip = [moved](const WgradProblem& pb, const Values& dw, bool h, bool w) {
    return moved(pb, dw, [&](std::int64_t(&at)[5]) {
      if (h) at[1] = pb.axis[1].taps - 1 - at[1];
      if (w) at[2] = pb.axis[2].taps - 1 - at[2];
    });
  };
  for (const auto& [h, w] :
       {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
    add(cat("flipped ", h ? "h" : "", w ? "w" : ""), {"filter_flipped"},
        [=, h = h, w = w](Case& c, Random&, std::string&) {
          return flip(c.pb, gradient(c, right(c)), h, w);
        });
  }
  // The elements of [t][r][s][c][k] in another order, put where they do not belong.
  const auto order = [](const WgradProblem& pb, const Values& dw, const int(&axes)[5]) {
    const std::int64_t extent[] = {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps,
                                   pb.op == Op::depthwise ? pb.C : pb.group_c(),
                                   pb.op == Op::depthwise ? pb.group_k() : pb.K};
    Values result;
    for (std::int64_t i = 0; i < std::ssize(dw); ++i) {
      std::int64_t rest = i, at[5], from = 0;
      for (int a = 5; a-- > 0;) {
        at[axes[a]] = rest % extent[axes[a]];
        rest /= extent[axes[a]];
      }
      for (int a = 0; a < 5; ++a) from = from * extent[a] + at[a];
      result.push_back(dw[static_cast<std::size_t>(from)]);
    }
    return result;
  };
  const auto add_order = [&](const std::string& name, const std::array<int, 5>& axes) {
    add(name, {"filter_order"}, [=](Case& c, Random&, std::string&) {
      int of[5];
      std::copy(axes.begin(), axes.end(), of);
      return order(c.pb, gradient(c, right(c)), of);
    });
  };
  add_order("order OIHW", {4, 3, 0, 1, 2});
  add_order("order OHWI", {4, 0, 1, 2, 3});
  add_order("C and K exchanged", {0, 1, 2, 4, 3});
  add_order("rows and columns exchanged", {0, 2, 1, 3, 4});
  add("x in the other layout", {"tensor_layout"}, [](Case& c, Random&, std::string&) {
    Case other = c;
    other.x = other_format(c.pb, c.x, c.pb.C);
    return gradient(other, right(c));
  });
  add("dy in the other layout", {"tensor_layout"}, [](Case& c, Random&, std::string&) {
    Case other = c;
    other.dy = other_format(c.pb, c.dy, c.pb.K);
    return gradient(other, right(c));
  });
  const auto add_axis = [&](const std::string& name, const Names& faults,
                            const std::function<void(SpatialAxis&)>& change) {
    add(name, faults, [=](Case& c, Random&, std::string&) {
      Wrong wrong = right(c);
      for (std::size_t a = c.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a) change(wrong.axis[a]);
      return gradient(c, wrong);
    });
  };
  add_axis("padding one more", {"padding_off_by_one", "padding_swapped"},
           [](SpatialAxis& a) { ++a.pad_before; });
  add_axis("padding one less", {"padding_off_by_one", "padding_ignored"},
           [](SpatialAxis& a) { --a.pad_before; });
  add_axis("padding ignored", {"padding_ignored", "padding_off_by_one", "padding_swapped"},
           [](SpatialAxis& a) { a.pad_before = 0; });
  add_axis("dilations ignored", {"dilations_ignored", "stride_dilation_swapped"},
           [](SpatialAxis& a) { a.dilation = 1; });
  add_axis("strides and dilations swapped",
           {"stride_dilation_swapped", "strides_ignored", "dilations_ignored"},
           [](SpatialAxis& a) { std::swap(a.stride, a.dilation); });
  add_axis("strides ignored", {"strides_ignored", "stride_dilation_swapped"},
           [](SpatialAxis& a) { a.stride = 1; });
  for (const bool reversed : {true, false}) {
    add(reversed ? "groups reversed" : "groups rotated",
        {"group_order", "channel_order", "filter_flipped"}, [=](Case& c, Random&, std::string&) {
          const std::int64_t G = c.pb.groups, Kg = c.pb.group_k();
          if (G < 2) return Values();
          return moved(c.pb, gradient(c, right(c)), [&](std::int64_t(&at)[5]) {
            const std::int64_t g = at[4] / Kg;
            at[4] = (reversed ? G - 1 - g : (g + 1) % G) * Kg + at[4] % Kg;
          });
        });
  }
  // Precision.
  struct Type {
    const char* name;
    const char* words;
    std::function<double(double)> round;
    double u;
  };
  const Type tf32 = {"TF32", "rounded to TF32", [](double v) { return bits_kept(v, 11, false); },
                     0x1p-11};
  const Type tf32_cut = {"TF32 cut", "cut off to TF32",
                         [](double v) { return bits_kept(v, 11, true); }, 0x1p-11};
  const Type bf16 = {"bfloat16", "rounded to bfloat16",
                     [](double v) { return rounded(DType::bf16, v); }, 0x1p-8};
  const Type bf16_cut = {"bfloat16 cut", "cut off to bfloat16",
                         [](double v) { return bits_kept(v, 8, true); }, 0x1p-8};
  const Type f16 = {"float16", "rounded to float16",
                    [](double v) { return rounded(DType::f16, v); }, 0x1p-11};
  for (const Type& type : {tf32, tf32_cut, bf16, bf16_cut, f16}) {
    for (const int which : {3, 1, 2}) {
      if (which < 3 && type.name != std::string("bfloat16") && type.name != std::string("TF32"))
        continue;
      add(cat("inputs ", type.name,
              which == 1   ? ", x alone"
              : which == 2 ? ", dy alone"
                           : ""),
          {"input_precision"}, [=](Case& c, Random&, std::string& words) {
            if (type.u <= unit_roundoff(c.pb.dtype)) return Values();
            Wrong wrong = right(c);
            if ((which & 1) != 0) wrong.x = type.round;
            if ((which & 2) != 0) wrong.dy = type.round;
            words =
                type.u == 0x1p-11 ? (type.name == tf32_cut.name ? "cut" : "rounded") : type.words;
            return gradient(c, wrong);
          });
    }
    add(cat("result ", type.name), {"result_precision"}, [=](Case& c, Random&, std::string& words) {
      if (type.u <= unit_roundoff(c.pb.out_dtype)) return Values();
      Values dw = gradient(c, right(c));
      for (double& v : dw) v = type.round(v);
      words = type.u == 0x1p-11 ? (type.name == tf32_cut.name ? "cut" : "rounded") : type.words;
      return dw;
    });
  }
  for (const Type& type : {bf16, f16}) {
    for (const int how : {0, 1, 2}) {
      add(cat(how == 0   ? "split-K partials "
              : how == 1 ? "partials of images "
                         : "split-K atomics ",
              type.name),
          {"low_precision_sums", "result_precision"}, [=](Case& c, Random& random, std::string&) {
            const std::int64_t L = term_count(c.pb);
            const std::int64_t parts =
                how == 1 ? c.pb.N : std::min<std::int64_t>(L / 4, 2 + draw(random, 60));
            if (parts < 2) return Values();
            Wrong wrong = right(c);
            const std::int64_t chunk = (L + parts - 1) / parts;
            for (std::int64_t at = chunk; at < L; at += chunk) wrong.ends.insert(at);
            wrong.part = type.round;
            if (how == 2) wrong.add = [](double a, double b) { return a + b; };
            return gradient(c, wrong);
          });
    }
    add(cat("accumulator ", type.name), {"low_precision_sums"},
        [=](Case& c, Random&, std::string&) {
          Wrong wrong = right(c);
          wrong.ends = {-1};
          wrong.product = type.round;
          wrong.add = [=](double sum, double product) { return type.round(sum + product); };
          return gradient(c, wrong);
        });
  }
  // Special values.
  add("subnormal inputs flushed", {"subnormals_flushed", "zero"},
      [](Case& c, Random& random, std::string&) {
        const double least = smallest_normal(c.pb.dtype);
        for (double& v : c.x) {
          v = rounded(c.pb.dtype, draw(random, 2) == 0 ? v * least : v * least * 16);
        }
        for (double& v : c.dy) v = rounded(c.pb.dtype, v / 256);
        if (c.pb.dtype == DType::bf16 || c.pb.dtype == DType::f32 || c.pb.dtype == DType::f64) {
          for (double& v : c.dy) v = rounded(c.pb.dtype, v * 0x1p20);
        }
        Wrong wrong = right(c);
        wrong.x = wrong.dy = [=](double v) { return std::fabs(v) < least ? 0.0 : v; };
        return gradient(c, wrong);
      });
  add("subnormal products flushed", {"subnormals_flushed", "zero"},
      [](Case& c, Random&, std::string&) {
        if (c.pb.dtype == DType::f16) return Values();
        const double least = smallest_normal(accumulator_dtype(c.pb.dtype)),
                     root = std::sqrt(least);
        for (double& v : c.x) v = rounded(c.pb.dtype, v * root);
        for (double& v : c.dy) v = rounded(c.pb.dtype, v * root);
        Wrong wrong = right(c);
        wrong.product = [=](double v) { return std::fabs(v) < least ? 0.0 : v; };
        return gradient(c, wrong);
      });
  add("0 * Inf in the padding", {"padding_multiplied", "nan"},
      [](Case& c, Random& random, std::string&) {
        for (int i = 0; i < 3; ++i) {
          c.dy[static_cast<std::size_t>(draw(random, c.pb.K))] = HUGE_VAL;
        }
        Wrong wrong = right(c);
        wrong.outside = [](std::int64_t, std::int64_t) { return -2; };
        return gradient(c, wrong);
      });
  // Pixels.
  const auto add_pixels = [&](const std::string& name, const Names& faults,
                              const std::function<Range(const WgradProblem&, Random&)>& choose,
                              double weight, bool tile) {
    add(name, faults, [=](Case& c, Random& random, std::string& words) {
      const Range range = choose(c.pb, random);
      if (range.size() <= 0 || range.size() >= term_count(c.pb)) return Values();
      Wrong wrong = right(c);
      wrong.weight = [=](std::int64_t at) {
        return at >= range.begin && at < range.end ? weight : 1;
      };
      Values dw = gradient(c, wrong);
      if (tile) {
        if (c.pb.K <= 16) return Values();
        words = "k 0-15";
        if (c.pb.op == Op::depthwise) return Values();
        const Values good = gradient(c, right(c));
        for (std::size_t i = 0; i < dw.size(); ++i) {
          if (static_cast<std::int64_t>(i) % c.pb.K >= 16) dw[i] = good[i];
        }
      }
      return dw;
    });
  };
  const auto image = [](const WgradProblem& pb, Random& random) {
    const std::int64_t n = draw(random, pb.N), pixels = pb.out_pixels();
    return Range{n * pixels, (n + 1) * pixels};
  };
  const auto row = [](const WgradProblem& pb, Random& random) {
    const std::int64_t width = pb.axis[2].out, at = draw(random, term_count(pb) / width);
    return Range{at * width, (at + 1) * width};
  };
  const auto chunk = [](const WgradProblem& pb, Random& random) {
    const std::int64_t at = draw(random, (term_count(pb) + 511) / 512) * 512;
    return Range{at, std::min(at + 512, term_count(pb))};
  };
  const auto pixel = [](const WgradProblem& pb, Random& random) {
    const std::int64_t at = draw(random, term_count(pb));
    return Range{at, at + 1};
  };
  const Names missing = {"missing_pixels", "missing_image", "line_left_out"};
  const Names doubled = {"doubled_pixels", "doubled_image"};
  add_pixels("image left out", missing, image, 0, false);
  add_pixels("image twice", doubled, image, 2, false);
  add_pixels("row left out", missing, row, 0, false);
  add_pixels("row twice", doubled, row, 2, false);
  add_pixels("chunk of 512 left out", missing, chunk, 0, false);
  add_pixels("chunk of 512 twice", doubled, chunk, 2, false);
  add_pixels("pixel left out", missing, pixel, 0, false);
  add_pixels("image left out in a tile", missing, image, 0, true);
  add_pixels("row twice in a tile", doubled, row, 2, true);
  add("last row of dy left out", {"line_left_out", "missing_pixels"},
      [](Case& c, Random&, std::string&) {
        const std::int64_t P = c.pb.axis[1].out, Q = c.pb.axis[2].out;
        if (P < 2) return Values();
        Wrong wrong = right(c);
        wrong.weight = [=](std::int64_t at) { return at / Q % P == P - 1 ? 0.0 : 1.0; };
        return gradient(c, wrong);
      });
  // Parts.
  const auto add_part =
      [&](const std::string& name, const Names& faults,
          const std::function<void(const WgradProblem&, Values&, std::string&)>& spoil) {
        add(name, faults, [=](Case& c, Random&, std::string& words) {
          const Values good = gradient(c, right(c));
          Values dw = good;
          spoil(c.pb, dw, words);
          const bool changed = std::memcmp(dw.data(), good.data(), dw.size() * sizeof(double)) != 0;
          return changed ? dw : Values();
        });
      };
  const auto fill = [](Values& dw, double value, const std::function<bool(std::int64_t)>& where) {
    for (std::size_t i = 0; i < dw.size(); ++i) {
      if (where(static_cast<std::int64_t>(i))) dw[i] = value;
    }
  };
  add_part("all 0", {"zero"}, [=](const WgradProblem&, Values& dw, std::string& words) {
    fill(dw, 0, [](std::int64_t) { return true; });
    words = "every element is set to 0";
  });
  add_part("all NaN", {"nan"}, [=](const WgradProblem&, Values& dw, std::string& words) {
    fill(dw, std::nan(""), [](std::int64_t) { return true; });
    words = "every element is set to NaN";
  });
  add_part("a tap 0", {"zero"}, [=](const WgradProblem& pb, Values& dw, std::string& words) {
    if (pb.taps() < 2) return;
    const std::int64_t cells = pb.group_c() * pb.K;
    fill(dw, 0, [=](std::int64_t i) { return i / cells == pb.taps() - 1; });
    words = pb.axis[1].taps > 1 && pb.axis[2].taps > 1 && pb.op != Op::conv3d
                ? cat("tap (", pb.axis[1].taps - 1, ",", pb.axis[2].taps - 1, ")")
                : "";
  });
  add_part("remainder channels 0", {"zero"},
           [=](const WgradProblem& pb, Values& dw, std::string& words) {
             if (pb.op == Op::depthwise || pb.groups > 1 || pb.K % 8 < 2 || pb.K < 8) return;
             fill(dw, 0, [=](std::int64_t i) { return i % pb.K >= pb.K / 8 * 8; });
             words = "a remainder of";
           });
  add_part("k % 8 == 7 NaN", {"nan"}, [=](const WgradProblem& pb, Values& dw, std::string& words) {
    if (pb.op == Op::depthwise || pb.groups > 1 || pb.K < 16) return;
    fill(dw, std::nan(""), [=](std::int64_t i) { return i % pb.K % 8 == 7; });
    words = pb.K < 24 && pb.K != 16 ? "" : "k % 8 == 7";
  });
  add_part("two places 0", {"zero"}, [=](const WgradProblem& pb, Values& dw, std::string& words) {
    if (pb.op == Op::depthwise || pb.taps() < 3 || pb.K < 3) return;
    const std::int64_t cells = pb.group_c() * pb.K;
    fill(dw, 0, [=](std::int64_t i) {
      return (i / cells == 0 && i % pb.K == 0) ||
             (i / cells == pb.taps() - 1 && i % pb.K == pb.K - 1);
    });
    words = " and ";
  });
  add_part("a tap holds another", {"copied", "tap_order", "filter_flipped", "filter_order"},
           [=](const WgradProblem& pb, Values& dw, std::string&) {
             if (pb.taps() < 2) return;
             const std::int64_t cells = pb.group_c() * pb.K;
             for (std::int64_t i = 0; i < cells; ++i)
               dw[static_cast<std::size_t>(i)] = dw[static_cast<std::size_t>(cells + i)];
           });
  add_part("a tile holds another", {"copied"},
           [=](const WgradProblem& pb, Values& dw, std::string&) {
             if (pb.op == Op::depthwise || pb.K < 32) return;
             for (std::int64_t i = 0; i < std::min<std::int64_t>(16, pb.group_c()); ++i) {
               for (std::int64_t k = 0; k < 16; ++k) {
                 dw[static_cast<std::size_t>(i * pb.K + k)] =
                     dw[static_cast<std::size_t>(i * pb.K + 16 + k)];
               }
             }
           });
  add("k and k^1 swapped", {"channel_order", "group_order", "filter_order"},
      [=](Case& c, Random&, std::string&) {
        if (c.pb.K % 2 != 0) return Values();
        return moved(c.pb, gradient(c, right(c)), [](std::int64_t(&at)[5]) { at[4] ^= 1; });
      });
  // Padding and activations.
  const auto add_outside =
      [&](const std::string& name,
          const std::function<std::int64_t(std::int64_t, std::int64_t)>& outside) {
        add(name, {"padding_values"}, [=](Case& c, Random&, std::string&) {
          Wrong wrong = right(c);
          wrong.outside = outside;
          return gradient(c, wrong);
        });
      };
  add_outside("edge padding", [](std::int64_t i, std::int64_t in) { return i < 0 ? 0 : in - 1; });
  add_outside("reflect padding", [](std::int64_t i, std::int64_t in) {
    i = i < 0 ? -i : 2 * (in - 1) - i;
    return i < 0 || i >= in ? std::int64_t{-1} : i;
  });
  for (const bool of_x : {true, false}) {
    add(of_x ? "ReLU of x" : "ReLU of dy", {"activation", "zero"},
        [=](Case& c, Random&, std::string&) {
          Wrong wrong = right(c);
          (of_x ? wrong.x : wrong.dy) = [](double v) { return std::max(v, 0.0); };
          return gradient(c, wrong);
        });
    add(of_x ? "x shifted by a column" : "dy shifted by a column",
        {"shifted", "padding_off_by_one", "padding_ignored", "padding_swapped", "line_left_out"},
        [=](Case& c, Random&, std::string&) {
          Case other = c;
          const std::int64_t width = of_x ? c.pb.axis[2].in : c.pb.axis[2].out;
          const std::int64_t channels = of_x ? c.pb.C : c.pb.K;
          if (width < 2) return Values();
          const Values& from = of_x ? c.x : c.dy;
          Values& to = of_x ? other.x : other.dy;
          for (std::size_t i = 0; i < to.size(); ++i) {
            const bool first = static_cast<std::int64_t>(i) / channels % width == 0;
            to[i] = first ? 0 : from[i - static_cast<std::size_t>(channels)];
          }
          return gradient(other, right(c));
        });
  }
  // Scales, and two faults at once.
  const auto scaled = [](const WgradProblem& pb, Values dw, double factor) {
    for (double& v : dw) v *= factor;
    return rounded_all(pb, dw);
  };
  add("scale 1/N", {"scale_factor"}, [=](Case& c, Random&, std::string&) {
    return scaled(c.pb, gradient(c, right(c)), 1.0 / static_cast<double>(c.pb.N));
  });
  add("scale 0.37", {"scale_factor"},
      [=](Case& c, Random&, std::string&) { return scaled(c.pb, gradient(c, right(c)), 0.37); });
  add("flipped and scaled", {"filter_flipped+scale_factor", "scale_factor"},
      [=](Case& c, Random&, std::string&) {
        return scaled(c.pb, flip(c.pb, gradient(c, right(c)), true, true), 0.5);
      });
  add("OIHW and scaled", {"filter_order+scale_factor", "scale_factor"},
      [=](Case& c, Random&, std::string&) {
        const int axes[] = {4, 3, 0, 1, 2};
        return scaled(c.pb, order(c.pb, gradient(c, right(c)), axes), 3);
      });
  add("dilations ignored and scaled",
      {"dilations_ignored+scale_factor", "scale_factor", "stride_dilation_swapped+scale_factor"},
      [=](Case& c, Random&, std::string&) {
        Wrong wrong = right(c);
        for (SpatialAxis& a : wrong.axis) a.dilation = 1;
        return scaled(c.pb, gradient(c, wrong), 0.25);
      });
  add("bfloat16 inputs and a tap 0", {"input_precision+zero"}, [=](Case& c, Random&, std::string&) {
    if (c.pb.taps() < 2 || unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
    Wrong wrong = right(c);
    wrong.x = wrong.dy = bf16.round;
    Values dw = gradient(c, wrong);
    fill(dw, 0, [&](std::int64_t i) { return i < c.pb.group_c() * c.pb.K; });
    return dw;
  });
  add("bfloat16 inputs and flipped", {"filter_flipped+input_precision", "input_precision"},
      [=](Case& c, Random&, std::string&) {
        if (unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
        Wrong wrong = right(c);
        wrong.x = wrong.dy = bf16.round;
        return flip(c.pb, gradient(c, wrong), true, true);
      });
  add("bfloat16 result and flipped", {"filter_flipped+result_precision", "result_precision"},
      [=](Case& c, Random&, std::string&) {
        if (unit_roundoff(c.pb.out_dtype) >= 0x1p-8) return Values();
        Values dw = flip(c.pb, gradient(c, right(c)), true, true);
        for (double& v : dw) v = bf16.round(v);
        return dw;
      });
  add("OIHW and bfloat16 inputs", {"filter_order+input_precision", "input_precision"},
      [=](Case& c, Random&, std::string&) {
        if (unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
        Wrong wrong = right(c);
        wrong.x = wrong.dy = bf16.round;
        const int axes[] = {4, 3, 0, 1, 2};
        return order(c.pb, gradient(c, wrong), axes);
      });
  add("flipped and a tap 0", {"filter_flipped+zero", "zero"}, [=](Case& c, Random&, std::string&) {
    if (c.pb.taps() < 2) return Values();
    Values dw = flip(c.pb, gradient(c, right(c)), true, true);
    fill(dw, 0, [&](std::int64_t i) { return i < c.pb.group_c() * c.pb.K; });
    return dw;
  });
  add("x in the other layout and scaled", {"tensor_layout+scale_factor"},
      [=](Case& c, Random&, std::string&) {
        Case other = c;
        other.x = other_format(c.pb, c.x, c.pb.C);
        return scaled(c.pb, gradient(other, right(c)), 2);
      });
  add("padding one more and bfloat16 result",
      {"padding_off_by_one+result_precision", "padding_swapped+result_precision",
       "result_precision"},
      [=](Case& c, Random&, std::string&) {
        if (unit_roundoff(c.pb.out_dtype) >= 0x1p-8) return Values();
        Wrong wrong = right(c);
        for (std::size_t a = c.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a) ++wrong.axis[a].pad_before;
        Values dw = gradient(c, wrong);
        for (double& v : dw) v = bf16.round(v);
        return dw;
      });
  add("a channel scaled", {"scale_factor"}, [=](Case& c, Random&, std::string& words) {
    if (c.pb.K < 3) return Values();
    Values dw = gradient(c, right(c));
    for (std::size_t i = 1; i < dw.size(); i += static_cast<std::size_t>(c.pb.K)) dw[i] *= 1.75;
    words =
        c.pb.op == Op::depthwise || c.pb.taps() * c.pb.group_c() == 1 ? "" : "output channel k 1";
    return rounded_all(c.pb, dw);
  });
  add("TF32 inputs in a tap", {"input_precision"}, [=](Case& c, Random&, std::string& words) {
    if (c.pb.taps() < 2 || c.pb.dw_count() < 64 || unit_roundoff(c.pb.dtype) >= 0x1p-11) {
      return Values();
    }
    Wrong wrong = right(c);
    wrong.x = wrong.dy = tf32.round;
    Values dw = gradient(c, right(c));
    const Values low = gradient(c, wrong);
    const auto cells = static_cast<std::size_t>(c.pb.group_c() * c.pb.K);
    std::copy_n(low.begin(), cells, dw.begin());
    words = "alone";
    return dw;
  });
  add_part("remainder channels stale", {"copied", "channel_order"},
           [=](const WgradProblem& pb, Values& dw, std::string&) {
             if (pb.op == Op::depthwise || pb.groups > 1 || pb.K % 16 < 1 || pb.K < 17) return;
             for (std::size_t i = 0; i < dw.size(); ++i) {
               const auto k = static_cast<std::int64_t>(i) % pb.K;
               if (k >= pb.K / 16 * 16) dw[i] = dw[i - 16];
             }
           });
  add_part("two taps exchanged", {"tap_order", "filter_flipped", "filter_order"},
           [=](const WgradProblem& pb, Values& dw, std::string&) {
             if (pb.taps() < 2) return;
             const auto cells = static_cast<std::ptrdiff_t>(pb.group_c() * pb.K);
             std::swap_ranges(dw.begin(), dw.begin() + cells, dw.begin() + cells);
           });
  add_part("every second k 0", {"zero"},
           [=](const WgradProblem& pb, Values& dw, std::string& words) {
             if (pb.op == Op::depthwise || pb.K < 6) return;
             fill(dw, 0, [=](std::int64_t i) { return i % pb.K % 2 == 1; });
             words = "k % 2 == 1";
           });
  add("groups interleaved", {"group_order", "filter_order", "channel_order"},
      [=](Case& c, Random&, std::string&) {
        const std::int64_t G = c.pb.groups, Kg = c.pb.group_k();
        if (G < 2 || Kg < 2) return Values();
        return moved(c.pb, gradient(c, right(c)),
                     [&](std::int64_t(&at)[5]) { at[4] = at[4] % Kg * G + at[4] / Kg; });
      });
  add_outside("circular padding",
              [](std::int64_t i, std::int64_t in) { return (i % in + in) % in; });
  add("dilations ignored, SAME follows", {"dilations_ignored", "stride_dilation_swapped"},
      [=](Case& c, Random&, std::string&) {
        Wrong wrong = right(c);
        for (SpatialAxis& a : wrong.axis) {
          a.dilation = 1;
          a.pad_before = std::max<std::int64_t>((a.out - 1) * a.stride + a.taps - a.in, 0) / 2;
        }
        return gradient(c, wrong);
      });
  add_pixels(
      "the last half left out", {"missing_pixels", "missing_image", "line_left_out"},
      [](const WgradProblem& pb, Random&) {
        return Range{term_count(pb) / 2, term_count(pb)};
      },
      0, false);
  add("float16 sums from the last pixel on", {"low_precision_sums"},
      [=](Case& c, Random&, std::string&) {
        if (c.pb.dtype == DType::bf16 || term_count(c.pb) < 60) return Values();
        // Of equal tensors in another order: the images and pixels reversed, at 1x1.
        if (c.pb.taps() > 1 ||
            c.pb.axis[1].stride * c.pb.axis[2].stride * c.pb.axis[0].stride > 1) {
          return Values();
        }
        Case other = c;
        for (const auto& [values, channels] :
             {std::pair{&other.x, c.pb.C}, std::pair{&other.dy, c.pb.K}}) {
          std::reverse(values->begin(), values->end());
          for (std::size_t i = 0; i < values->size(); i += static_cast<std::size_t>(channels)) {
            const auto at = values->begin() + static_cast<std::ptrdiff_t>(i);
            std::reverse(at, at + channels);
          }
        }
        Wrong wrong = right(c);
        wrong.ends = {-1};
        wrong.product = f16.round;
        wrong.add = [=](double sum, double product) { return f16.round(sum + product); };
        return gradient(other, wrong);
      });
  // What is none of the faults: nothing must be named.
  const auto add_unknown =
      [&](const std::string& name,
          const std::function<void(const WgradProblem&, Values&, Random&)>& spoil) {
        add("unknown: " + name, {}, [=](Case& c, Random& random, std::string&) {
          Values dw = gradient(c, right(c));
          spoil(c.pb, dw, random);
          return rounded_all(c.pb, dw);
        });
      };
  const auto size = [](const Values& dw) {
    double squares = 0;
    for (const double v : dw) squares += v * v;
    return std::sqrt(squares / static_cast<double>(dw.size()));
  };
  for (const double part : {1.0, 0.1, 1e-3, 1e-5}) {
    add_unknown(cat("noise of ", part), [=](const WgradProblem&, Values& dw, Random& random) {
      const double noise = part * size(dw);
      for (double& v : dw) v += noise * normal(random);
    });
  }
  add_unknown("noise in a tenth of all", [=](const WgradProblem&, Values& dw, Random& random) {
    const double noise = size(dw);
    for (double& v : dw) v += draw(random, 10) == 0 ? noise * normal(random) : 0;
  });
  add_unknown("noise in a tap", [=](const WgradProblem& pb, Values& dw, Random& random) {
    const double noise = size(dw);
    for (std::int64_t i = 0; i < pb.group_c() * pb.K; ++i) {
      dw[static_cast<std::size_t>(i)] += noise * normal(random);
    }
  });
  add_unknown("one element", [=](const WgradProblem&, Values& dw, Random& random) {
    dw[static_cast<std::size_t>(draw(random, std::ssize(dw)))] += size(dw) * normal(random);
  });
  add_unknown("factors of their own", [=](const WgradProblem&, Values& dw, Random& random) {
    for (double& v : dw) v *= 1 + 0.1 * normal(random);
  });
  add_unknown("another order of all", [=](const WgradProblem& pb, Values& dw, Random& random) {
    if (pb.taps() < 2 || pb.group_c() < 2) return;  // that might be one of the channels
    for (std::size_t i = dw.size(); i > 1; --i) {
      std::swap(dw[i - 1],
                dw[static_cast<std::size_t>(draw(random, static_cast<std::int64_t>(i)))]);
    }
  });
  return list;
}

// "a+b" as a set of names.
std::set<std::string> parts(const std::string& fault) {
  std::set<std::string> result;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = fault.find('+', begin);
    result.insert(fault.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return result;
}

enum class Verdict : std::uint8_t { named, equivalent, unnamed, wrong };

Verdict judge(const Kind& kind, const std::string& words, const WgradProblem& pb,
              const Diagnosis& found) {
  if (kind.faults.empty()) return found.findings.empty() ? Verdict::named : Verdict::wrong;
  bool equivalent = false;
  for (const Finding& f : found.findings) {
    const bool named = std::any_of(kind.faults.begin(), kind.faults.end(),
                                   [&](const auto& name) { return parts(name) == parts(f.fault); });
    if (named && f.text.find(words) != std::string::npos) return Verdict::named;
    // It predicts every element to within rounding.
    equivalent = equivalent || (f.certainty != Certainty::size && f.checked == pb.dw_count());
  }
  if (found.findings.empty()) return Verdict::unnamed;
  return equivalent ? Verdict::equivalent : Verdict::wrong;
}

Expected expected(const Case& c, const void* x, const void* dy, TaskPool& pool) {
  PlanOptions options;
  options.backend = Backend::reference;
  options.in_memory = true;
  const Plan plan = make_plan(c.pb, this_machine(), options);
  ReferenceSum sum(c.pb, pool, Summation{});
  MemorySource source(x, dy);
  sum_blocks(plan, source, sum);
  sum.finish();
  return sum.expected();
}

}  // namespace

int main(int argc, char** argv) {
  int problems = 20;
  bool verbose = false;
  std::uint64_t seed = 0;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--short") problems = 2;
    if (word == "--verbose") verbose = true;
    if (word == "--seed" && i + 1 < argc)
      seed = static_cast<std::uint64_t>(std::atoi(argv[++i])) << 32;
    if (word == "--problems" && i + 1 < argc) problems = std::atoi(argv[++i]);
    if (word == "--kind" && i + 1 < argc) only = argv[++i];
  }
  TaskPool pool(2);
  int totals[4] = {};
  std::printf("%-36s %6s %6s %6s %6s\n", "kind", "named", "equal", "none", "wrong");
  for (const Kind& kind : kinds()) {
    ++seed;
    if (kind.name.find(only) == std::string::npos) continue;
    Random random(seed);
    int counts[4] = {};
    for (int done = 0, drawn = 0; done < problems && drawn < 200 * problems; ++drawn) {
      Case c = random_case(random, 1);
      std::string words;
      const Values got = kind.make(c, random, words);
      if (got.empty()) continue;
      const std::vector<std::byte> x = bytes_of(c.pb, c.x, c.pb.C),
                                   dy = bytes_of(c.pb, c.dy, c.pb.K);
      const Expected want = expected(c, x.data(), dy.data(), pool);
      if (compare_gradients(c.pb, c.pb.out_dtype, {}, got, want, {}).match()) continue;
      ++done;
      MemorySource source(x.data(), dy.data());
      const Suspect suspect = {c.pb, {}, got, want};
      const Diagnosis found = diagnose(suspect, image_plan(c.pb, 1 << 20), source, pool, 0x1p30);
      const Verdict verdict = judge(kind, words, c.pb, found);
      ++counts[static_cast<int>(verdict)];
      if (!verbose || verdict == Verdict::named) continue;
      std::printf("  %s, %s\n", describe(c.pb).c_str(), words.c_str());
      for (const Finding& f : found.findings) {
        std::printf("    %s: %s\n", f.fault.c_str(), f.text.c_str());
      }
      if (found.findings.empty()) std::printf("    at %s\n", found.where.c_str());
    }
    std::printf("%-36s %6d %6d %6d %6d\n", kind.name.c_str(), counts[0], counts[1], counts[2],
                counts[3]);
    std::fflush(stdout);
    for (int i = 0; i < 4; ++i) totals[i] += counts[i];
  }
  const int all = std::max(1, totals[0] + totals[1] + totals[2] + totals[3]);
  std::printf("%-36s %6d %6d %6d %6d\n", "all", totals[0], totals[1], totals[2], totals[3]);
  std::printf("named or equivalent %.1f %%, unnamed %.1f %%, wrong %.1f %%\n",
              100.0 * (totals[0] + totals[1]) / all, 100.0 * totals[2] / all,
              100.0 * totals[3] / all);
  // With few problems of each kind, chance may take some of what the goal leaves.
  return 100.0 * (totals[0] + totals[1]) / all >= 90 && 100.0 * totals[3] / all <= 3 ? 0 : 1;
}
