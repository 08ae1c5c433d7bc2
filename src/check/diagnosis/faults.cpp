// faults.cpp - see faults.hpp. Each add_ function adds one kind of fault.
#include "check/diagnosis/faults.hpp"

#include <algorithm>

namespace convgrad::diagnosis {
namespace {

using Change = std::function<void(SpatialAxis&)>;

Axes spatial_axes(const WgradProblem& pb) {
  const int rank = pb.spatial_rank();
  return rank > 2 ? Axes{0, 1, 2} : rank > 1 ? Axes{1, 2} : Axes{2};
}

// Returns "1,2", one field of some axes.
std::string fields_text(const Reading& reading, const Axes& axes,
                        std::int64_t SpatialAxis::*field) {
  std::string text;
  for (const std::size_t a : axes) text += cat(text.empty() ? "" : ",", reading.axis[a].*field);
  return text;
}

// Tells whether some tap meets what is not in x.
bool reaches_outside(const WgradProblem& pb) {
  return std::any_of(pb.axis.begin(), pb.axis.end(), [](const SpatialAxis& a) {
    return a.pad_before > 0 || input_at(a, a.out - 1, a.taps - 1) >= a.in;
  });
}

bool is_wide(const SpatialAxis& a) { return a.in > 1 || a.taps > 1; }

struct Faults : FaultList {
  void add_moved(const std::string& name, const std::string& text, const std::string& cause,
                 Fault::Map moved) {
    list.push_back({name, text, cause, plain, std::move(moved)});
  }

  Reading changed(const Axes& axes, const Change& change) const {
    Reading reading = plain;
    for (const std::size_t a : axes) change(reading.axis[a]);
    return reading;
  }

  // Adds the change with the padding as it is, and with that of SAME for the changed axes, as a
  // wrong stride or dilation changes SAME too.
  void add_with_padding(const std::string& name, const std::string& text, const char* cause,
                        const Axes& axes, const Change& change) {
    const Reading reading = changed(axes, change);
    add(name, text, cause, reading);
    if (!reaches_outside(pb) || reading == plain) return;
    add(name, text + ", and padding SAME follows that", cause, changed(axes, [&](SpatialAxis& a) {
          change(a);
          const std::int64_t reach = (a.taps - 1) * a.dilation + 1;
          a.pad_before = std::max<std::int64_t>((a.out - 1) * a.stride + reach - a.in, 0) / 2;
        }));
  }

  void add_flips() {
    for (const Axes& axes : subsets(pb, [](const SpatialAxis& a) { return a.taps > 1; })) {
      add_moved("filter_flipped", cat("the filter is flipped in ", axis_names(axes)),
                "a convolution that is taken for a cross-correlation",
                [pb = pb, axes](std::int64_t index) {
                  const std::int64_t cells = pb.group_c() * pb.K;
                  TapPlace tap = tap_place(pb, index / cells);
                  for (const std::size_t a : axes) tap[a] = pb.axis[a].taps - 1 - tap[a];
                  const std::int64_t row = tap[0] * pb.axis[1].taps + tap[1];
                  return (row * pb.axis[2].taps + tap[2]) * cells + index % cells;
                });
    }
  }

  void add_filter_orders() {
    const AxisOrder own = own_order(pb);
    for (const AxisOrder& order : other_orders(pb)) {
      const std::string taken =
          cat("its elements are taken in ", order.name, " order, not in ", own.name);
      const bool exchanged = !order.exchanged.empty();
      add_moved("filter_order", exchanged ? cat(order.exchanged, " are exchanged: ", taken) : taken,
                exchanged ? "a transposition too many, or one that is missing"
                          : "a file of another framework that is not transposed",
                [own, order](std::int64_t index) { return order.index(own.position(index)); });
    }
  }

  // An attribute of the axes, with what usually makes it another.
  struct Attribute {
    const char *name, *of_axis;  // "strides", "stride of"
    std::int64_t SpatialAxis::*field;
    std::int64_t none;  // what it is where it is ignored
    const char *ignored, *more, *less;
  };

  void add_values(const Attribute& of, const std::string& name, const std::string& why,
                  const char* cause, const Axes& axes, const Change& change) {
    const Reading reading = changed(axes, change);
    const std::string text =
        cat(why, "the ", of.of_axis, " ", axis_names(axes), " is ",
            fields_text(reading, axes, of.field), ", not ", fields_text(plain, axes, of.field));
    if (of.field == &SpatialAxis::pad_before) {
      add(name, text, cause, reading);
    } else if (std::ranges::all_of(reading.axis, [&](auto& a) { return a.*of.field > 0; })) {
      add_with_padding(name, text, cause, axes, change);
    }
  }

  // Adds an attribute that is ignored, of h and w in each other's place, another axis', one more or
  // less, along any set of axes.
  void add_attribute(const Attribute& of) {
    const auto field = of.field;
    const std::string name = of.name;
    const auto used = [&](const SpatialAxis& a) { return a.*field != of.none; };
    for (const Axes& axes : all_first(used)) {
      add_values(of, name + "_ignored", "", of.ignored, axes,
                 [&](SpatialAxis& a) { a.*field = of.none; });
    }
    Reading swapped = plain;
    std::swap(swapped.axis[1].*field, swapped.axis[2].*field);
    add("attribute_order", cat("the ", name, " of h and w are swapped"),
        "the axes' order in the attribute", swapped);
    for (const std::size_t from : spatial_axes(pb)) {
      const std::int64_t value = pb.axis[from].*field;
      const auto other = [&](const SpatialAxis& a) { return a.*field != value && is_wide(a); };
      for (const Axes& axes : subsets(pb, other)) {
        add_values(of, "attribute_order", "",
                   "one number of an attribute that is used for all axes", axes,
                   [&](SpatialAxis& a) { a.*field = value; });
      }
    }
    for (const Axes& axes : all_first(is_wide)) {
      for (const int step : {1, -1}) {
        add_values(of, name + "_off_by_one", "", step > 0 ? of.more : of.less, axes,
                   [&](SpatialAxis& a) { a.*field += step; });
      }
    }
  }

  // Returns sets of axes, all of them first, as that is the likeliest.
  std::vector<Axes> all_first(const std::function<bool(const SpatialAxis&)>& useful) const {
    std::vector<Axes> sets = subsets(pb, useful);
    std::ranges::reverse(sets);
    return sets;
  }

  void add_attributes() {
    add_with_padding("stride_dilation_swapped", "strides and dilations are swapped",
                     "the order of arguments", spatial_axes(pb),
                     [](SpatialAxis& a) { std::swap(a.stride, a.dilation); });
    const char* const between = "a distance that is counted in the elements between";
    add_attribute({"dilations", "dilation of", &SpatialAxis::dilation, 1,
                   "dilations that are ignored, as by TensorFlow's depthwise op on the CPU",
                   "a library that counts dilations from 0", between});
    add_attribute(
        {"strides", "stride of", &SpatialAxis::stride, 1, "strides that are ignored", "", between});
    const char* const other = "the padding of another framework, or its odd row on the other side";
    const Attribute padding = {"padding", "padding before",          &SpatialAxis::pad_before,
                               0,         "padding that is ignored", other,
                               other};
    // Only the padding before moves taps; the one after decides the output's extent alone.
    const auto uneven = [](const SpatialAxis& a) { return a.pad_before != a.pad_after; };
    for (const Axes& axes : all_first(uneven)) {
      add_values(padding, "padding_swapped", "the padding after is put before: ", other, axes,
                 [](SpatialAxis& a) { a.pad_before = a.pad_after; });
    }
    add_attribute(padding);
    if (reaches_outside(pb)) add_outside();
  }

  void add_outside() {
    const auto add_as = [&](Outside outside, const char* name, const char* text,
                            const char* cause) {
      Reading reading = plain;
      reading.outside = outside;
      add(name, text, cause, reading);
    };
    add_as(Outside::multiplied, "padding_multiplied",
           "0 * out_backprop is added at taps outside input",
           "NaN and Inf spread from the padding where it is stored as zeros");
    constexpr const char* kName = "padding_values";
    add_as(Outside::edge, kName, "padding repeats the edge of input instead of zeros",
           "padding_mode='replicate', or coordinates that are clamped");
    add_as(Outside::reflected, kName, "padding reflects input instead of zeros",
           "padding_mode='reflect'");
    add_as(Outside::wrapped, kName, "padding continues input on its other side instead of zeros",
           "padding_mode='circular', or the next row in memory");
  }

  // Lists ways to number count channels that lie in groups.
  using Numbering = std::pair<const char*, Fault::Map>;
  static std::vector<Numbering> numberings(std::int64_t groups, std::int64_t count) {
    const std::int64_t each = count / groups;
    return {{"in reverse order",
             [=](std::int64_t i) { return (groups - 1 - i / each) * each + i % each; }},
            {"shifted by one", [=](std::int64_t i) { return (i + each) % count; }},
            {"shifted by one the other way",
             [=](std::int64_t i) { return (i + count - each) % count; }},
            {"interleaved: channel j*groups + g is taken for channel j of group g",
             [=](std::int64_t i) { return i % each * groups + i / each; }},
            {"interleaved the other way",
             [=](std::int64_t i) { return i % groups * each + i / groups; }}};
  }

  void add_groups() {
    if (pb.groups == 1) return;
    // Groups of the gradient only move; those of a tensor meet other groups, which takes new sums.
    const std::vector<Numbering> x = numberings(pb.groups, pb.C);
    const std::vector<Numbering> dy = numberings(pb.groups, pb.K);
    for (std::size_t i = 0; i < x.size(); ++i) {
      add_moved("group_order", cat("its groups are ", dy[i].first), "",
                [pb = pb, map = dy[i].second](std::int64_t index) {
                  return index / pb.K * pb.K + map(index % pb.K);
                });
      for (const auto& [of_x, of_dy, which] : {std::tuple{true, false, "input"},
                                               {false, true, "out_backprop"},
                                               {true, true, "input and out_backprop"}}) {
        list.push_back({"group_order", cat("the groups of ", which, " are ", x[i].first), "", plain,
                        nullptr, of_x ? x[i].second : nullptr, of_dy ? dy[i].second : nullptr});
      }
    }
  }

  void add_left_out() {
    for (const std::size_t a : spatial_axes(pb)) {
      for (const bool last : {true, false}) {
        if (pb.axis[a].in < 2) continue;
        Reading reading = plain;
        const std::int64_t line = last ? pb.axis[a].in - 1 : 0;
        reading.left_out[a] = {line, line + 1};
        add("line_left_out",
            cat("the ", last ? "last " : "first ", kLines[a], " of input is left out"),
            "a loop that ends too early, or a mask that is one off", reading);
      }
    }
  }
};

}  // namespace

std::vector<Axes> subsets(const WgradProblem& pb,
                          const std::function<bool(const SpatialAxis&)>& useful) {
  std::vector<Axes> result;
  const Axes all = spatial_axes(pb);
  for (std::size_t bits = 1; bits < std::size_t{1} << all.size(); ++bits) {
    Axes axes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((bits >> i & 1) != 0) axes.push_back(all[i]);
    }
    const auto is_useful = [&](std::size_t a) { return useful(pb.axis[a]); };
    if (std::ranges::all_of(axes, is_useful)) result.push_back(axes);
  }
  std::ranges::stable_sort(result, {}, [](const Axes& axes) { return axes.size(); });
  return result;
}

std::string axis_names(const Axes& axes) {
  constexpr const char* kNames[] = {"d", "h", "w"};
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += cat(i == 0 ? "" : i + 1 < axes.size() ? ", " : " and ", kNames[axes[i]]);
  }
  return text;
}

bool Fault::moves_only(const WgradProblem& problem) const {
  return !x_channel && !dy_channel && reading == plain_reading(problem);
}

EntryTerms Fault::terms(const WgradProblem& problem, std::int64_t index) const {
  EntryTerms result = entry_terms(problem, moved ? moved(index) : index);
  if (x_channel) result.x_channel = x_channel(result.x_channel);
  if (dy_channel) result.dy_channel = dy_channel(result.dy_channel);
  return result;
}

std::vector<Expected> predictions(std::span<const Fault> faults,
                                  std::span<const std::int64_t> indices, const Images& images,
                                  bool values_alone) {
  if (faults.empty()) return {};
  const WgradProblem& pb = images.plan.problem;
  std::vector<Wanted> wanted;
  for (const Fault& fault : faults) {
    for (const std::int64_t index : indices) {
      wanted.push_back({&fault.reading, fault.terms(pb, index)});
    }
  }
  std::vector<EntrySum> sums = sums_of(wanted, images, values_alone);
  std::vector<Expected> result;
  for (std::size_t f = 0; f < faults.size(); ++f) {
    result.push_back(
        expected_of(pb, {}, std::span(sums).subspan(f * indices.size(), indices.size())));
  }
  return result;
}

void FaultList::add(const std::string& name, const std::string& text, const std::string& cause,
                    const Reading& reading, bool rare) {
  if (reading == plain || std::ranges::find(list, reading, &Fault::reading) != list.end()) return;
  list.push_back({name, text, cause, reading});
  list.back().rare = rare;
}

// Of faults that read alike the first one names them, so the usual ones come first.
std::vector<Fault> known_faults(const WgradProblem& problem, const Facts& facts) {
  Faults faults{{problem}};
  faults.add_flips();
  faults.add_filter_orders();
  faults.add_attributes();
  faults.add_groups();
  faults.add_left_out();
  add_faults_of_inputs(faults, facts);
  return std::move(faults.list);
}

}  // namespace convgrad::diagnosis
