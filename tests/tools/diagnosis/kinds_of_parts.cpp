// kinds_of_parts.cpp - see fault_kinds.hpp: what splits, tiles, lanes and stages of a kernel do,
// and one channel or tap that is not as the others.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

using I = std::int64_t;

// The sum of gradients of parts of the pixels, rounded once.
Values sum_of(const Case& c, const std::vector<Wrong>& parts) {
  Case wide = c;
  wide.pb.out_dtype = DType::f64;
  Values dw(static_cast<std::size_t>(c.pb.dw_count()), 0.0);
  for (const Wrong& part : parts) {
    const Values values = gradient(wide, part);
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += values[i];
  }
  return rounded_all(c.pb, dw);
}

// The part, of count as even as numpy's array_split makes them, that an index below extent is in.
I part_of(I extent, I count, I at) {
  for (I part = 0, begin = 0;; ++part) {
    begin += extent / count + (part < extent % count ? 1 : 0);
    if (at < begin) return part;
  }
}

double narrow(DType type, double v) {
  return type == DType::f32 ? bits_kept(v, 11, false) : rounded(type, v);  // TF32
}

// Pixels that count twice or not at all: those for which choose(problem, random) holds.
using Inside = std::function<bool(I)>;
void add_weights(Kinds& kinds, const std::string& name, const Names& more,
                 const std::function<Inside(const WgradProblem&, Random&)>& choose) {
  for (const bool twice : {false, true}) {
    Names names = {twice ? "doubled_pixels" : "missing_pixels"};
    if (!twice) names.insert(names.end(), more.begin(), more.end());
    kinds.add(name + (twice ? " twice" : " left out"), names,
              [=](Case& c, Random& random, std::string&) {
                const auto inside = choose(c.pb, random);
                if (!inside) return Values();
                Wrong wrong = right(c);
                wrong.weight = [=](I at) { return !inside(at) ? 1.0 : twice ? 2.0 : 0.0; };
                return gradient(c, wrong);
              });
  }
}

void add_lines(Kinds& kinds) {
  for (const bool of_rows : {true, false}) {
    const auto lines = [=](const WgradProblem& pb, Random& random, bool half) -> Inside {
      const I Q = pb.axis[2].out, extent = pb.axis[of_rows ? 1 : 2].out;
      if (extent < 4) return nullptr;
      const I first = half ? extent / 2 : 1 + draw(random, extent - 2);
      const I last = half ? extent : first + 1 + draw(random, extent - first);
      return [=](I at) {
        const I line = (of_rows ? at / Q : at) % extent;
        return line >= first && line < last;
      };
    };
    add_weights(kinds, of_rows ? "some rows of every image" : "some columns of every image",
                {"line_left_out"},
                [=](const WgradProblem& pb, Random& random) { return lines(pb, random, false); });
    add_weights(kinds, of_rows ? "the lower half" : "the right half", {"line_left_out"},
                [=](const WgradProblem& pb, Random& random) { return lines(pb, random, true); });
  }
}

void add_places(Kinds& kinds) {
  add_weights(kinds, "a corner pixel of every image", {},
              [](const WgradProblem& pb, Random& random) -> Inside {
                const I pixels = pb.out_pixels(), corner = draw(random, 2) * (pixels - 1);
                if (pb.axis[1].out < 2 || pb.axis[2].out < 2) return nullptr;
                return [=](I at) { return at % pixels == corner; };
              });
  for (const bool all : {true, false}) {
    add_weights(kinds, all ? "a 4x4 tile of every image" : "a 4x4 tile of an image", {},
                [=](const WgradProblem& pb, Random& random) -> Inside {
                  const I P = pb.axis[1].out, Q = pb.axis[2].out, n = draw(random, pb.N);
                  if (P < 8 || Q < 8 || pb.op == Op::conv3d) return nullptr;
                  const I p = draw(random, P / 4), q = draw(random, Q / 4);
                  return [=](I at) {
                    return at / Q % P / 4 == p && at % Q / 4 == q && (all || at / (P * Q) == n);
                  };
                });
  }
  add_weights(kinds, "a lane", {}, [](const WgradProblem& pb, Random& random) -> Inside {
    const I lanes = I{4} << draw(random, 4), lane = draw(random, lanes);
    if (term_count(pb) < 4 * lanes) return nullptr;
    return [=](I at) { return at % lanes == lane; };
  });
}

void add_stages(Kinds& kinds) {
  for (const bool exchanged : {false, true}) {
    kinds.add(exchanged ? "stages of dy exchanged" : "a stage of dy is stale", {"stale_pixels"},
              [=](Case& c, Random& random, std::string&) {
                const I stage = I{8} << draw(random, 3), stages = term_count(c.pb) / stage;
                if (stages < 3) return Values();
                const I at = draw(random, stages / 2) * 2;
                Case other = c;
                for (I i = at * stage * c.pb.K; i < (at + 1) * stage * c.pb.K; ++i) {
                  const auto next = static_cast<std::size_t>(i + stage * c.pb.K);
                  other.dy[next] = c.dy[static_cast<std::size_t>(i)];
                  if (exchanged) other.dy[static_cast<std::size_t>(i)] = c.dy[next];
                }
                return gradient(other, right(c));
              });
  }
}

void add_halo(Kinds& kinds, const std::string& name, I parts, I tile,
              const std::vector<int>& axes) {
  kinds.add(name, {"halo_missing"}, [=](Case& c, Random&, std::string&) {
    for (const int axis : axes) {
      const SpatialAxis& a = c.pb.axis[static_cast<std::size_t>(axis)];
      if (tile > 0 && (a.out % tile != 0 || a.in != a.out || a.out < 2 * tile)) return Values();
      if (parts > std::min(a.in, a.out)) return Values();
    }
    Wrong wrong = right(c);
    wrong.sees = [=, axis = c.pb.axis](std::size_t a, I o, I i) {
      if (std::count(axes.begin(), axes.end(), static_cast<int>(a)) == 0) return true;
      const I in = axis[a].in, out = axis[a].out, count = tile > 0 ? out / tile : parts;
      return part_of(in, count, i) == part_of(out, count, o);
    };
    return gradient(c, wrong);
  });
}

}  // namespace

void add_splits(Kinds& kinds) {
  for (const DType type : {DType::f16, DType::bf16}) {
    for (const I block : {1, 64, 32}) {
      for (const bool total : {false, true}) {
        kinds.add(cat(block == 1 ? "even splits" : cat("splits of blocks of ", block),
                      total ? ", total " : " ", dtype_name(type)),
                  {"low_precision_sums"}, [=](Case& c, Random& random, std::string&) {
                    if (unit_roundoff(c.pb.out_dtype) > unit_roundoff(type)) return Values();
                    const I L = term_count(c.pb), blocks = (L + block - 1) / block;
                    const I parts = 2 + draw(random, 30);
                    if (2 * parts > blocks) return Values();
                    Wrong wrong = right(c);
                    for (I at = 0; at < L; ++at) {
                      const bool begins = at % block == 0 && at > 0;
                      if (begins && part_of(blocks, parts, at / block) !=
                                        part_of(blocks, parts, at / block - 1)) {
                        wrong.ends.insert(at);
                      }
                    }
                    (total ? wrong.total : wrong.part) = [=](double v) { return rounded(type, v); };
                    return gradient(c, wrong);
                  });
      }
    }
    kinds.add(cat("products in pairs, ", dtype_name(type)), {"low_precision_sums"},
              [=](Case& c, Random&, std::string& words) {
                if (unit_roundoff(c.pb.out_dtype) > unit_roundoff(type)) return Values();
                Wrong wrong = right(c);
                for (I at = 0; at < term_count(c.pb); at += 2) wrong.ends.insert(at);
                wrong.product = [=](double v) { return rounded(type, v); };
                wrong.add = [=](double a, double b) { return rounded(type, a + b); };
                words = "2 pixels at a time";
                return gradient(c, wrong);
              });
    kinds.add(cat("autocast to ", dtype_name(type)),
              {"input_precision+result_precision", "result_precision"},
              [=](Case& c, Random&, std::string&) {
                if (unit_roundoff(c.pb.dtype) >= unit_roundoff(type) ||
                    unit_roundoff(c.pb.out_dtype) >= unit_roundoff(type)) {
                  return Values();
                }
                Wrong wrong = right(c);
                wrong.x = wrong.dy = [=](double v) { return rounded(type, v); };
                Values dw = gradient(c, wrong);
                for (double& v : dw) v = rounded(type, v);
                return dw;
              });
  }
  // f32 stands for TF32 here.
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const bool of_x : {true, false}) {
      for (const int where : {0, 1, 2}) {
        kinds.add(cat(of_x ? "x" : "dy", " alone ", type == DType::f32 ? "tf32" : dtype_name(type),
                      where == 0   ? " in an image"
                      : where == 1 ? " in half of the images"
                                   : " in the last split"),
                  {"input_precision"}, [=](Case& c, Random& random, std::string& words) {
                    const double u = type == DType::f32 ? 0x1p-11 : unit_roundoff(type);
                    const I N = c.pb.N, L = term_count(c.pb);
                    if (unit_roundoff(c.pb.dtype) >= u || N < 2) return Values();
                    const I image = draw(random, N), pixels = c.pb.out_pixels();
                    const I begin = where == 0   ? image * pixels
                                    : where == 1 ? N / 2 * pixels
                                                 : L - L / (2 + draw(random, 6));
                    const I end = where == 0 ? begin + pixels : L;
                    Wrong plain = right(c), low = right(c);
                    plain.weight = [=](I at) { return at >= begin && at < end ? 0.0 : 1.0; };
                    low.weight = [=](I at) { return at >= begin && at < end ? 1.0 : 0.0; };
                    (of_x ? low.x : low.dy) = [=](double v) { return narrow(type, v); };
                    words = of_x ? "x alone" : "dy alone";
                    return sum_of(c, {plain, low});
                  });
      }
    }
  }
}

void add_kernels(Kinds& kinds) {
  add_lines(kinds);
  add_places(kinds);
  add_stages(kinds);
  for (const I parts : {2, 4}) {
    add_halo(kinds, cat("no halo, ", parts, " slabs of h"), parts, 0, {1});
    add_halo(kinds, cat("no halo, ", parts, " slabs of w"), parts, 0, {2});
  }
  add_halo(kinds, "no halo, tiles of 4x4", 0, 4, {1, 2});
}

void add_scales(Kinds& kinds) {
  enum class By : std::uint8_t { channel, image, channels, pixels };
  const auto e4m3 = [](double v) {
    if (v == 0) return 0.0;
    const int unit = std::max(std::ilogb(v), -6) - 3;
    return std::clamp(std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit), -448.0, 448.0);
  };
  const auto scaled = [=](const WgradProblem& pb, Values& values, I channels, By by, bool whole) {
    const I size = std::ssize(values) / pb.N, image = size / channels;
    std::vector<I> group;
    for (I i = 0; i < std::ssize(values); ++i) {
      const I n = i / size, pixel = i / channels, ch = i % channels;
      group.push_back(by == By::channel    ? ch
                      : by == By::image    ? n
                      : by == By::channels ? pixel * channels + ch / 32
                                           : (pixel / 32 * channels + ch) + image * 0);
    }
    Values most(values.size() + static_cast<std::size_t>(channels), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double& m = most[static_cast<std::size_t>(group[i])];
      m = std::max(m, std::fabs(values[i]));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double m = most[static_cast<std::size_t>(group[i])];
      if (m == 0) continue;
      const bool power = by == By::channels || by == By::pixels;
      const double s = power ? std::ldexp(1.0, std::ilogb(m) - 8) : m / (whole ? 127 : 448);
      values[i] = (whole ? std::nearbyint(values[i] / s) : e4m3(values[i] / s)) * s;
    }
  };
  for (const By by : {By::channel, By::image, By::channels, By::pixels}) {
    for (const bool whole : {true, false}) {
      if (whole && (by == By::channels || by == By::pixels)) continue;
      for (const int which : {3, 1, 2}) {
        kinds.add(cat(whole ? "int8" : "e4m3",
                      by == By::channel    ? " by channels"
                      : by == By::image    ? " by images"
                      : by == By::channels ? ", MX of 32 channels"
                                           : ", MX of 32 pixels",
                      which == 1   ? ", x alone"
                      : which == 2 ? ", dy alone"
                                   : ""),
                  {"input_precision"}, [=](Case& c, Random&, std::string& words) {
                    const I x_pixels = c.pb.x_count() / c.pb.C / c.pb.N;
                    if (by == By::pixels && (x_pixels % 32 != 0 || c.pb.out_pixels() % 32 != 0)) {
                      return Values();
                    }
                    if ((by == By::image || by == By::pixels) && c.pb.N < 2) return Values();
                    Case other = c;
                    if (which != 2) scaled(c.pb, other.x, c.pb.C, by, whole);
                    if (which != 1) scaled(c.pb, other.dy, c.pb.K, by, whole);
                    if (c.pb.C < 2 || c.pb.K < 2) return Values();
                    other.pb.dtype = DType::f64;  // what was scaled is of no type
                    other.pb.out_dtype = DType::f64;
                    words = "scale";
                    return rounded_all(c.pb, gradient(other, right(other)));
                  });
      }
    }
  }
}

void add_blocks(Kinds& kinds) {
  for (const I block : {4, 8, 16}) {
    for (const bool of_x : {true, false}) {
      kinds.add(
          cat(of_x ? "x" : "dy", " is nChw", block, "c"), {"tensor_layout"},
          [=](Case& c, Random&, std::string& words) {
            const I channels = of_x ? c.pb.C : c.pb.K;
            if (channels % block != 0 || channels == block || !c.pb.channels_last) {
              return Values();
            }
            Case other = c;
            const Values& from = of_x ? c.x : c.dy;
            const I pixels = std::ssize(from) / c.pb.N / channels;
            std::size_t to = 0;
            for (I n = 0; n < c.pb.N; ++n) {
              for (I b = 0; b < channels / block; ++b) {
                for (I p = 0; p < pixels; ++p) {
                  for (I i = 0; i < block; ++i) {
                    (of_x ? other.x : other.dy)[to++] =
                        from[static_cast<std::size_t>((n * pixels + p) * channels + b * block + i)];
                  }
                }
              }
            }
            words = cat(block, "c");
            return gradient(other, right(c));
          });
    }
    for (const bool k_inside : {true, false}) {
      kinds.add(cat("gradient in blocks of ", block, k_inside ? ", o inside" : ", i inside"),
                {"filter_order", "channel_order"}, [=](Case& c, Random&, std::string&) {
                  const I C = c.pb.group_c(), K = c.pb.K, taps = c.pb.taps();
                  if (C % block != 0 || K % block != 0 ||
                      c.pb.filter_format == FilterFormat::ohwi || c.pb.op != Op::conv2d) {
                    return Values();
                  }
                  // The file in its own order, filled with the elements in blocks.
                  const Values dw = gradient(c, right(c));
                  Values blocked, result(dw.size());
                  for (I o = 0; o < K / block; ++o)
                    for (I i = 0; i < C / block; ++i)
                      for (I t = 0; t < taps; ++t)
                        for (I a = 0; a < block; ++a)
                          for (I b = 0; b < block; ++b) {
                            const I ch = i * block + (k_inside ? a : b);
                            const I k = o * block + (k_inside ? b : a);
                            blocked.push_back(dw[static_cast<std::size_t>((t * C + ch) * K + k)]);
                          }
                  for (I at = 0; at < std::ssize(dw); ++at) {
                    const I t = at / K / C, ch = at / K % C, k = at % K;
                    const I file =
                        c.pb.filter_format == FilterFormat::oihw ? (k * C + ch) * taps + t : at;
                    result[static_cast<std::size_t>(at)] = blocked[static_cast<std::size_t>(file)];
                  }
                  return result;
                });
    }
  }
  for (const int which : {3, 1, 2}) {
    kinds.add(cat(which == 3   ? "x and dy are"
                  : which == 1 ? "x is"
                               : "dy is",
                  " CHWN"),
              {"tensor_layout"}, [=](Case& c, Random&, std::string&) {
                if (!c.pb.channels_last || c.pb.N < 2) return Values();
                Case other = c;
                const auto turn = [&](Values& values, I channels) {
                  const Values from = values;
                  const I rest = std::ssize(values) / channels / c.pb.N;
                  for (I i = 0; i < std::ssize(values); ++i) {
                    const I n = i % c.pb.N, p = i / c.pb.N % rest, ch = i / c.pb.N / rest;
                    values[static_cast<std::size_t>(i)] =
                        from[static_cast<std::size_t>((n * rest + p) * channels + ch)];
                  }
                };
                if (which != 2) turn(other.x, c.pb.C);
                if (which != 1) turn(other.dy, c.pb.K);
                return gradient(other, right(c));
              });
  }
}

void add_single(Kinds& kinds) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const int where : {0, 1, 2}) {
      kinds.add_part(cat("result ", dtype_name(type),
                         where == 0   ? " in a channel of k"
                         : where == 1 ? " in a channel of c"
                                      : " in a tap"),
                     {"result_precision"},
                     [=](const WgradProblem& pb, Values& dw, std::string& words) {
                       // An eighth of the numbers of float16 are of bfloat16 anyway.
                       if (unit_roundoff(pb.out_dtype) > 0x1p-20) return;
                       if (pb.op == Op::depthwise || pb.taps() < 2) return;
                       if (pb.K < 3 || pb.group_c() < 2) return;
                       const I C = pb.group_c(), K = pb.K;
                       for (I i = 0; i < std::ssize(dw); ++i) {
                         const I at = where == 0 ? i % K : where == 1 ? i / K % C : i / (K * C);
                         double& v = dw[static_cast<std::size_t>(i)];
                         if (at == 1) v = rounded(type, v);
                       }
                       words = "alone";
                     });
    }
  }
  for (const bool of_k : {true, false}) {
    kinds.add_part(cat("taps exchanged in a channel of ", of_k ? "k" : "c"), {"tap_order"},
                   [=](const WgradProblem& pb, Values& dw, std::string& words) {
                     const I C = pb.group_c(), K = pb.K;
                     if (pb.op == Op::depthwise || pb.taps() < 4 || K < 3 || C < 3) return;
                     for (I i = 0; i < C * K; ++i) {
                       if ((of_k ? i % K : i / K) != 1) continue;
                       std::swap(dw[static_cast<std::size_t>(i)],
                                 dw[static_cast<std::size_t>(i + C * K)]);
                     }
                     words = "alone";
                   });
  }
}

}  // namespace convgrad::testing
