// fault_kinds.cpp - see fault_kinds.hpp.
#include "tools/diagnosis/fault_kinds.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "check/sample.hpp"
#include "convgrad/compare.hpp"

namespace convgrad::testing {

Values Draft::gradient() const {
  if (!fits) return {};
  if (!values.empty()) return values;
  return rounded_all(pb, testing::gradient(other ? *other : c, wrong));
}

void Draft::end_parts_every(std::int64_t pixels) {
  for (std::int64_t at = pixels; at < term_count(pb); at += pixels) wrong.ends.insert(at);
}

void Kinds::add(const std::string& name, const Names& faults, const Make& make) {
  list.push_back({name, faults, make});
}

void Kinds::add_axis(const std::string& name, const Names& faults,
                     const std::function<void(SpatialAxis&)>& change) {
  add(name, faults, [=](Draft& d) {
    for (std::size_t a = d.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a) change(d.wrong.axis[a]);
  });
}

void Kinds::add_part(const std::string& name, const Names& faults,
                     const std::function<void(Draft&, Values&)>& spoil) {
  add(name, faults, [=](Draft& d) {
    const Values good = d.gradient();
    d.values = good;
    spoil(d, d.values);
    if (std::ranges::equal(d.values, good, same_bits)) d.skip();
  });
}

void Kinds::add_outside(const std::string& name,
                        const std::function<std::int64_t(std::int64_t, std::int64_t)>& outside) {
  add(name, {"padding_values"}, [=](Draft& d) { d.wrong.outside = outside; });
}

void Kinds::add_pixels(const std::string& name, const Names& faults,
                       const std::function<Range(const WgradProblem&, Random&)>& choose,
                       double weight, bool tile) {
  add(name, faults, [=](Draft& d) {
    const Range range = choose(d.pb, d.random);
    if (range.size() <= 0 || range.size() >= term_count(d.pb)) return d.skip();
    if (tile && (d.pb.K <= 16 || d.pb.op == Op::depthwise)) return d.skip();
    const Values good = tile ? d.gradient() : Values();
    d.wrong.weight = [=](std::int64_t pixel) {
      return pixel >= range.begin && pixel < range.end ? weight : 1;
    };
    d.words = tile ? "k 0-15" : weight == 0 ? "left out" : "counted twice";
    if (!tile) return;
    d.values = d.gradient();
    for (std::int64_t i = 0; i < std::ssize(good); ++i) {
      if (i % d.pb.K >= 16) at(d.values, i) = at(good, i);
    }
  });
}

Values moved(const WgradProblem& pb, const Values& dw,
             const std::function<void(std::int64_t (&)[5])>& move) {
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
    result.push_back(testing::at(dw, from));
  }
  return result;
}

Values flip(const WgradProblem& pb, const Values& dw, bool h, bool w) {
  return moved(pb, dw, [&](std::int64_t(&at)[5]) {
    if (h) at[1] = pb.axis[1].taps - 1 - at[1];
    if (w) at[2] = pb.axis[2].taps - 1 - at[2];
  });
}

Values order(const WgradProblem& pb, const Values& dw, const std::array<std::size_t, 5>& axes) {
  const std::int64_t extent[] = {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps,
                                 pb.op == Op::depthwise ? pb.C : pb.group_c(),
                                 pb.op == Op::depthwise ? pb.group_k() : pb.K};
  Values result;
  for (std::int64_t i = 0; i < std::ssize(dw); ++i) {
    std::int64_t rest = i, at[5], from = 0;
    for (std::size_t a = 5; a-- > 0;) {
      at[axes[a]] = rest % extent[axes[a]];
      rest /= extent[axes[a]];
    }
    for (int a = 0; a < 5; ++a) from = from * extent[a] + at[a];
    result.push_back(testing::at(dw, from));
  }
  return result;
}

double largest(const Values& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}

void add_to(Values& sums, const Values& more) {
  std::ranges::transform(sums, more, sums.begin(), std::plus());
}

Values sum_of(const Case& c, const std::vector<Wrong>& parts) {
  Case wide = c;
  wide.pb.out_dtype = DType::f64;
  Values dw(static_cast<std::size_t>(c.pb.dw_count()), 0.0);
  for (const Wrong& part : parts) add_to(dw, gradient(wide, part));
  return rounded_all(c.pb, dw);
}

void fill(Values& dw, double value, const std::function<bool(std::int64_t)>& where) {
  for (std::int64_t i = 0; i < std::ssize(dw); ++i) {
    if (where(i)) at(dw, i) = value;
  }
}

Values scaled(const WgradProblem& pb, Values dw, double factor) {
  for (double& v : dw) v *= factor;
  return rounded_all(pb, dw);
}

std::vector<Kind> all_kinds() {
  Kinds kinds;
  add_orders(kinds);
  add_precision(kinds);
  add_special_values(kinds);
  add_pixels(kinds);
  add_parts(kinds);
  add_padding(kinds);
  add_pairs(kinds);
  add_rarer(kinds);
  add_inputs(kinds);
  add_images(kinds);
  add_axes(kinds);
  add_totals(kinds);
  add_splits(kinds);
  add_kernels(kinds);
  add_scales(kinds);
  add_blocks(kinds);
  add_single(kinds);
  add_winograd(kinds);
  add_unknown(kinds);
  add_fillings(kinds);
  return kinds.list;
}

}  // namespace convgrad::testing
