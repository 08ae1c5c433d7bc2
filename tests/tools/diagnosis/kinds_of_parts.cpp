// kinds_of_parts.cpp - see fault_kinds.hpp: what splits, tiles, lanes and stages of a kernel do,
// and one channel or tap that is not as the others.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {
namespace {

using I = std::int64_t;

// Which tensors a fault is of.
struct Which {
  bool x, dy;
  const char* words;
};
constexpr Which kWhich[] = {
    {true, true, ""}, {true, false, ", x alone"}, {false, true, ", dy alone"}};

// The part, of count as even as numpy's array_split makes them, that an index below extent is in.
I part_of(I extent, I count, I at) {
  for (I part = 0, begin = 0;; ++part) {
    begin += extent / count + (part < extent % count ? 1 : 0);
    if (at < begin) return part;
  }
}

// Pixels that count twice or not at all: those for which choose(problem, random) holds.
using Inside = std::function<bool(I)>;
void add_weights(Kinds& kinds, const std::string& name, const Names& more,
                 const std::function<Inside(const WgradProblem&, Random&)>& choose) {
  for (const bool twice : {false, true}) {
    Names names = {twice ? "doubled_pixels" : "missing_pixels"};
    if (!twice) names.insert(names.end(), more.begin(), more.end());
    kinds.add(name + (twice ? " twice" : " left out"), names, [=](Draft& d) {
      const auto inside = choose(d.pb, d.random);
      if (!inside) return d.skip();
      d.wrong.weight = [=](I at) { return !inside(at) ? 1.0 : twice ? 2.0 : 0.0; };
      d.words = twice ? "counted twice" : "left out";
    });
  }
}

void add_lines(Kinds& kinds) {
  for (const bool of_rows : {true, false}) {
    for (const bool half : {false, true}) {
      const char* const name = half      ? of_rows ? "the lower half" : "the right half"
                               : of_rows ? "some rows of every image"
                                         : "some columns of every image";
      add_weights(kinds, name, {"line_left_out"},
                  [=](const WgradProblem& pb, Random& random) -> Inside {
                    const I Q = pb.axis[2].out, extent = pb.axis[of_rows ? 1 : 2].out;
                    if (extent < 4) return nullptr;
                    const I first = half ? extent / 2 : 1 + draw(random, extent - 2);
                    const I last = half ? extent : first + 1 + draw(random, extent - first);
                    return [=](I at) {
                      const I line = (of_rows ? at / Q : at) % extent;
                      return line >= first && line < last;
                    };
                  });
    }
  }
}

void add_places(Kinds& kinds) {
  add_weights(kinds, "a corner pixel of every image", {},
              [](const WgradProblem& pb, Random& random) -> Inside {
                const I pixels = pb.out_pixels(), corner = draw(random, 2) * (pixels - 1);
                if (pb.axis[1].out < 2 || pb.axis[2].out < 2) return nullptr;
                return [=](I at) { return at % pixels == corner; };
              });
  for (const I width : {1, 2}) {
    add_weights(kinds, cat("a border of ", width), {},
                [=](const WgradProblem& pb, Random&) -> Inside {
                  const I P = pb.axis[1].out, Q = pb.axis[2].out;
                  if (P < 6 || Q < 6 || pb.op == Op::conv3d) return nullptr;
                  return [=](I at) {
                    const I p = at / Q % P, q = at % Q;
                    return std::min({p, P - 1 - p, q, Q - 1 - q}) < width;
                  };
                });
  }
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
              [=](Draft& d) {
                const I stage = I{8} << draw(d.random, 3), stages = term_count(d.pb) / stage;
                if (stages < 3) return d.skip();
                const I size = stage * d.pb.K, first = draw(d.random, stages / 2) * 2 * size;
                const auto from = d.c.dy.begin() + first, to = d.seen().dy.begin() + first;
                std::copy_n(from, size, to + size);
                if (exchanged) std::copy_n(from + size, size, to);
                d.words = exchanged ? "change places" : "is the one before it";
              });
  }
  kinds.add("a stage of x is stale", {"stale_pixels"}, [](Draft& d) {
    const I stage = I{8} << draw(d.random, 3), stages = term_count(d.pb) / stage;
    if (stages < 3 || d.pb.taps() > 1 || d.pb.x_count() * d.pb.K != d.pb.dy_count() * d.pb.C) {
      return d.skip();  // what a tap sees of x is a pixel of it
    }
    const I size = stage * d.pb.C, first = draw(d.random, stages - 1) * size;
    const auto from = d.c.x.begin() + first;
    std::copy_n(from, size, d.seen().x.begin() + first + size);
    d.words = "pixels of x is the one before it";
  });
}

enum class Halo : std::uint8_t { none, edge, not_before, not_behind };

void add_halo(Kinds& kinds, const std::string& name, I parts, I tile,
              const std::vector<std::size_t>& axes, Halo halo) {
  kinds.add(name, {"halo_missing"}, [=](Draft& d) {
    for (const std::size_t axis : axes) {
      const SpatialAxis& a = d.pb.axis[axis];
      if (tile > 0 && (a.in != a.out || a.out <= tile)) return d.skip();
      if (parts > std::min(a.in, a.out)) return d.skip();
    }
    d.wrong.sees = [=, axis = d.pb.axis](std::size_t a, I o, I i) {
      if (std::ranges::count(axes, a) == 0) return i;
      const auto part = [&](I extent, I at) {
        return tile > 0 ? at / tile : part_of(extent, parts, at);  // the last tile is smaller
      };
      const I own = part(axis[a].out, o), there = part(axis[a].in, i);
      if (there == own || (there < own && halo == Halo::not_behind)) return i;
      if (there > own && halo == Halo::not_before) return i;
      if (halo != Halo::edge) return I{-1};
      I nearest = i;
      while (part(axis[a].in, nearest) != own) nearest += there < own ? 1 : -1;
      return nearest;
    };
    if (halo == Halo::edge) d.words = "its own edge";
  });
}

// Whether rounding to the type on the way loses what the result could hold.
bool is_narrower(DType type, const Draft& d) {
  return unit_roundoff(d.pb.out_dtype) <= unit_roundoff(type);
}

void add_split_sums(Kinds& kinds, DType type) {
  for (const I block : {1, 64, 32}) {
    for (const bool total : {false, true}) {
      kinds.add(cat(block == 1 ? "even splits" : cat("splits of blocks of ", block),
                    total ? ", total " : " ", dtype_name(type)),
                {"low_precision_sums"}, [=](Draft& d) {
                  if (!is_narrower(type, d)) return d.skip();
                  const I L = term_count(d.pb), blocks = (L + block - 1) / block;
                  const I parts = 2 + draw(d.random, 30);
                  if (2 * parts > blocks) return d.skip();
                  for (I i = 1; i < blocks; ++i) {
                    if (part_of(blocks, parts, i) != part_of(blocks, parts, i - 1)) {
                      d.wrong.ends.insert(i * block);
                    }
                  }
                  (total ? d.wrong.total : d.wrong.part) = [=](double v) {
                    return rounded(type, v);
                  };
                });
    }
  }
  kinds.add(cat("products in pairs, ", dtype_name(type)), {"low_precision_sums"}, [=](Draft& d) {
    if (!is_narrower(type, d) || d.pb.axis[2].out == 2) return d.skip();  // which are rows
    d.end_parts_every(2);
    d.wrong.product = [=](double v) { return rounded(type, v); };
    d.wrong.add = [=](double a, double b) { return rounded(type, a + b); };
    d.words = "2 pixels at a time";
  });
  kinds.add(cat("autocast to ", dtype_name(type)),
            {"input_precision+result_precision", "result_precision"}, [=](Draft& d) {
              const double u = unit_roundoff(type);
              if (unit_roundoff(d.pb.dtype) >= u || unit_roundoff(d.pb.out_dtype) >= u) {
                return d.skip();
              }
              d.wrong.x = d.wrong.dy = [=](double v) { return rounded(type, v); };
              d.values = d.gradient();
              for (double& v : d.values) v = rounded(type, v);
            });
}

}  // namespace

void add_splits(Kinds& kinds) {
  for (const DType type : {DType::f16, DType::bf16}) add_split_sums(kinds, type);
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    const bool tf32 = type == DType::f32;  // which stands for it here
    const double u = tf32 ? 0x1p-11 : unit_roundoff(type);
    for (const bool of_x : {true, false}) {
      for (const int where : {0, 1, 2}) {
        constexpr const char* kWhere[] = {" in an image", " in half of the images",
                                          " in the last split"};
        kinds.add(
            cat(of_x ? "x" : "dy", " alone ", tf32 ? "tf32" : dtype_name(type), kWhere[where]),
            {"input_precision"}, [=](Draft& d) {
              const I N = d.pb.N, L = term_count(d.pb), pixels = d.pb.out_pixels();
              if (unit_roundoff(d.pb.dtype) >= u || N < 2) return d.skip();
              const I image = draw(d.random, N);
              const I begin = where == 0   ? image * pixels
                              : where == 1 ? N / 2 * pixels
                                           : L - L / (2 + draw(d.random, 6));
              const I end = where == 0 ? begin + pixels : L;
              Wrong plain = d.wrong, low = d.wrong;
              plain.weight = [=](I at) { return at >= begin && at < end ? 0.0 : 1.0; };
              low.weight = [=](I at) { return at >= begin && at < end ? 1.0 : 0.0; };
              (of_x ? low.x : low.dy) = [=](double v) {
                return tf32 ? bits_kept(v, 11, false) : rounded(type, v);
              };
              d.words = of_x ? "x alone" : "dy alone";
              d.values = sum_of(d.c, {plain, low});
            });
      }
    }
  }
}

void add_kernels(Kinds& kinds) {
  add_lines(kinds);
  add_places(kinds);
  add_stages(kinds);
  for (const I parts : {2, 3, 4}) {
    add_halo(kinds, cat("no halo, ", parts, " slabs of h"), parts, 0, {1}, Halo::none);
    add_halo(kinds, cat("no halo, ", parts, " slabs of w"), parts, 0, {2}, Halo::none);
  }
  add_halo(kinds, "no halo, tiles of 4x4", 0, 4, {1, 2}, Halo::none);
  add_halo(kinds, "tiles of 4x4 by their edges", 0, 4, {1, 2}, Halo::edge);
  add_halo(kinds, "2 slabs of h by their edges", 2, 0, {1}, Halo::edge);
  add_halo(kinds, "no halo before, slabs of h", 2, 0, {1}, Halo::not_before);
  add_halo(kinds, "no halo behind, slabs of w", 3, 0, {2}, Halo::not_behind);
}

void add_scales(Kinds& kinds) {
  enum class By : std::uint8_t { channel, image, channels, pixels };
  enum class Scale : std::uint8_t { number, power, e4m3 };
  struct Form {
    const char* name;
    By by;
    double whole;    // the largest whole number; 0: a float
    int slices = 0;  // so many bits, cut off
    I block = 1;     // channels or pixels
    Scale scale = Scale::number;
    int bits = 4, least = -6;  // of the float
    double most = 448;
  };
  const auto scale = [](const WgradProblem& pb, Values& values, I channels, const Form& form) {
    const I size = std::ssize(values) / pb.N;
    const auto group = [&](I i) {
      const I n = i / size, pixel = i / channels, ch = i % channels;
      return form.by == By::channel    ? ch
             : form.by == By::image    ? n
             : form.by == By::channels ? pixel * channels + ch / form.block
                                       : pixel / form.block * channels + ch;
    };
    Values most(values.size() + static_cast<std::size_t>(channels), 0.0);
    for (I i = 0; i < std::ssize(values); ++i) {
      at(most, group(i)) = std::max(at(most, group(i)), std::fabs(at(values, i)));
    }
    const double top = form.whole > 0 ? form.whole : form.most;
    const double all = largest(values) / top / 448;
    for (I i = 0; i < std::ssize(values); ++i) {
      const double m = at(most, group(i));
      if (m == 0) continue;
      const double s = form.slices > 0 ? std::exp2(std::ceil(std::log2(m)) - form.slices)
                       : form.scale == Scale::power
                           ? std::ldexp(1.0, std::ilogb(m) - std::ilogb(top))
                       : form.scale == Scale::number ? quotient(pb.dtype, m, top)
                                                     : small_float(m / top / all, 4, -6, 448) * all;
      const double v = s > 0 ? quotient(pb.dtype, at(values, i), s) : 0;
      at(values, i) = (form.slices > 0  ? std::trunc(v)
                       : form.whole > 0 ? std::clamp(std::nearbyint(v), -top, top)
                                        : small_float(v, form.bits, form.least, top)) *
                      s;
    }
  };
  for (const Form& form : {Form{"int8 by channels", By::channel, 127},
                           {"int16 by channels", By::channel, 32767},
                           {"e4m3 by channels", By::channel, 0},
                           {"slices of 7 bits", By::channel, 1, 35},
                           {"int8 by images", By::image, 127},
                           {"int4 by images", By::image, 7},
                           {"e4m3 by images", By::image, 0},
                           {"e4m3, MX of 32 channels", By::channels, 0, 0, 32, Scale::power},
                           {"e4m3, MX of 32 pixels", By::pixels, 0, 0, 32, Scale::power},
                           {"e4m3 by 16 channels", By::channels, 0, 0, 16},
                           {"int8 by 16 pixels", By::pixels, 127, 0, 16},
                           {"int4 by 32 channels", By::channels, 7, 0, 32, Scale::power},
                           {"e3m2 by 16 channels", By::channels, 0, 0, 16, Scale::power, 3, -2, 28},
                           {"NVFP4", By::channels, 0, 0, 16, Scale::e4m3, 2, 0, 6}}) {
    for (const Which& which : kWhich) {
      kinds.add(cat(form.name, which.words), {"input_precision"}, [=](Draft& d) {
        const I x_pixels = d.pb.x_count() / d.pb.C / d.pb.N, dy_pixels = d.pb.out_pixels();
        const bool pixels = form.by == By::pixels;
        if (pixels && (x_pixels % form.block != 0 || dy_pixels % form.block != 0)) return d.skip();
        if ((form.by == By::image || pixels) && d.pb.N < 2) return d.skip();
        if (d.pb.C < 2 || d.pb.K < 2) return d.skip();
        if (form.slices > 0 && d.pb.dtype != DType::f64) return d.skip();
        if (which.x) scale(d.pb, d.seen().x, d.pb.C, form);
        if (which.dy) scale(d.pb, d.seen().dy, d.pb.K, form);
        const auto same = [&](const Values& own, const Values& scaled) {
          return std::ranges::equal(own, scaled, {},
                                    [](double v) { return small_float(v, 4, -6, 448); });
        };
        // Powers of two may change nothing.
        if (form.whole == 0 && (!which.x || same(d.c.x, d.seen().x)) &&
            (!which.dy || same(d.c.dy, d.seen().dy))) {
          return d.skip();
        }
        d.seen().pb.dtype = DType::f64;  // what was scaled is of no type
        d.seen().pb.out_dtype = DType::f64;
        d.words = form.slices > 0 ? "35 bits" : "scale";
      });
    }
  }
}

void add_blocks(Kinds& kinds) {
  for (const I block : {4, 8, 16}) {
    for (const bool of_x : {true, false}) {
      kinds.add(cat(of_x ? "x" : "dy", " is nChw", block, "c"), {"tensor_layout"}, [=](Draft& d) {
        const I channels = of_x ? d.pb.C : d.pb.K;
        if (channels % block != 0 || channels == block || !d.pb.channels_last) return d.skip();
        const Values& from = of_x ? d.c.x : d.c.dy;
        const I pixels = std::ssize(from) / d.pb.N / channels;
        auto to = (of_x ? d.seen().x : d.seen().dy).begin();
        for (I n = 0; n < d.pb.N; ++n) {
          for (I first = 0; first < channels; first += block) {
            for (I p = 0; p < pixels; ++p) {
              to = std::copy_n(from.begin() + (n * pixels + p) * channels + first, block, to);
            }
          }
        }
        d.words = cat(block, "c");
      });
    }
    for (const bool k_inside : {true, false}) {
      kinds.add_part(cat("gradient in blocks of ", block, k_inside ? ", o inside" : ", i inside"),
                     {"filter_order", "channel_order"}, [=](Draft& d, Values& dw) {
                       const I C = d.pb.group_c(), K = d.pb.K, taps = d.pb.taps();
                       const bool oihw = d.pb.filter_format == FilterFormat::oihw;
                       if (C % block != 0 || K % block != 0 || d.pb.op != Op::conv2d ||
                           d.pb.filter_format == FilterFormat::ohwi) {
                         return d.skip();
                       }
                       // The file in its own order, filled with the elements in blocks.
                       Values blocked;
                       for (I o = 0; o < K / block; ++o)
                         for (I i = 0; i < C / block; ++i)
                           for (I t = 0; t < taps; ++t)
                             for (I a = 0; a < block; ++a)
                               for (I b = 0; b < block; ++b) {
                                 const I ch = i * block + (k_inside ? a : b);
                                 const I k = o * block + (k_inside ? b : a);
                                 blocked.push_back(at(dw, (t * C + ch) * K + k));
                               }
                       for (I i = 0; i < std::ssize(dw); ++i) {
                         const I t = i / K / C, ch = i / K % C, k = i % K;
                         at(dw, i) = at(blocked, oihw ? (k * C + ch) * taps + t : i);
                       }
                     });
    }
  }
  for (const Which& which : kWhich) {
    kinds.add(cat("CHWN", which.words), {"tensor_layout"}, [=](Draft& d) {
      if (!d.pb.channels_last || d.pb.N < 2) return d.skip();
      const auto turn = [&](Values& values, I channels) {
        const Values from = values;
        const I N = d.pb.N, rest = std::ssize(values) / channels / N;
        for (I i = 0; i < std::ssize(values); ++i) {
          at(values, i) = at(from, (i % N * rest + i / N % rest) * channels + i / N / rest);
        }
      };
      if (which.x) turn(d.seen().x, d.pb.C);
      if (which.dy) turn(d.seen().dy, d.pb.K);
    });
  }
}

void add_single(Kinds& kinds) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const int where : {0, 1, 2}) {
      constexpr const char* kWhere[] = {" in a channel of k", " in a channel of c", " in a tap"};
      kinds.add_part(cat("result ", dtype_name(type), kWhere[where]), {"result_precision"},
                     [=](Draft& d, Values& dw) {
                       const I C = d.pb.group_c(), K = d.pb.K;
                       // An eighth of the numbers of float16 are of bfloat16 anyway.
                       if (unit_roundoff(d.pb.out_dtype) > 0x1p-20) return d.skip();
                       if (d.pb.op == Op::depthwise || d.pb.taps() < 2) return d.skip();
                       if (K < 3 || C < 2) return d.skip();
                       for (I i = 0; i < std::ssize(dw); ++i) {
                         const I place = where == 0 ? i % K : where == 1 ? i / K % C : i / (K * C);
                         if (place == 1) at(dw, i) = rounded(type, at(dw, i));
                       }
                       d.words = "alone";
                     });
    }
  }
  for (const bool of_k : {true, false}) {
    kinds.add_part(cat("taps exchanged in a channel of ", of_k ? "k" : "c"), {"tap_order"},
                   [=](Draft& d, Values& dw) {
                     const I C = d.pb.group_c(), K = d.pb.K;
                     if (d.pb.op == Op::depthwise || d.pb.taps() < 4 || K < 3 || C < 3) {
                       return d.skip();
                     }
                     for (I i = 0; i < C * K; ++i) {
                       if ((of_k ? i % K : i / K) == 1) std::swap(at(dw, i), at(dw, i + C * K));
                     }
                     d.words = "alone";
                   });
  }
}

}  // namespace convgrad::testing
