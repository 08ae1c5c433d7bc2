// kinds_of_values.cpp - see fault_kinds.hpp: wrong numbers, two faults at once, and what is none.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

struct NarrowType {
  const char* name;
  const char* words;
  std::function<double(double)> round;
  double u;
  bool alone = false;  // of one tensor, too
};
const NarrowType tf32 = {"TF32", "rounded", [](double v) { return bits_kept(v, 11, false); },
                         0x1p-11, true};
const NarrowType tf32_cut = {"TF32 cut", "cut", [](double v) { return bits_kept(v, 11, true); },
                             0x1p-11};
const NarrowType bf16 = {"bfloat16", "rounded to bfloat16",
                         [](double v) { return rounded(DType::bf16, v); }, 0x1p-8, true};
const NarrowType bf16_cut = {"bfloat16 cut", "cut off to bfloat16",
                             [](double v) { return bits_kept(v, 8, true); }, 0x1p-8};
const NarrowType f16 = {"float16", "rounded", [](double v) { return rounded(DType::f16, v); },
                        0x1p-11};

using Spoil = std::function<void(Draft&, Values&)>;

Spoil by(double factor) {
  return [=](Draft& d, Values& dw) { dw = scaled(d.pb, dw, factor); };
}
void by_images(Draft& d, Values& dw) { by(1.0 / static_cast<double>(d.pb.N))(d, dw); }
void flip_both(Draft& d, Values& dw) { dw = flip(d.pb, dw, true, true); }
void to_oihw(Draft& d, Values& dw) { dw = order(d.pb, dw, {4, 3, 0, 1, 2}); }
void zero_tap(Draft& d, Values& dw) {
  if (d.pb.taps() < 2) return d.skip();
  std::fill_n(dw.begin(), d.pb.group_c() * d.pb.K, 0.0);
}
void to_bf16(Draft& d, Values& dw) {
  if (unit_roundoff(d.pb.out_dtype) >= bf16.u) return d.skip();
  std::ranges::transform(dw, dw.begin(), bf16.round);
}

// What is summed otherwise, if anything, and what becomes of the sums.
void add_pair(Kinds& kinds, const std::string& name, const Names& faults, const Make& first,
              const std::vector<Spoil>& then) {
  kinds.add(name, faults, [=](Draft& d) {
    if (first) first(d);
    if (!d.fits) return;
    d.values = d.gradient();
    for (const Spoil& spoil : then) spoil(d, d.values);
  });
}

}  // namespace

void add_precision(Kinds& kinds) {
  for (const NarrowType& type : {tf32, tf32_cut, bf16, bf16_cut, f16}) {
    for (const int which : {3, 1, 2}) {
      if (which < 3 && !type.alone) continue;
      constexpr const char* kWhich[] = {"", ", x alone", ", dy alone", ""};
      kinds.add(cat("inputs ", type.name, kWhich[which]), {"input_precision"}, [=](Draft& d) {
        if (type.u <= unit_roundoff(d.pb.dtype)) return d.skip();
        if ((which & 1) != 0) d.wrong.x = type.round;
        if ((which & 2) != 0) d.wrong.dy = type.round;
        d.words = type.words;
      });
    }
    kinds.add_part(cat("result ", type.name), {"result_precision"}, [=](Draft& d, Values& dw) {
      if (type.u <= unit_roundoff(d.pb.out_dtype)) return d.skip();
      std::ranges::transform(dw, dw.begin(), type.round);
      d.words = type.words;
    });
  }
  for (const NarrowType& type : {bf16, f16}) {
    for (const int how : {0, 1, 2}) {
      constexpr const char* kHow[] = {"split-K partials ", "partials of images ",
                                      "split-K atomics "};
      kinds.add(cat(kHow[how], type.name), {"low_precision_sums", "result_precision"},
                [=](Draft& d) {
                  const std::int64_t L = term_count(d.pb);
                  const std::int64_t parts =
                      how == 1 ? d.pb.N : std::min<std::int64_t>(L / 4, 2 + draw(d.random, 60));
                  if (parts < 2) return d.skip();
                  d.end_parts_every((L + parts - 1) / parts);
                  d.wrong.part = type.round;
                  if (how == 2) d.wrong.add = [](double a, double b) { return a + b; };
                });
    }
    kinds.add(
        cat("blocks of a matrix product, ", type.name), {"low_precision_sums"}, [=](Draft& d) {
          const std::int64_t L = term_count(d.pb), count = 2 + draw(d.random, 6);
          if (d.pb.dtype != d.pb.out_dtype || type.u != unit_roundoff(d.pb.dtype) || L < 100) {
            return d.skip();
          }
          d.end_parts_every((L + 8 * count) / (8 * count) * 8);
          d.wrong.product = d.wrong.total = type.round;
          d.wrong.add = [=](double sum, double more) { return type.round(sum + more); };
          d.words = "in blocks of";
        });
    for (const bool backwards : {false, true}) {
      // In another order they cannot be repeated, and nothing else explains them.
      kinds.add(cat("accumulator ", type.name, backwards ? ", backwards" : ""),
                backwards ? Names{} : Names{"low_precision_sums"}, [=](Draft& d) {
                  // Sums of more digits than the data have are taken for right.
                  if (backwards && type.u < unit_roundoff(d.pb.dtype)) return d.skip();
                  d.wrong.backwards = backwards;
                  d.wrong.ends = {-1};
                  d.wrong.product = type.round;
                  d.wrong.add = [=](double sum, double more) { return type.round(sum + more); };
                });
    }
  }
}

void add_special_values(Kinds& kinds) {
  kinds.add("subnormal inputs flushed", {"subnormals_flushed", "zero"}, [](Draft& d) {
    const DType dtype = d.pb.dtype;
    const double least = smallest_normal(dtype);
    for (double& v : d.c.x) v = rounded(dtype, draw(d.random, 2) == 0 ? v * least : v * least * 16);
    for (double& v : d.c.dy) v = rounded(dtype, v / 256);
    if (dtype != DType::f16) {
      for (double& v : d.c.dy) v = rounded(dtype, v * 0x1p20);
    }
    d.wrong.x = d.wrong.dy = [=](double v) { return std::fabs(v) < least ? 0.0 : v; };
  });
  kinds.add("subnormal products flushed", {"subnormals_flushed", "zero"}, [](Draft& d) {
    if (d.pb.dtype == DType::f16) return d.skip();
    const double least = smallest_normal(accumulator_dtype(d.pb.dtype)), root = std::sqrt(least);
    for (double& v : d.c.x) v = rounded(d.pb.dtype, v * root);
    for (double& v : d.c.dy) v = rounded(d.pb.dtype, v * root);
    d.wrong.product = [=](double v) { return std::fabs(v) < least ? 0.0 : v; };
  });
  kinds.add("0 * Inf in the padding", {"padding_multiplied", "nan"}, [](Draft& d) {
    for (int i = 0; i < 3; ++i) at(d.c.dy, draw(d.random, d.pb.K)) = HUGE_VAL;
    d.wrong.outside = [](std::int64_t, std::int64_t) { return -2; };
  });
}

void add_pairs(Kinds& kinds) {
  const auto bf16_inputs = [](Draft& d) {
    if (unit_roundoff(d.pb.dtype) >= bf16.u) return d.skip();
    d.wrong.x = d.wrong.dy = bf16.round;
  };
  add_pair(kinds, "scale 1/N", {"scale_factor"}, nullptr, {by_images});
  add_pair(kinds, "scale 0.37", {"scale_factor"}, nullptr, {by(0.37)});
  add_pair(kinds, "flipped and scaled", {"filter_flipped+scale_factor", "scale_factor"}, nullptr,
           {flip_both, by(0.5)});
  add_pair(kinds, "OIHW and scaled", {"filter_order+scale_factor", "scale_factor"}, nullptr,
           {to_oihw, by(3)});
  add_pair(
      kinds, "dilations ignored and scaled",
      {"dilations_ignored+scale_factor", "scale_factor", "stride_dilation_swapped+scale_factor"},
      [](Draft& d) {
        for (SpatialAxis& a : d.wrong.axis) a.dilation = 1;
      },
      {by(0.25)});
  add_pair(kinds, "bfloat16 inputs and a tap 0", {"input_precision+zero"}, bf16_inputs, {zero_tap});
  add_pair(kinds, "bfloat16 inputs and flipped",
           {"filter_flipped+input_precision", "input_precision"}, bf16_inputs, {flip_both});
  add_pair(kinds, "bfloat16 result and flipped",
           {"filter_flipped+result_precision", "result_precision"}, nullptr, {flip_both, to_bf16});
  add_pair(kinds, "OIHW and bfloat16 inputs", {"filter_order+input_precision", "input_precision"},
           bf16_inputs, {to_oihw});
  add_pair(kinds, "flipped and a tap 0", {"filter_flipped+zero", "zero"}, nullptr,
           {flip_both, zero_tap});
  add_pair(kinds, "x in the other layout and scaled", {"tensor_layout+scale_factor"},
           [](Draft& d) { d.seen().x = other_format(d.pb, d.c.x, d.pb.C); }, {by(2)});
  add_pair(kinds, "padding one more and bfloat16 result",
           {"padding_off_by_one+result_precision", "padding_swapped+result_precision",
            "result_precision"},
           [](Draft& d) {
             for (std::size_t a = d.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a) {
               ++d.wrong.axis[a].pad_before;
             }
           },
           {to_bf16});
  kinds.add_part("a channel scaled", {"scale_factor"}, [](Draft& d, Values& dw) {
    if (d.pb.K < 3) return d.skip();
    for (std::int64_t i = 1; i < std::ssize(dw); i += d.pb.K) at(dw, i) *= 1.75;
    dw = rounded_all(d.pb, dw);
    const bool one = d.pb.op == Op::depthwise || d.pb.taps() * d.pb.group_c() == 1;
    d.words = one ? "" : "output channel k 1";
  });
}

void add_rarer(Kinds& kinds) {
  kinds.add_part("TF32 inputs in a tap", {"input_precision"}, [](Draft& d, Values& dw) {
    if (d.pb.taps() < 2 || d.pb.dw_count() < 64 || unit_roundoff(d.pb.dtype) >= tf32.u) {
      return d.skip();
    }
    Wrong low = right(d.c);
    low.x = low.dy = tf32.round;
    std::copy_n(gradient(d.c, low).begin(), d.pb.group_c() * d.pb.K, dw.begin());
    d.words = "alone";
  });
  kinds.add_part("remainder channels stale", {"copied", "channel_order"}, [](Draft& d, Values& dw) {
    const std::int64_t K = d.pb.K;
    if (d.pb.op == Op::depthwise || d.pb.groups > 1 || K % 16 < 1 || K < 17) {
      return d.skip();
    }
    for (std::int64_t i = 0; i < std::ssize(dw); ++i) {
      if (i % K >= K / 16 * 16) at(dw, i) = at(dw, i - 16);
    }
  });
  kinds.add_part("two taps exchanged", {"tap_order", "filter_flipped", "filter_order"},
                 [](Draft& d, Values& dw) {
                   if (d.pb.taps() < 2) return d.skip();
                   const std::int64_t cells = d.pb.group_c() * d.pb.K;
                   std::swap_ranges(dw.begin(), dw.begin() + cells, dw.begin() + cells);
                 });
  kinds.add_part("every second k 0", {"zero"}, [](Draft& d, Values& dw) {
    const std::int64_t K = d.pb.K;
    if (d.pb.op == Op::depthwise || K < 6) return d.skip();
    fill(dw, 0, [=](std::int64_t i) { return i % K % 2 == 1; });
    d.words = "k % 2 == 1";
  });
  kinds.add_part("groups interleaved", {"group_order", "filter_order", "channel_order"},
                 [](Draft& d, Values& dw) {
                   const std::int64_t G = d.pb.groups, Kg = d.pb.group_k();
                   dw = moved(d.pb, dw,
                              [&](std::int64_t(&at)[5]) { at[4] = at[4] % Kg * G + at[4] / Kg; });
                 });
  kinds.add_outside("circular padding",
                    [](std::int64_t i, std::int64_t in) { return (i % in + in) % in; });
  kinds.add("dilations ignored, SAME follows", {"dilations_ignored", "stride_dilation_swapped"},
            [](Draft& d) {
              for (SpatialAxis& a : d.wrong.axis) {
                a.dilation = 1;
                a.pad_before =
                    std::max<std::int64_t>((a.out - 1) * a.stride + a.taps - a.in, 0) / 2;
              }
            });
  kinds.add_pixels(
      "the last half left out", {"missing_pixels", "missing_image", "line_left_out"},
      [](const WgradProblem& pb, Random&) {
        return Range{term_count(pb) / 2, term_count(pb)};
      },
      0, false);
}

void add_unknown(Kinds& kinds) {
  // How far elements are moved, of the root of their mean square.
  const auto add_unknown = [&](const std::string& name,
                               const std::function<void(Draft&, Values&, double)>& spoil) {
    kinds.add("unknown: " + name, {}, [=](Draft& d) {
      d.values = d.gradient();
      double squares = 0;
      for (const double v : d.values) squares += v * v;
      spoil(d, d.values, std::sqrt(squares / static_cast<double>(d.values.size())));
      d.values = rounded_all(d.pb, d.values);
    });
  };
  for (const double part : {1.0, 0.1, 1e-3, 1e-5}) {
    add_unknown(cat("noise of ", part), [=](Draft& d, Values& dw, double rms) {
      for (double& v : dw) v += part * rms * normal(d.random);
    });
  }
  add_unknown("noise in a tenth of all", [](Draft& d, Values& dw, double rms) {
    for (double& v : dw) v += draw(d.random, 10) == 0 ? rms * normal(d.random) : 0;
  });
  add_unknown("noise in a tap", [](Draft& d, Values& dw, double rms) {
    for (std::int64_t i = 0; i < d.pb.group_c() * d.pb.K; ++i) at(dw, i) += rms * normal(d.random);
  });
  add_unknown("one element", [](Draft& d, Values& dw, double rms) {
    const double error = rms * normal(d.random);
    at(dw, draw(d.random, std::ssize(dw))) += error;
  });
  add_unknown("factors of their own", [](Draft& d, Values& dw, double) {
    for (double& v : dw) v *= 1 + 0.1 * normal(d.random);
  });
  for (const bool twice : {true, false}) {
    add_unknown(twice ? "rounded to float16 and bfloat16" : "small errors before bfloat16",
                [=](Draft& d, Values& dw, double) {
                  bool slips = false;
                  for (double& v : dw) {
                    const double once = rounded(DType::bf16, v), off = 1 + 1e-3 * normal(d.random);
                    v = rounded(DType::bf16, twice ? rounded(DType::f16, v) : v * off);
                    slips = slips || v != once;
                  }
                  if (!slips || unit_roundoff(d.pb.out_dtype) > 0x1p-20) d.skip();
                });
  }
  add_unknown("another order of all", [](Draft& d, Values& dw, double) {
    if (d.pb.taps() < 2 || d.pb.group_c() < 2) return;  // that might be one of the channels
    for (std::int64_t i = std::ssize(dw); i > 1; --i) {
      std::swap(at(dw, i - 1), at(dw, draw(d.random, i)));
    }
  });
}

}  // namespace convgrad::testing
