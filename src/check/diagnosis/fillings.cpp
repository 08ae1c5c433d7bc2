// fillings.cpp - see judge.hpp: finds what may stand in the place of what a fault predicts.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/judge.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;

// To choose one of the parts of the gradient, or one of some types and roundings, costs so many
// bits; scripts/measure_diagnosis names as many faults with none and with twice as many.
constexpr double kInsteadBits = 8, kNarrowBits = 4;
// Finds the types of which all values at some positions are, but not the right ones, and returns
// fillings that round or cut off to them. only: these positions' place, "" for all; in all the
// suspect's own type may cut off, too.
std::vector<Filling> grids_at(const Evidence& e, Positions positions, const std::string& only) {
  struct Type {
    const char* name;
    DType like;
    double part;
    Treatment treatment;
  };
  const DType out = e.problem().out_dtype;
  std::vector<Filling> list;
  const auto add = [&](const Grid& grid, const std::string& name) {
    const bool upper_half = grid.like == DType::bf16 && grid.part == 1;
    const char* const cause = !grid.cut    ? "a result that was stored in that type"
                              : upper_half ? "taking the upper half of a float32"
                                           : "a conversion that rounds towards 0";
    const std::string text = cat("it is ", grid.cut ? "cut off" : "rounded", " to ", name, " once");
    list.push_back({.grid = grid,
                    .parts = {{"result_precision", text, cause, true}},
                    .only = only,
                    .alone = grid.own || !only.empty()});
  };
  std::erase_if(positions, [&](std::size_t at) { return !std::isfinite(e.got(at)); });
  // Types come from the narrowest on, and only the first that holds every value counts.
  for (const Type& type : {Type{"bfloat16", DType::bf16, 1, Treatment::bf16},
                           Type{"float16", DType::f16, 1, Treatment::f16},
                           Type{"TF32", DType::bf16, 1.0 / 8, Treatment::tf32_cut},
                           Type{"float32", DType::f32, 1, Treatment::f32}}) {
    const auto kept = [&](double v) { return treated(type.treatment, out, v) == v; };
    const auto holds = [&](std::size_t at) { return kept(e.got(at)); };
    if (unit_roundoff(type.like) * type.part <= unit_roundoff(out)) continue;
    if (!std::ranges::all_of(positions, holds)) continue;
    // A type that holds most of the right values, too, is none that was rounded to.
    double nonzero = 0, others = 0;
    for (const std::size_t at : positions) {
      const double want = rounded(out, e.want(at));
      nonzero += e.want(at) != 0 ? 1 : 0;
      others += !std::isfinite(want) || kept(want) ? 0 : 1;
    }
    if (others <= 0.5 * std::max(nonzero, 1.0)) continue;
    // Both have 11 bits; numbers within float16's range do not tell them apart.
    const bool either = type.like == DType::f16 && unit_roundoff(out) < unit_roundoff(DType::f16);
    for (const bool cut : {false, true}) {
      add({type.like, type.part, cut}, either ? "float16 or TF32" : type.name);
    }
    break;
  }
  if (only.empty() && unit_roundoff(out) > unit_roundoff(accumulator_dtype(e.problem().dtype))) {
    add({.like = out, .cut = true, .own = true}, std::string(dtype_name(out)));
  }
  return list;
}

// A kernel may round in one place what another stores right: a channel, a tap, a tile.
std::vector<Filling> grids_of(const Evidence& e) {
  std::vector<Filling> grids = grids_at(e, e.all(), "");
  if (!grids.empty() || !e.where().is_part()) return grids;
  Positions inside = e.all();
  std::erase_if(inside, [&](std::size_t at) { return !e.is_inside(at); });
  return grids_at(e, std::move(inside), e.where().text);
}

// Lists nothing, parts that are wrongly 0, NaN or finite, and the place that is wrong.
std::vector<Filling> parts_of(const Evidence& e) {
  std::vector<Filling> list(1);
  const auto add = [&](Instead instead, const char* value, const char* name, const char* cause,
                       const auto& mark) {
    std::vector<Marked> marks;
    for (const std::size_t at : e.all()) marks.push_back({e.index(at), mark(at)});
    if (std::ranges::none_of(marks, [](const Marked& m) { return m.mark == Mark::in; })) return;
    const Place where = place_of(e.problem(), marks);
    const bool finite = instead == Instead::finite;  // NaN and Inf of x and dy are anywhere
    if (where.text.empty() || !(where.pattern || finite)) return;
    const std::string text = finite             ? cat(value, where.text)
                             : where.everything ? cat("every element is set to ", value)
                                                : cat(value, " is in place of ", where.text);
    Filling& filling = list.emplace_back();
    filling.instead = instead;
    filling.bits = kInsteadBits;
    filling.parts = {{name, text, cause}};
    filling.alone = where.everything;
  };
  add(Instead::zero, "0", "zero", "a part that no block of threads wrote, or a mask",
      [&](std::size_t at) {
        // A 0 that may be right may belong to the place or not.
        const bool lost = e.error(at) > kWrong && e.want(at) != 0 && std::isfinite(e.want(at));
        return e.got(at) != 0 ? Mark::out : lost ? Mark::in : Mark::either;
      });
  add(Instead::nan, "NaN", "nan", "memory that was never written, or 0 * Inf", [&](std::size_t at) {
    return !std::isnan(e.got(at)) ? Mark::out : std::isnan(e.want(at)) ? Mark::either : Mark::in;
  });
  add(Instead::finite, "NaN and Inf are suppressed: it is finite where the reference is not, ",
      "nonfinite_suppressed", "nan_to_num, a mask, or minimum and maximum that drop NaN",
      [&](std::size_t at) {
        return !std::isfinite(e.want(at)) && std::isfinite(e.got(at)) ? Mark::in : Mark::out;
      });
  // What is changed in a place alone is said by the fault itself.
  if (e.where().is_part()) {
    Filling& plain = list.emplace_back();
    plain.instead = Instead::plain;
    plain.bits = std::max(kInsteadBits, e.where().bits);
    plain.only = e.where().text;
  }
  return list;
}

}  // namespace

// Each part comes by itself and with numbers of a narrow type; then all of them multiplied.
std::vector<Filling> fillings_of(const Evidence& evidence) {
  std::vector<Filling> parts = parts_of(evidence), fillings;
  const std::vector<Filling> grids = grids_of(evidence);
  for (const bool multiplied : {false, true}) {
    for (Filling& filling : parts) {
      filling.multiplied = multiplied;
      fillings.push_back(filling);
      for (const Filling& of : grids) {
        if ((multiplied && of.alone) || (!of.only.empty() && of.only != filling.only)) continue;
        Filling& narrow = fillings.emplace_back(filling);
        narrow.grid = of.grid;
        narrow.bits += kNarrowBits;
        narrow.parts.push_back(of.parts[0]);
        narrow.alone = narrow.alone || of.alone;
      }
    }
  }
  return fillings;
}

}  // namespace convgrad::diagnosis
