// faults.cpp - see faults.hpp. Each add_ function adds one kind of fault.
#include "check/diagnosis/faults.hpp"

#include <algorithm>

namespace convgrad::diagnosis {
namespace {

using Change = std::function<void(SpatialAxis&)>;

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

class Faults : FaultList {
 public:
  explicit Faults(const WgradProblem& problem) : FaultList(problem) {}

  std::vector<Fault> take(const Facts& facts) {
    add_flips();
    add_filter_orders();
    add_strides_and_dilations();
    add_paddings();
    add_groups();
    add_left_out();
    add_shifts();
    // Of faults that read alike the first one names them, so the usual ones come first.
    for (const std::vector<Fault>& more : {faults_of_layouts(pb_), faults_of_inputs(pb_, facts)}) {
      for (const Fault& f : more) add_reading(f.name, f.text, f.cause, f.reading, f.rare);
    }
    return std::move(list_);
  }

 private:
  void add_moved(const std::string& name, const std::string& text, const std::string& cause,
                 Fault::Map moved) {
    list_.push_back({name, text, cause, plain_, std::move(moved)});
  }

  Reading changed(const Axes& axes, const Change& change) const {
    Reading reading = plain_;
    for (const std::size_t a : axes) change(reading.axis[a]);
    return reading;
  }

  // Sets the padding before that SAME would take with the axis's stride and dilation.
  static void pad_same(SpatialAxis& axis) {
    const std::int64_t reach = (axis.taps - 1) * axis.dilation + 1;
    axis.pad_before = std::max<std::int64_t>((axis.out - 1) * axis.stride + reach - axis.in, 0) / 2;
  }

  // Adds the change with the padding as it is, and with that of SAME for the changed axis, as a
  // wrong attribute changes SAME too.
  void add_with_padding(const std::string& name, const std::string& text, const std::string& cause,
                        const Axes& axes, const Change& change, bool follows = true) {
    add_reading(name, text, cause, changed(axes, change));
    if (!follows) return;
    const auto with_same = [&](SpatialAxis& axis) {
      change(axis);
      pad_same(axis);
    };
    add_reading(name, text + ", and padding SAME follows that", cause, changed(axes, with_same));
  }

  void add_flips() {
    for (const Axes& axes : subsets(pb_, [](const SpatialAxis& a) { return a.taps > 1; })) {
      const WgradProblem& pb = pb_;
      add_moved("filter_flipped", cat("the filter is flipped in ", axis_names(axes)),
                "a convolution that is taken for a cross-correlation",
                [pb, axes](std::int64_t index) {
                  const std::int64_t cells = pb.group_c() * pb.K;
                  std::int64_t rest = index / cells, step = 1, flipped = 0;
                  for (std::size_t a = 3; a-- > 0;) {
                    const std::int64_t taps = pb.axis[a].taps, tap = rest % taps;
                    const bool turns = std::find(axes.begin(), axes.end(), a) != axes.end();
                    flipped += (turns ? taps - 1 - tap : tap) * step;
                    rest /= taps;
                    step *= taps;
                  }
                  return flipped * cells + index % cells;
                });
    }
  }

  void add_filter_orders() {
    const FilterOrder own = own_order(pb_);
    for (const FilterOrder& order : other_orders(pb_)) {
      const std::string taken =
          cat("its elements are taken in ", order.name, " order, not in ", own.name);
      const bool exchanged = !order.exchanged.empty();
      add_moved("filter_order", exchanged ? cat(order.exchanged, " are exchanged: ", taken) : taken,
                exchanged ? "a transposition too many, or one that is missing"
                          : "a file of another framework that is not transposed",
                [own, order](std::int64_t index) { return order.index(own.position(index)); });
    }
  }

  // Returns "before h is 2, not 1".
  std::string before(const Axes& axes, const Reading& reading) const {
    return cat("before ", axis_names(axes), " is ",
               fields_text(reading, axes, &SpatialAxis::pad_before), ", not ",
               fields_text(plain_, axes, &SpatialAxis::pad_before));
  }

  void add_padding(const std::string& name, const std::string& why, const Axes& axes,
                   const Change& change) {
    const Reading reading = changed(axes, change);
    add_reading(name, cat(why, "the padding ", before(axes, reading)),
                "the padding of another framework, or its odd row on the other side", reading);
  }

  void add_paddings() {
    // Only the padding before moves taps; the one after decides the output's extent alone.
    const auto uneven = [](const SpatialAxis& a) { return a.pad_before != a.pad_after; };
    std::vector<Axes> sets = subsets(pb_, uneven);
    std::reverse(sets.begin(), sets.end());  // all of them is the likeliest
    for (const Axes& axes : sets) {
      add_padding("padding_swapped", "the padding after is put before: ", axes,
                  [](SpatialAxis& a) { a.pad_before = a.pad_after; });
    }
    const auto padded = [](const SpatialAxis& a) { return a.pad_before > 0; };
    const auto ignored = [](SpatialAxis& a) { a.pad_before = 0; };
    sets = subsets(pb_, padded);
    if (!sets.empty()) {
      add_padding("padding_ignored", "the padding is ignored: ", sets.back(), ignored);
    }
    const auto wide = [](const SpatialAxis& a) { return a.in > 1 || a.taps > 1; };
    for (const Axes& axes : subsets(pb_, wide)) {
      for (const int step : {1, -1}) {
        add_padding("padding_off_by_one", "", axes,
                    [step](SpatialAxis& a) { a.pad_before += step; });
      }
    }
    add_swapped("padding", &SpatialAxis::pad_before);
    for (const Axes& axes : sets) {
      add_padding("padding_ignored", "the padding is ignored: ", axes, ignored);
    }
    add_of_others("padding", &SpatialAxis::pad_before, false);
    if (reaches_outside(pb_)) add_outside();
  }

  void add_outside() {
    struct Row {
      const char* name;
      const char* text;
      const char* cause;
      Outside outside;
    };
    constexpr const char* kName = "padding_values";
    const Row rows[] = {
        {"padding_multiplied", "0 * out_backprop is added at taps outside input",
         "NaN and Inf spread from the padding where it is stored as zeros", Outside::constant},
        {kName, "padding repeats the edge of input instead of zeros",
         "padding_mode='replicate', or coordinates that are clamped", Outside::edge},
        {kName, "padding reflects input instead of zeros", "padding_mode='reflect'",
         Outside::reflected},
        {kName, "padding continues input on its other side instead of zeros",
         "padding_mode='circular', or the next row in memory", Outside::wrapped},
        {kName, "padding reads the image before, or after",
         "a mask that is missing: what is next in memory is read", Outside::images}};
    for (const Row& row : rows) {
      Reading reading = plain_;
      reading.outside = row.outside;
      reading.x.beside = row.outside == Outside::images;
      add_reading(row.name, row.text, row.cause, reading, reading.x.beside);
    }
  }

  using Field = std::int64_t SpatialAxis::*;

  // Adds one field of h and w, each in the other's place.
  void add_swapped(const std::string& what, Field field) {
    Reading reading = plain_;
    std::swap(reading.axis[1].*field, reading.axis[2].*field);
    add_reading("attribute_order", cat("the ", what, " of h and w are swapped"),
                "the axes' order in the attribute", reading);
  }

  // Adds one field of an axis in place of those of others.
  void add_of_others(const std::string& what, Field field, bool same_padding) {
    for (const std::size_t from : spatial_axes(pb_)) {
      const std::int64_t value = pb_.axis[from].*field;
      const auto other = [&](const SpatialAxis& a) {
        return a.*field != value && (a.in > 1 || a.taps > 1);
      };
      for (const Axes& axes : subsets(pb_, other)) {
        add_with_padding(
            "attribute_order",
            cat("the ", what, " of ", kAxisNames[from], " is taken for ", axis_names(axes)),
            "one number of an attribute that is used for all axes", axes,
            [&](SpatialAxis& a) { a.*field = value; }, same_padding);
      }
    }
  }

  // Adds strides or dilations that are ignored, another axis', one more or less, along any set of
  // axes.
  void add_factors(const std::string& what, Field field, const char* ignored,
                   const char* one_more) {
    const Axes all = spatial_axes(pb_);
    const bool same = reaches_outside(pb_);
    const auto named = [&](const Axes& axes) {
      return axes == all ? cat("the ", what, "s are ")
                         : cat("the ", what, axes.size() > 1 ? "s" : "", " of ", axis_names(axes),
                               axes.size() > 1 ? " are " : " is ");
    };
    std::vector<Axes> sets = subsets(pb_, [&](const SpatialAxis& a) { return a.*field > 1; });
    sets.insert(sets.begin(), all);
    for (const Axes& axes : sets) {
      add_with_padding(what + "s_ignored", cat(named(axes), "ignored"), ignored, axes,
                       [&](SpatialAxis& a) { a.*field = 1; });
    }
    add_swapped(what + "s", field);
    add_of_others(what, field, same);
    sets = subsets(pb_, [](const SpatialAxis& a) { return a.in > 1 || a.taps > 1; });
    std::reverse(sets.begin(), sets.end());  // all of them is the likeliest
    for (const Axes& axes : sets) {
      for (const int step : {1, -1}) {
        const auto change = [&](SpatialAxis& a) { a.*field += step; };
        const Reading reading = changed(axes, change);
        if (std::any_of(axes.begin(), axes.end(),
                        [&](std::size_t a) { return reading.axis[a].*field < 1; })) {
          continue;
        }
        add_with_padding(what + "s_off_by_one",
                         cat(named(axes), "one ",
                             step > 0 ? "more: " : "less: ", fields_text(reading, axes, field),
                             " in place of ", fields_text(plain_, axes, field)),
                         step > 0 ? one_more : "a distance that is counted in the elements between",
                         axes, change, same);
      }
    }
  }

  void add_strides_and_dilations() {
    add_with_padding("stride_dilation_swapped", "strides and dilations are swapped",
                     "the order of arguments", spatial_axes(pb_),
                     [](SpatialAxis& a) { std::swap(a.stride, a.dilation); });
    add_factors("dilation", &SpatialAxis::dilation, "TensorFlow's depthwise op on the CPU does so",
                "a library that counts dilations from 0");
    add_factors("stride", &SpatialAxis::stride, "", "");
  }

  // Lists ways to number count channels that lie in groups.
  struct Numbering {
    const char* text;
    Fault::Map map;
  };
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
    if (pb_.groups == 1) return;
    const WgradProblem& pb = pb_;
    for (const Numbering& n : numberings(pb_.groups, pb_.K)) {
      add_moved("group_order", cat("its groups are ", n.text), "",
                [pb, map = n.map](std::int64_t index) {
                  return index / pb.K * pb.K + map(index % pb.K);
                });
    }
    // Groups of the gradient only move; those of a tensor meet other groups, which takes new sums.
    const std::vector<Numbering> x = numberings(pb_.groups, pb_.C);
    const std::vector<Numbering> dy = numberings(pb_.groups, pb_.K);
    for (const Numbering& n : x) {
      list_.push_back(
          {"group_order", cat("the groups of input are ", n.text), "", plain_, nullptr, n.map});
    }
    for (std::size_t i = 0; i < dy.size(); ++i) {
      list_.push_back({"group_order", cat("the groups of out_backprop are ", dy[i].text), "",
                       plain_, nullptr, nullptr, dy[i].map});
      list_.push_back({"group_order", cat("the groups of input and out_backprop are ", dy[i].text),
                       "", plain_, nullptr, x[i].map, dy[i].map});
    }
  }

  void add_left_out() {
    for (const std::size_t a : spatial_axes(pb_)) {
      for (const bool of_x : {false, true}) {
        if (extents_of(pb_, of_x)[a] < 2) continue;
        for (const bool last : {true, false}) {
          Reading reading = plain_;
          Range& range = (of_x ? reading.in : reading.out)[a];
          last ? --range.end : ++range.begin;
          add_reading("line_left_out",
                      cat("the ", last ? "last " : "first ", kLines[a], " of ", tensor_name(of_x),
                          " is left out"),
                      "a loop that ends too early, or a mask that is one off", reading);
        }
      }
    }
  }

  // Adds shifts: what leaves a tensor on one side does not come back on the other.
  void add_shifts() {
    for (const std::size_t a : spatial_axes(pb_)) {
      for (const int step : {1, -1}) {
        const auto add = [&](const char* tensor, std::int64_t padding,
                             std::array<Range, 3> Reading::*positions) {
          Reading reading = plain_;
          // A shifted tensor is read with another padding and without the line that has left it. A
          // step of dy is `stride` positions of x.
          reading.axis[a].pad_before += padding;
          Range& range = (reading.*positions)[a];
          step > 0 ? --range.end : ++range.begin;
          if (range.size() < 1) return;
          add_reading("shifted",
                      cat(tensor, " is shifted by one ", kLines[a], step > 0 ? "" : " backwards"),
                      "an offset that is one off", reading);
        };
        add("input", step, &Reading::in);
        add("out_backprop", -step * pb_.axis[a].stride, &Reading::out);
      }
    }
  }
};

}  // namespace

bool Fault::moves_only(const WgradProblem& problem) const {
  return !x_channel && !dy_channel && reading == plain_reading(problem);
}

EntryTerms Fault::terms(const WgradProblem& problem, std::int64_t index) const {
  EntryTerms result = entry_terms(problem, moved ? moved(index) : index);
  if (x_channel) result.x_channel = x_channel(result.x_channel);
  if (dy_channel) result.dy_channel = dy_channel(result.dy_channel);
  return result;
}

void FaultList::add_reading(const std::string& name, const std::string& text,
                            const std::string& cause, const Reading& reading, bool rare) {
  const auto same = [&](const Fault& f) { return f.reading == reading; };
  if (reading == plain_ || std::ranges::any_of(list_, same)) return;
  list_.push_back({name, text, cause, reading});
  list_.back().rare = rare;
}

std::vector<Fault> known_faults(const WgradProblem& problem, const Facts& facts) {
  return Faults(problem).take(facts);
}

}  // namespace convgrad::diagnosis
