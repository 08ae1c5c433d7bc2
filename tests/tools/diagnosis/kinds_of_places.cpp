// kinds_of_places.cpp - see fault_kinds.hpp: wrong orders, places and pixels.
#include <algorithm>

#include "check/sample.hpp"
#include "tools/diagnosis/fault_kinds.hpp"

namespace convgrad::testing {

void add_orders(Kinds& kinds) {
  for (const auto& [h, w] :
       {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
    kinds.add(cat("flipped ", h ? "h" : "", w ? "w" : ""), {"filter_flipped"},
              [h = h, w = w](Case& c, Random&, std::string&) {
                return flip(c.pb, gradient(c, right(c)), h, w);
              });
  }
  const auto add_order = [&](const std::string& name, const std::array<int, 5>& axes) {
    kinds.add(name, {"filter_order"}, [=](Case& c, Random&, std::string&) {
      int of[5];
      std::copy(axes.begin(), axes.end(), of);
      return order(c.pb, gradient(c, right(c)), of);
    });
  };
  add_order("order OIHW", {4, 3, 0, 1, 2});
  add_order("order OHWI", {4, 0, 1, 2, 3});
  add_order("C and K exchanged", {0, 1, 2, 4, 3});
  add_order("rows and columns exchanged", {0, 2, 1, 3, 4});
  kinds.add("x in the other layout", {"tensor_layout"}, [](Case& c, Random&, std::string&) {
    Case other = c;
    other.x = other_format(c.pb, c.x, c.pb.C);
    return gradient(other, right(c));
  });
  kinds.add("dy in the other layout", {"tensor_layout"}, [](Case& c, Random&, std::string&) {
    Case other = c;
    other.dy = other_format(c.pb, c.dy, c.pb.K);
    return gradient(other, right(c));
  });
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
    kinds.add(reversed ? "groups reversed" : "groups rotated",
              {"group_order", "channel_order", "filter_flipped"},
              [=](Case& c, Random&, std::string&) {
                const std::int64_t G = c.pb.groups, Kg = c.pb.group_k();
                if (G < 2) return Values();
                return moved(c.pb, gradient(c, right(c)), [&](std::int64_t(&at)[5]) {
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
  kinds.add("last row of dy left out", {"line_left_out", "missing_pixels"},
            [](Case& c, Random&, std::string&) {
              const std::int64_t P = c.pb.axis[1].out, Q = c.pb.axis[2].out;
              if (P < 2) return Values();
              Wrong wrong = right(c);
              wrong.weight = [=](std::int64_t at) { return at / Q % P == P - 1 ? 0.0 : 1.0; };
              return gradient(c, wrong);
            });
}

void add_parts(Kinds& kinds) {
  kinds.add_part("all 0", {"zero"}, [=](const WgradProblem&, Values& dw, std::string& words) {
    fill(dw, 0, [](std::int64_t) { return true; });
    words = "every element is set to 0";
  });
  kinds.add_part("all NaN", {"nan"}, [=](const WgradProblem&, Values& dw, std::string& words) {
    fill(dw, std::nan(""), [](std::int64_t) { return true; });
    words = "every element is set to NaN";
  });
  kinds.add_part("a tap 0", {"zero"}, [=](const WgradProblem& pb, Values& dw, std::string& words) {
    if (pb.taps() < 2) return;
    const std::int64_t cells = pb.group_c() * pb.K;
    fill(dw, 0, [=](std::int64_t i) { return i / cells == pb.taps() - 1; });
    words = pb.axis[1].taps > 1 && pb.axis[2].taps > 1 && pb.op != Op::conv3d
                ? cat("tap (", pb.axis[1].taps - 1, ",", pb.axis[2].taps - 1, ")")
                : "";
  });
  kinds.add_part("remainder channels 0", {"zero"},
                 [=](const WgradProblem& pb, Values& dw, std::string& words) {
                   if (pb.op == Op::depthwise || pb.groups > 1 || pb.K % 8 < 2 || pb.K < 8) return;
                   fill(dw, 0, [=](std::int64_t i) { return i % pb.K >= pb.K / 8 * 8; });
                   words = "a remainder of";
                 });
  kinds.add_part("k % 8 == 7 NaN", {"nan"},
                 [=](const WgradProblem& pb, Values& dw, std::string& words) {
                   if (pb.op == Op::depthwise || pb.groups > 1 || pb.K < 16) return;
                   fill(dw, std::nan(""), [=](std::int64_t i) { return i % pb.K % 8 == 7; });
                   words = pb.K < 24 && pb.K != 16 ? "" : "k % 8 == 7";
                 });
  kinds.add_part("two places 0", {"zero"},
                 [=](const WgradProblem& pb, Values& dw, std::string& words) {
                   if (pb.op == Op::depthwise || pb.taps() < 3 || pb.K < 3) return;
                   const std::int64_t cells = pb.group_c() * pb.K;
                   fill(dw, 0, [=](std::int64_t i) {
                     return (i / cells == 0 && i % pb.K == 0) ||
                            (i / cells == pb.taps() - 1 && i % pb.K == pb.K - 1);
                   });
                   words = " and ";
                 });
  kinds.add_part("a tap holds another", {"copied", "tap_order", "filter_flipped", "filter_order"},
                 [=](const WgradProblem& pb, Values& dw, std::string&) {
                   if (pb.taps() < 2) return;
                   const std::int64_t cells = pb.group_c() * pb.K;
                   for (std::int64_t i = 0; i < cells; ++i)
                     dw[static_cast<std::size_t>(i)] = dw[static_cast<std::size_t>(cells + i)];
                 });
  kinds.add_part("a tile holds another", {"copied"},
                 [=](const WgradProblem& pb, Values& dw, std::string&) {
                   if (pb.op == Op::depthwise || pb.K < 32) return;
                   for (std::int64_t i = 0; i < std::min<std::int64_t>(16, pb.group_c()); ++i) {
                     for (std::int64_t k = 0; k < 16; ++k) {
                       dw[static_cast<std::size_t>(i * pb.K + k)] =
                           dw[static_cast<std::size_t>(i * pb.K + 16 + k)];
                     }
                   }
                 });
  kinds.add("k and k^1 swapped", {"channel_order", "group_order", "filter_order"},
            [=](Case& c, Random&, std::string&) {
              if (c.pb.K % 2 != 0) return Values();
              return moved(c.pb, gradient(c, right(c)), [](std::int64_t(&at)[5]) { at[4] ^= 1; });
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
    kinds.add(of_x ? "ReLU of x" : "ReLU of dy", {"activation", "zero"},
              [=](Case& c, Random&, std::string&) {
                Wrong wrong = right(c);
                (of_x ? wrong.x : wrong.dy) = [](double v) { return std::max(v, 0.0); };
                return gradient(c, wrong);
              });
    kinds.add(
        of_x ? "x shifted by a column" : "dy shifted by a column",
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
}

}  // namespace convgrad::testing
