// kinds_of_places.cpp - see fault_kinds.hpp: wrong orders, places and pixels.
#include <algorithm>
#include <cmath>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {

void add_orders(Kinds& kinds) {
  for (const auto& [h, w] :
       {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
    kinds.add_part(cat("flipped ", h ? "h" : "", w ? "w" : ""), {"filter_flipped"},
                   [h = h, w = w](Draft& d, Values& dw) { dw = flip(d.pb, dw, h, w); });
  }
  const auto add_order = [&](const std::string& name, const std::array<std::size_t, 5>& axes) {
    kinds.add_part(name, {"filter_order"},
                   [=](Draft& d, Values& dw) { dw = order(d.pb, dw, axes); });
  };
  add_order("order OIHW", {4, 3, 0, 1, 2});
  add_order("order OHWI", {4, 0, 1, 2, 3});
  add_order("C and K exchanged", {0, 1, 2, 4, 3});
  add_order("rows and columns exchanged", {0, 2, 1, 3, 4});
  kinds.add("x in the other layout", {"tensor_layout"},
            [](Draft& d) { d.seen().x = other_format(d.pb, d.c.x, d.pb.C); });
  kinds.add("dy in the other layout", {"tensor_layout"},
            [](Draft& d) { d.seen().dy = other_format(d.pb, d.c.dy, d.pb.K); });
  kinds.add_axis("padding one more", {"padding_off_by_one", "padding_swapped"},
                 [](SpatialAxis& a) { ++a.pad_before; });
  kinds.add_axis("padding one less", {"padding_off_by_one", "padding_ignored"},
                 [](SpatialAxis& a) { --a.pad_before; });
  kinds.add_axis("padding ignored", {"padding_ignored", "padding_off_by_one", "padding_swapped"},
                 [](SpatialAxis& a) { a.pad_before = 0; });
  kinds.add_axis("dilations ignored", {"dilations_ignored", "stride_dilation_swapped"},
                 [](SpatialAxis& a) { a.dilation = 1; });
  kinds.add_axis("strides and dilations swapped",
                 {"stride_dilation_swapped", "strides_ignored", "dilations_ignored"},
                 [](SpatialAxis& a) { std::swap(a.stride, a.dilation); });
  kinds.add_axis("strides ignored", {"strides_ignored", "stride_dilation_swapped"},
                 [](SpatialAxis& a) { a.stride = 1; });
  for (const bool reversed : {true, false}) {
    kinds.add_part(reversed ? "groups reversed" : "groups rotated",
                   {"group_order", "channel_order", "filter_flipped"}, [=](Draft& d, Values& dw) {
                     const std::int64_t G = d.pb.groups, Kg = d.pb.group_k();
                     dw = moved(d.pb, dw, [&](std::int64_t(&at)[5]) {
                       const std::int64_t g = at[4] / Kg;
                       at[4] = (reversed ? G - 1 - g : (g + 1) % G) * Kg + at[4] % Kg;
                     });
                   });
  }
}

void add_pixels(Kinds& kinds) {
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
  kinds.add_pixels("image left out", missing, image, 0, false);
  kinds.add_pixels("image twice", doubled, image, 2, false);
  kinds.add_pixels("row left out", missing, row, 0, false);
  kinds.add_pixels("row twice", doubled, row, 2, false);
  kinds.add_pixels("chunk of 512 left out", missing, chunk, 0, false);
  kinds.add_pixels("chunk of 512 twice", doubled, chunk, 2, false);
  kinds.add_pixels("pixel left out", missing, pixel, 0, false);
  kinds.add_pixels("image left out in a tile", missing, image, 0, true);
  kinds.add_pixels("row twice in a tile", doubled, row, 2, true);
  kinds.add("last row of dy left out", {"line_left_out", "missing_pixels"}, [](Draft& d) {
    const std::int64_t P = d.pb.axis[1].out, Q = d.pb.axis[2].out;
    if (P < 2) return d.skip();
    d.wrong.weight = [=](std::int64_t at) { return at / Q % P == P - 1 ? 0.0 : 1.0; };
  });
}

void add_parts(Kinds& kinds) {
  for (const bool zero : {true, false}) {
    kinds.add_part(zero ? "all 0" : "all NaN", {zero ? "zero" : "nan"}, [=](Draft& d, Values& dw) {
      std::ranges::fill(dw, zero ? 0 : std::nan(""));
      d.words = cat("every element is set to ", zero ? "0" : "NaN");
    });
  }
  kinds.add_part("a tap 0", {"zero"}, [](Draft& d, Values& dw) {
    const SpatialAxis &h = d.pb.axis[1], &w = d.pb.axis[2];
    const std::int64_t cells = d.pb.group_c() * d.pb.K, last = d.pb.taps() - 1;
    if (last < 1) return d.skip();
    fill(dw, 0, [=](std::int64_t i) { return i / cells == last; });
    if (h.taps > 1 && w.taps > 1 && d.pb.op != Op::conv3d) {
      d.words = cat("tap (", h.taps - 1, ",", w.taps - 1, ")");
    }
  });
  kinds.add_part("remainder channels 0", {"zero"}, [](Draft& d, Values& dw) {
    const std::int64_t K = d.pb.K;
    if (d.pb.op == Op::depthwise || d.pb.groups > 1 || K % 8 < 2 || K < 8) return d.skip();
    fill(dw, 0, [=](std::int64_t i) { return i % K >= K / 8 * 8; });
    d.words = "a remainder of";
  });
  kinds.add_part("k % 8 == 7 NaN", {"nan"}, [](Draft& d, Values& dw) {
    const std::int64_t K = d.pb.K;
    if (d.pb.op == Op::depthwise || d.pb.groups > 1 || K < 16) return d.skip();
    fill(dw, std::nan(""), [=](std::int64_t i) { return i % K % 8 == 7; });
    d.words = K < 24 && K != 16 ? "" : "k % 8 == 7";
  });
  kinds.add_part("two places 0", {"zero"}, [](Draft& d, Values& dw) {
    const std::int64_t K = d.pb.K, cells = d.pb.group_c() * K, last = d.pb.taps() - 1;
    if (d.pb.op == Op::depthwise || last < 2 || K < 3) return d.skip();
    if (at(dw, 0) == 0 || at(dw, last * cells + K - 1) == 0) return d.skip();  // as by padding
    fill(dw, 0, [=](std::int64_t i) {
      return (i / cells == 0 && i % K == 0) || (i / cells == last && i % K == K - 1);
    });
    d.words = " and ";
  });
  kinds.add_part("a tap holds another", {"copied", "tap_order", "filter_flipped", "filter_order"},
                 [](Draft& d, Values& dw) {
                   if (d.pb.taps() < 2) return d.skip();
                   const std::int64_t cells = d.pb.group_c() * d.pb.K;
                   std::copy_n(dw.begin() + cells, cells, dw.begin());
                 });
  kinds.add_part("a tile holds another", {"copied"}, [](Draft& d, Values& dw) {
    if (d.pb.op == Op::depthwise || d.pb.K < 32) return d.skip();
    for (std::int64_t i = 0; i < std::min<std::int64_t>(16, d.pb.group_c()); ++i) {
      std::copy_n(dw.begin() + i * d.pb.K + 16, 16, dw.begin() + i * d.pb.K);
    }
  });
  kinds.add_part("k and k^1 swapped", {"channel_order", "group_order", "filter_order"},
                 [](Draft& d, Values& dw) {
                   if (d.pb.K % 2 != 0) return d.skip();
                   dw = moved(d.pb, dw, [](std::int64_t(&at)[5]) { at[4] ^= 1; });
                 });
}

void add_padding(Kinds& kinds) {
  kinds.add_outside("edge padding",
                    [](std::int64_t i, std::int64_t in) { return i < 0 ? 0 : in - 1; });
  kinds.add_outside("reflect padding", [](std::int64_t i, std::int64_t in) {
    i = i < 0 ? -i : 2 * (in - 1) - i;
    return i < 0 || i >= in ? std::int64_t{-1} : i;
  });
  for (const bool of_x : {true, false}) {
    kinds.add(of_x ? "ReLU of x" : "ReLU of dy", {"activation", "zero"}, [=](Draft& d) {
      (of_x ? d.wrong.x : d.wrong.dy) = [](double v) { return std::max(v, 0.0); };
    });
  }
}

}  // namespace convgrad::testing
