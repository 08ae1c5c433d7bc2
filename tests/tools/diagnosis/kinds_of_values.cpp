// kinds_of_values.cpp - see fault_kinds.hpp: wrong numbers, two faults at once, and what is none.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "convgrad/compare.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

struct NarrowType {
  const char* name;
  const char* words;
  std::function<double(double)> round;
  double u;
};
const NarrowType tf32 = {"TF32", "rounded to TF32",
                         [](double v) { return bits_kept(v, 11, false); }, 0x1p-11};
const NarrowType tf32_cut = {"TF32 cut", "cut off to TF32",
                             [](double v) { return bits_kept(v, 11, true); }, 0x1p-11};
const NarrowType bf16 = {"bfloat16", "rounded to bfloat16",
                         [](double v) { return rounded(DType::bf16, v); }, 0x1p-8};
const NarrowType bf16_cut = {"bfloat16 cut", "cut off to bfloat16",
                             [](double v) { return bits_kept(v, 8, true); }, 0x1p-8};
const NarrowType f16 = {"float16", "rounded to float16",
                        [](double v) { return rounded(DType::f16, v); }, 0x1p-11};

}  // namespace

void add_precision(Kinds& kinds) {
  for (const NarrowType& type : {tf32, tf32_cut, bf16, bf16_cut, f16}) {
    for (const int which : {3, 1, 2}) {
      if (which < 3 && type.name != std::string("bfloat16") && type.name != std::string("TF32"))
        continue;
      kinds.add(cat("inputs ", type.name,
                    which == 1   ? ", x alone"
                    : which == 2 ? ", dy alone"
                                 : ""),
                {"input_precision"}, [=](Case& c, Random&, std::string& words) {
                  if (type.u <= unit_roundoff(c.pb.dtype)) return Values();
                  Wrong wrong = right(c);
                  if ((which & 1) != 0) wrong.x = type.round;
                  if ((which & 2) != 0) wrong.dy = type.round;
                  words = type.u == 0x1p-11 ? (type.name == tf32_cut.name ? "cut" : "rounded")
                                            : type.words;
                  return gradient(c, wrong);
                });
    }
    kinds.add(
        cat("result ", type.name), {"result_precision"}, [=](Case& c, Random&, std::string& words) {
          if (type.u <= unit_roundoff(c.pb.out_dtype)) return Values();
          Values dw = gradient(c, right(c));
          for (double& v : dw) v = type.round(v);
          words = type.u == 0x1p-11 ? (type.name == tf32_cut.name ? "cut" : "rounded") : type.words;
          return dw;
        });
  }
  for (const NarrowType& type : {bf16, f16}) {
    for (const int how : {0, 1, 2}) {
      kinds.add(cat(how == 0   ? "split-K partials "
                    : how == 1 ? "partials of images "
                               : "split-K atomics ",
                    type.name),
                {"low_precision_sums", "result_precision"},
                [=](Case& c, Random& random, std::string&) {
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
    for (const bool backwards : {false, true}) {
      kinds.add(cat("accumulator ", type.name, backwards ? ", backwards" : ""),
                {"low_precision_sums"}, [=](Case& c, Random&, std::string&) {
                  // Sums of more digits than the data have are taken for right.
                  if (backwards && type.u < unit_roundoff(c.pb.dtype)) return Values();
                  Wrong wrong = right(c);
                  wrong.backwards = backwards;
                  wrong.ends = {-1};
                  wrong.product = type.round;
                  wrong.add = [=](double sum, double product) { return type.round(sum + product); };
                  return gradient(c, wrong);
                });
    }
  }
}

void add_special_values(Kinds& kinds) {
  kinds.add(
      "subnormal inputs flushed", {"subnormals_flushed", "zero"},
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
  kinds.add("subnormal products flushed", {"subnormals_flushed", "zero"},
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
  kinds.add("0 * Inf in the padding", {"padding_multiplied", "nan"},
            [](Case& c, Random& random, std::string&) {
              for (int i = 0; i < 3; ++i) {
                c.dy[static_cast<std::size_t>(draw(random, c.pb.K))] = HUGE_VAL;
              }
              Wrong wrong = right(c);
              wrong.outside = [](std::int64_t, std::int64_t) { return -2; };
              return gradient(c, wrong);
            });
}

void add_pairs(Kinds& kinds) {
  kinds.add("scale 1/N", {"scale_factor"}, [=](Case& c, Random&, std::string&) {
    return scaled(c.pb, gradient(c, right(c)), 1.0 / static_cast<double>(c.pb.N));
  });
  kinds.add("scale 0.37", {"scale_factor"}, [=](Case& c, Random&, std::string&) {
    return scaled(c.pb, gradient(c, right(c)), 0.37);
  });
  kinds.add("flipped and scaled", {"filter_flipped+scale_factor", "scale_factor"},
            [=](Case& c, Random&, std::string&) {
              return scaled(c.pb, flip(c.pb, gradient(c, right(c)), true, true), 0.5);
            });
  kinds.add("OIHW and scaled", {"filter_order+scale_factor", "scale_factor"},
            [=](Case& c, Random&, std::string&) {
              const int axes[] = {4, 3, 0, 1, 2};
              return scaled(c.pb, order(c.pb, gradient(c, right(c)), axes), 3);
            });
  kinds.add(
      "dilations ignored and scaled",
      {"dilations_ignored+scale_factor", "scale_factor", "stride_dilation_swapped+scale_factor"},
      [=](Case& c, Random&, std::string&) {
        Wrong wrong = right(c);
        for (SpatialAxis& a : wrong.axis) a.dilation = 1;
        return scaled(c.pb, gradient(c, wrong), 0.25);
      });
  kinds.add("bfloat16 inputs and a tap 0", {"input_precision+zero"},
            [=](Case& c, Random&, std::string&) {
              if (c.pb.taps() < 2 || unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
              Wrong wrong = right(c);
              wrong.x = wrong.dy = bf16.round;
              Values dw = gradient(c, wrong);
              fill(dw, 0, [&](std::int64_t i) { return i < c.pb.group_c() * c.pb.K; });
              return dw;
            });
  kinds.add("bfloat16 inputs and flipped", {"filter_flipped+input_precision", "input_precision"},
            [=](Case& c, Random&, std::string&) {
              if (unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
              Wrong wrong = right(c);
              wrong.x = wrong.dy = bf16.round;
              return flip(c.pb, gradient(c, wrong), true, true);
            });
  kinds.add("bfloat16 result and flipped", {"filter_flipped+result_precision", "result_precision"},
            [=](Case& c, Random&, std::string&) {
              if (unit_roundoff(c.pb.out_dtype) >= 0x1p-8) return Values();
              Values dw = flip(c.pb, gradient(c, right(c)), true, true);
              for (double& v : dw) v = bf16.round(v);
              return dw;
            });
  kinds.add("OIHW and bfloat16 inputs", {"filter_order+input_precision", "input_precision"},
            [=](Case& c, Random&, std::string&) {
              if (unit_roundoff(c.pb.dtype) >= 0x1p-8) return Values();
              Wrong wrong = right(c);
              wrong.x = wrong.dy = bf16.round;
              const int axes[] = {4, 3, 0, 1, 2};
              return order(c.pb, gradient(c, wrong), axes);
            });
  kinds.add("flipped and a tap 0", {"filter_flipped+zero", "zero"},
            [=](Case& c, Random&, std::string&) {
              if (c.pb.taps() < 2) return Values();
              Values dw = flip(c.pb, gradient(c, right(c)), true, true);
              fill(dw, 0, [&](std::int64_t i) { return i < c.pb.group_c() * c.pb.K; });
              return dw;
            });
  kinds.add("x in the other layout and scaled", {"tensor_layout+scale_factor"},
            [=](Case& c, Random&, std::string&) {
              Case other = c;
              other.x = other_format(c.pb, c.x, c.pb.C);
              return scaled(c.pb, gradient(other, right(c)), 2);
            });
  kinds.add("padding one more and bfloat16 result",
            {"padding_off_by_one+result_precision", "padding_swapped+result_precision",
             "result_precision"},
            [=](Case& c, Random&, std::string&) {
              if (unit_roundoff(c.pb.out_dtype) >= 0x1p-8) return Values();
              Wrong wrong = right(c);
              for (std::size_t a = c.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a)
                ++wrong.axis[a].pad_before;
              Values dw = gradient(c, wrong);
              for (double& v : dw) v = bf16.round(v);
              return dw;
            });
  kinds.add("a channel scaled", {"scale_factor"}, [=](Case& c, Random&, std::string& words) {
    if (c.pb.K < 3) return Values();
    Values dw = gradient(c, right(c));
    for (std::size_t i = 1; i < dw.size(); i += static_cast<std::size_t>(c.pb.K)) dw[i] *= 1.75;
    words =
        c.pb.op == Op::depthwise || c.pb.taps() * c.pb.group_c() == 1 ? "" : "output channel k 1";
    return rounded_all(c.pb, dw);
  });
}

void add_rarer(Kinds& kinds) {
  kinds.add("TF32 inputs in a tap", {"input_precision"}, [=](Case& c, Random&, std::string& words) {
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
  kinds.add_part("remainder channels stale", {"copied", "channel_order"},
                 [=](const WgradProblem& pb, Values& dw, std::string&) {
                   if (pb.op == Op::depthwise || pb.groups > 1 || pb.K % 16 < 1 || pb.K < 17)
                     return;
                   for (std::size_t i = 0; i < dw.size(); ++i) {
                     const auto k = static_cast<std::int64_t>(i) % pb.K;
                     if (k >= pb.K / 16 * 16) dw[i] = dw[i - 16];
                   }
                 });
  kinds.add_part("two taps exchanged", {"tap_order", "filter_flipped", "filter_order"},
                 [=](const WgradProblem& pb, Values& dw, std::string&) {
                   if (pb.taps() < 2) return;
                   const auto cells = static_cast<std::ptrdiff_t>(pb.group_c() * pb.K);
                   std::swap_ranges(dw.begin(), dw.begin() + cells, dw.begin() + cells);
                 });
  kinds.add_part("every second k 0", {"zero"},
                 [=](const WgradProblem& pb, Values& dw, std::string& words) {
                   if (pb.op == Op::depthwise || pb.K < 6) return;
                   fill(dw, 0, [=](std::int64_t i) { return i % pb.K % 2 == 1; });
                   words = "k % 2 == 1";
                 });
  kinds.add("groups interleaved", {"group_order", "filter_order", "channel_order"},
            [=](Case& c, Random&, std::string&) {
              const std::int64_t G = c.pb.groups, Kg = c.pb.group_k();
              if (G < 2 || Kg < 2) return Values();
              return moved(c.pb, gradient(c, right(c)),
                           [&](std::int64_t(&at)[5]) { at[4] = at[4] % Kg * G + at[4] / Kg; });
            });
  kinds.add_outside("circular padding",
                    [](std::int64_t i, std::int64_t in) { return (i % in + in) % in; });
  kinds.add("dilations ignored, SAME follows", {"dilations_ignored", "stride_dilation_swapped"},
            [=](Case& c, Random&, std::string&) {
              Wrong wrong = right(c);
              for (SpatialAxis& a : wrong.axis) {
                a.dilation = 1;
                a.pad_before =
                    std::max<std::int64_t>((a.out - 1) * a.stride + a.taps - a.in, 0) / 2;
              }
              return gradient(c, wrong);
            });
  kinds.add_pixels(
      "the last half left out", {"missing_pixels", "missing_image", "line_left_out"},
      [](const WgradProblem& pb, Random&) {
        return Range{term_count(pb) / 2, term_count(pb)};
      },
      0, false);
  kinds.add("float16 sums from the last pixel on", {"low_precision_sums"},
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
                for (std::size_t i = 0; i < values->size();
                     i += static_cast<std::size_t>(channels)) {
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
}

void add_unknown(Kinds& kinds) {
  const auto add_unknown =
      [&](const std::string& name,
          const std::function<void(const WgradProblem&, Values&, Random&)>& spoil) {
        kinds.add("unknown: " + name, {}, [=](Case& c, Random& random, std::string&) {
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
}

}  // namespace convgrad::testing
