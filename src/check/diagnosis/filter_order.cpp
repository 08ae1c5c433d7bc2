// filter_order.cpp - lists the orders that the axes of a filter may have in memory.
#include <algorithm>
#include <optional>
#include <set>

#include "check/diagnosis/faults.hpp"

namespace convgrad::diagnosis {
namespace {

struct Axis {
  char letter;
  std::int64_t extent, step;
};

// Returns the axes in [t][r][s][c][k] order.
std::vector<Axis> plain_axes(const WgradProblem& pb) {
  const std::string_view lower = "trsckm", upper = pb.op == Op::depthwise ? "DHWCOM" : "DHWIOM";
  std::vector<Axis> axes;
  for (const EntryAxis& axis : entry_axes(pb)) {
    axes.push_back({upper[lower.find(axis.letter)], axis.extent, 0});
  }
  std::int64_t step = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    axes[i].step = step;
    step *= axes[i].extent;
  }
  return axes;
}

FilterOrder named_order(const std::vector<Axis>& axes, const std::string& name) {
  FilterOrder order = {name, {}, {}, ""};
  for (const char letter : name) {
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.letter == letter; });
    order.extents.push_back(axis->extent);
    order.steps.push_back(axis->step);
  }
  return order;
}

// Spells an order such as "HWIO" in the letters of the problem.
std::string spelled(const WgradProblem& pb, const std::string& hwio) {
  std::string name;
  for (const char letter : hwio) {
    if (letter == 'H' && pb.spatial_rank() > 2) name += 'D';
    if (letter == 'H' && pb.spatial_rank() < 2) continue;
    if (pb.op == Op::depthwise && letter == 'I') continue;
    name += letter;
    if (pb.op == Op::depthwise && letter == 'O') name.replace(name.size() - 1, 1, "CM");
  }
  return name;
}

// Returns the order "OIhw16i16o", or "OIhw16o16i", if both channels are whole blocks.
std::optional<FilterOrder> blocked_order(const WgradProblem& pb, const std::vector<Axis>& axes,
                                         std::int64_t block, bool o_inside) {
  const Axis &in = axes[axes.size() - 2], &out = axes.back();
  if (pb.op == Op::depthwise || in.extent % block != 0 || out.extent % block != 0) return {};
  FilterOrder order = {
      "OI", {out.extent / block, in.extent / block}, {out.step * block, in.step * block}, ""};
  for (std::size_t a = 0; a + 2 < axes.size(); ++a) {
    order.name += static_cast<char>(axes[a].letter - 'A' + 'a');
    order.extents.push_back(axes[a].extent);
    order.steps.push_back(axes[a].step);
  }
  for (const bool o : {!o_inside, o_inside}) {
    order.name += cat(block, o ? "o" : "i");
    order.extents.push_back(block);
    order.steps.push_back(o ? out.step : in.step);
  }
  return order;
}

// Leaves out axes of extent 1, whose place does not matter.
std::string effective(const FilterOrder& order) {
  std::string name;
  for (std::size_t i = 0; i < order.name.size(); ++i) {
    if (order.extents[i] > 1) name += order.name[i];
  }
  return name;
}

}  // namespace

std::int64_t FilterOrder::index(std::int64_t position) const {
  std::int64_t result = 0;
  for (std::size_t i = extents.size(); i-- > 0;) {
    result += position % extents[i] * steps[i];
    position /= extents[i];
  }
  return result;
}

std::int64_t FilterOrder::position(std::int64_t index) const {
  std::int64_t result = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    result = result * extents[i] + index / steps[i] % extents[i];
  }
  return result;
}

FilterOrder own_order(const WgradProblem& problem) {
  const char* name = problem.filter_format == FilterFormat::hwio   ? "HWIO"
                     : problem.filter_format == FilterFormat::oihw ? "OIHW"
                                                                   : "OHWI";
  return named_order(plain_axes(problem), spelled(problem, name));
}

std::vector<FilterOrder> other_orders(const WgradProblem& problem) {
  const std::vector<Axis> axes = plain_axes(problem);
  std::vector<std::string> names;
  for (const char* usual : {"HWIO", "OIHW", "OHWI"}) names.push_back(spelled(problem, usual));
  for (const char* usual : {"HWOI", "IOHW", "IHWO", "WHIO"}) {  // depthwise: M in front of C
    std::string name = spelled(problem, usual);
    if (problem.op == Op::depthwise) std::swap(name[name.find('C')], name[name.find('M')]);
    names.push_back(name);
  }
  std::string letters = own_order(problem).name;
  std::sort(letters.begin(), letters.end());
  // All permutations follow; one that equals a usual order keeps the usual name.
  do {
    names.push_back(letters);
  } while (std::next_permutation(letters.begin(), letters.end()));

  const std::string own = effective(own_order(problem));
  const auto exchanged = [&](const std::string& name, char a, char b) {
    std::string swapped = own;
    for (char& letter : swapped) letter = letter == a ? b : letter == b ? a : letter;
    return swapped == name && swapped != own;
  };
  std::vector<FilterOrder> orders;
  std::set<std::string> seen = {own};
  for (const std::string& name : names) {
    FilterOrder order = named_order(axes, name);
    const std::string as = effective(order);
    if (!seen.insert(as).second) continue;
    if (exchanged(as, 'I', 'O')) order.exchanged = "C and K";
    if (exchanged(as, 'C', 'M')) order.exchanged = "C and M";
    if (exchanged(as, 'H', 'W')) order.exchanged = "rows and columns of the filter";
    orders.push_back(std::move(order));
  }
  // oneDNN's blocks of channels: [O/b][I/b][h][w], with the block of each innermost.
  for (const std::int64_t block : {16, 8, 4}) {
    for (const bool o_inside : {true, false}) {
      if (auto order = blocked_order(problem, axes, block, o_inside)) {
        orders.push_back(std::move(*order));
      }
    }
  }
  return orders;
}

}  // namespace convgrad::diagnosis
