// fault_kinds.hpp - the faults that are put into gradients, with what the diagnosis may call them.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "problem/schedule.hpp"
#include "tools/diagnosis/faulty_gradient.hpp"

namespace convgrad::testing {

// A gradient with a fault in the making: what a kind leaves as it is, is right.
struct Draft {
  Draft(Case& problem, Random& numbers) : c(problem), pb(problem.pb), random(numbers) {}

  Case& c;  // tensors may be changed for all, before anything else
  const WgradProblem& pb;
  Random& random;
  Wrong wrong = right(c);     // what is done otherwise
  std::optional<Case> other;  // what is summed in the place of the problem's tensors
  Values values;              // if they are no such sums
  std::string words;          // that must be named
  bool fits = true;

  void end_parts_every(std::int64_t pixels);
  void skip() { fits = false; }  // the problem cannot have the fault
  Case& seen() { return other ? *other : other.emplace(c); }
  Values gradient() const;  // empty: skipped
};

using Names = std::vector<std::string>;
using Make = std::function<void(Draft&)>;

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
                const std::function<void(Draft&, Values&)>& spoil);
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
void add_winograd(Kinds& kinds);  // in 16 bits
void add_unknown(Kinds& kinds);   // none of the faults: nothing must be named

inline double& at(Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
inline double at(const Values& values, std::int64_t i) {
  return values[static_cast<std::size_t>(i)];
}
// The elements as `move` says: each has the value of the place that its own is changed to.
Values moved(const WgradProblem& pb, const Values& dw,
             const std::function<void(std::int64_t (&)[5])>& move);
Values flip(const WgradProblem& pb, const Values& dw, bool h, bool w);
// The elements of [t][r][s][c][k] in another order, put where they do not belong.
Values order(const WgradProblem& pb, const Values& dw, const std::array<std::size_t, 5>& axes);
double largest(const Values& values);  // by its size
void add_to(Values& sums, const Values& more);
// The sum of gradients, each with something else done otherwise, rounded once.
Values sum_of(const Case& c, const std::vector<Wrong>& parts);
void fill(Values& dw, double value, const std::function<bool(std::int64_t)>& where);
Values scaled(const WgradProblem& pb, Values dw, double factor);

}  // namespace convgrad::testing
