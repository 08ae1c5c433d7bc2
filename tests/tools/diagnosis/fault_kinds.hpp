// fault_kinds.hpp - the faults that are put into gradients, with what the diagnosis may call them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "problem/schedule.hpp"
#include "tools/diagnosis/faulty_gradient.hpp"

namespace convgrad::testing {

using Names = std::vector<std::string>;
// A gradient with the fault, and words that must be named with it; empty: not for this problem.
using Make = std::function<Values(Case&, Random&, std::string& words)>;

struct Kind {
  std::string name;
  Names faults;  // any of them, in any order of their parts: they say the same here
  Make make;
};
std::vector<Kind> all_kinds();

struct Kinds {
  std::vector<Kind> list;

  void add(const std::string& name, const Names& faults, const Make& make);
  // With all axes changed.
  void add_axis(const std::string& name, const Names& faults,
                const std::function<void(SpatialAxis&)>& change);
  // Elements of a right gradient changed; not for problems where that changes none.
  void add_part(const std::string& name, const Names& faults,
                const std::function<void(const WgradProblem&, Values&, std::string&)>& spoil);
  // What stands outside of x: Wrong::outside.
  void add_outside(const std::string& name,
                   const std::function<std::int64_t(std::int64_t, std::int64_t)>& outside);
  // A range of pixels counted `weight` times, in all of the gradient or in k below 16.
  void add_pixels(const std::string& name, const Names& faults,
                  const std::function<Range(const WgradProblem&, Random&)>& choose, double weight,
                  bool tile);
};

void add_orders(Kinds& kinds);  // of axes, taps, groups; strides, dilations and padding
void add_precision(Kinds& kinds);
void add_special_values(Kinds& kinds);
void add_pixels(Kinds& kinds);
void add_parts(Kinds& kinds);    // of the gradient
void add_padding(Kinds& kinds);  // and activations, shifts
void add_pairs(Kinds& kinds);    // scales, and two faults at once
void add_rarer(Kinds& kinds);
void add_inputs(Kinds& kinds);    // numbers of x and dy
void add_images(Kinds& kinds);    // images, lines and pixels that are others'
void add_axes(Kinds& kinds);      // attributes of one axis
void add_totals(Kinds& kinds);    // sums of parts
void add_fillings(Kinds& kinds);  // what stands in the place of right sums
void add_splits(Kinds& kinds);    // how sums and tensors are dealt out
void add_kernels(Kinds& kinds);   // what tiles, lanes and stages of a kernel bring about
void add_scales(Kinds& kinds);    // numbers of 8 bits with scales of their own
void add_blocks(Kinds& kinds);    // blocked layouts
void add_single(Kinds& kinds);    // a rounding or an order of one channel or tap
void add_unknown(Kinds& kinds);   // none of the faults: nothing must be named

// The elements as `move` says: each has the value of the place that its own is changed to.
Values moved(const WgradProblem& pb, const Values& dw,
             const std::function<void(std::int64_t (&)[5])>& move);
Values flip(const WgradProblem& pb, const Values& dw, bool h, bool w);
// The elements of [t][r][s][c][k] in another order, put where they do not belong.
Values order(const WgradProblem& pb, const Values& dw, const int (&axes)[5]);
void fill(Values& dw, double value, const std::function<bool(std::int64_t)>& where);
Values scaled(const WgradProblem& pb, Values dw, double factor);

}  // namespace convgrad::testing
