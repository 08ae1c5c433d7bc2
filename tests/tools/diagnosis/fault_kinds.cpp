// fault_kinds.cpp - see fault_kinds.hpp.
#include "tools/diagnosis/fault_kinds.hpp"

#include <cstring>

#include "check/sample.hpp"

namespace convgrad::testing {

void Kinds::add(const std::string& name, const Names& faults, const Make& make) {
  list.push_back({name, faults, make});
}

void Kinds::add_axis(const std::string& name, const Names& faults,
                     const std::function<void(SpatialAxis&)>& change) {
  add(name, faults, [=](Case& c, Random&, std::string&) {
    Wrong wrong = right(c);
    for (std::size_t a = c.pb.op == Op::conv3d ? 0 : 1; a < 3; ++a) change(wrong.axis[a]);
    return gradient(c, wrong);
  });
}

void Kinds::add_part(const std::string& name, const Names& faults,
                     const std::function<void(const WgradProblem&, Values&, std::string&)>& spoil) {
  add(name, faults, [=](Case& c, Random&, std::string& words) {
    const Values good = gradient(c, right(c));
    Values dw = good;
    spoil(c.pb, dw, words);
    const bool changed = std::memcmp(dw.data(), good.data(), dw.size() * sizeof(double)) != 0;
    return changed ? dw : Values();
  });
}

void Kinds::add_outside(const std::string& name,
                        const std::function<std::int64_t(std::int64_t, std::int64_t)>& outside) {
  add(name, {"padding_values"}, [=](Case& c, Random&, std::string&) {
    Wrong wrong = right(c);
    wrong.outside = outside;
    return gradient(c, wrong);
  });
}

void Kinds::add_pixels(const std::string& name, const Names& faults,
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
    result.push_back(dw[static_cast<std::size_t>(from)]);
  }
  return result;
}

Values flip(const WgradProblem& pb, const Values& dw, bool h, bool w) {
  return moved(pb, dw, [&](std::int64_t(&at)[5]) {
    if (h) at[1] = pb.axis[1].taps - 1 - at[1];
    if (w) at[2] = pb.axis[2].taps - 1 - at[2];
  });
}

Values order(const WgradProblem& pb, const Values& dw, const int (&axes)[5]) {
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
}

void fill(Values& dw, double value, const std::function<bool(std::int64_t)>& where) {
  for (std::size_t i = 0; i < dw.size(); ++i) {
    if (where(static_cast<std::int64_t>(i))) dw[i] = value;
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
  add_unknown(kinds);
  add_fillings(kinds);
  return kinds.list;
}

}  // namespace convgrad::testing
