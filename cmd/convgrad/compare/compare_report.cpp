// compare_report.cpp - the reports of comparisons, in numpy's words and as JSON.
#include "base/messages.hpp"
#include "compare/compare.hpp"
#include "files/array.hpp"

namespace convgrad::cli {
namespace {

std::string criterion_text(const CompareReport& r) {
  const Tolerance& t = r.tolerance.tolerance;
  if (r.integers && r.by_default) return "every value equal";
  switch (t.criterion) {
    case Criterion::max_ulp:
      return cat("at most ", t.max_ulp, " ULP of ", dtype_name(r.tolerance.ulp_dtype));
    case Criterion::bitwise:
      return "every bit equal";
    default:
      return cat("rtol=", general(t.rtol, 6), ", atol=", general(t.atol, 6),
                 r.by_default ? cat(" (defaults of ", dtype_name(r.tolerance.ulp_dtype), ")")
                              : std::string());
  }
}

std::string dtypes_and_shape(const CompareReport& r) {
  std::string text = r.got_dtype;
  if (r.got_dtype != r.want_dtype) text += cat(" and ", r.want_dtype);
  return cat(text, " ", shape_text(r.shape));
}

std::string place(const CompareReport& r, const PairError& error) {
  const int digits = r.integers ? 20 : 9;  // as many as any integer has
  return cat(" at ", bracketed(position_of(r.shape, error.index)), ": got ",
             general(error.got, digits), ", want ", general(error.want, digits));
}

// Returns a line on the largest difference of all, and one on that of mismatches if it is another.
std::string worst_lines(const CompareReport& r, const char* what, PairError LargestErrors::*of) {
  std::string text;
  const bool relative = of == &LargestErrors::rel;
  const ArrayComparison& c = r.comparison;
  for (const LargestErrors* largest : {&c.failing, &c.all}) {
    const bool failing = largest == &c.failing;
    const PairError& error = largest->*of;
    if (failing && (c.match() || error.index == (c.all.*of).index)) continue;
    text += cat("Max ", what, " difference", failing ? " among mismatches" : "",
                relative && largest->zero_wants > 0 ? " of elements where want is not 0: " : ": ",
                general(error.value, 6), error.index < 0 ? "" : place(r, error), "\n");
  }
  return text;
}

std::string nonfinite_text(const NonFinite& counts) {
  return cat(counts.nan, " NaN, ", counts.inf, " Inf");
}

Json error_json(const CompareReport& r, const PairError& error) {
  Json json = {{"value", number(error.value)}};
  if (error.index >= 0) {
    json["index"] = position_of(r.shape, error.index);
    json["got"] = number(error.got, r.integers);
    json["want"] = number(error.want, r.integers);
  }
  return json;
}

Json largest_json(const CompareReport& r, const LargestErrors& largest) {
  Json json = {{"max_abs", error_json(r, largest.abs)}, {"max_rel", error_json(r, largest.rel)}};
  if (!r.integers) json["max_ulp"] = error_json(r, largest.ulp);
  if (largest.zero_wants > 0) json["zero_wants"] = largest.zero_wants;
  return json;
}

// Returns "1 / 36 (2.78 %)".
std::string part_text(std::int64_t part, std::int64_t whole) {
  const double percent =
      whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
  return cat(part, " / ", whole, " (", general(percent, 3), " %)");
}

Json comparison_json(const CompareReport& r) {
  const ArrayComparison& c = r.comparison;
  Json json = {{"verdict", r.status()},
               {"got", r.got},
               {"want", r.want},
               {"criterion", criterion_text(r)},
               {"equal_nan", r.tolerance.equal_nan}};
  if (!r.refused.empty()) {
    json["refused"] = r.refused;
    return json;
  }
  json["count"] = c.count;
  json["mismatches"] = c.mismatches;
  json.update(largest_json(r, c.all));
  if (!c.match()) {
    json["failing"] = largest_json(r, c.failing);
    json["first_mismatch"] = error_json(r, c.first_mismatch);
  }
  json["nonfinite"] = {{"mismatches", c.nonfinite_mismatches},
                       {"got", {{"nan", c.got_nonfinite.nan}, {"inf", c.got_nonfinite.inf}}},
                       {"want", {{"nan", c.want_nonfinite.nan}, {"inf", c.want_nonfinite.inf}}}};
  return json;
}

}  // namespace

std::string CompareReport::text() const {
  const ArrayComparison& c = comparison;
  std::string text = cat(matches() ? "MATCH: " : "MISMATCH: ", got, " against ", want, ": ");
  if (!refused.empty()) {
    return cat(text, refused, "\n",
               saves_difference ? "No difference is written, since shapes or dtypes differ\n" : "");
  }
  text += dtypes_and_shape(*this) + "\n";
  text += cat(matches() ? "Equal to tolerance " : "Not equal to tolerance ", criterion_text(*this),
              tolerance.equal_nan ? "" : ", NaN equals nothing", "\n");
  text += cat("Mismatched elements: ", part_text(c.mismatches, c.count), "\n");
  text += worst_lines(*this, "absolute", &LargestErrors::abs);
  text += worst_lines(*this, "relative", &LargestErrors::rel);
  if (!integers) text += worst_lines(*this, "ULP", &LargestErrors::ulp);
  if (!c.match()) text += cat("First mismatch", place(*this, c.first_mismatch), "\n");
  if (c.nonfinite_mismatches > 0) {
    text += cat("Mismatches that are not finite: ", c.nonfinite_mismatches, ", the first",
                place(*this, c.first_nonfinite), "\n");
  }
  const NonFinite &of_got = c.got_nonfinite, &of_want = c.want_nonfinite;
  if (of_got.nan + of_got.inf + of_want.nan + of_want.inf > 0) {
    text +=
        cat("Not finite: got ", nonfinite_text(of_got), "; want ", nonfinite_text(of_want), "\n");
  }
  return text;
}

Json CompareReport::json() const {
  return {{"tensors", tensors_json(tensors)}, {"compare", comparison_json(*this)}};
}

std::string CollectionReport::text() const {
  std::string lines;
  std::int64_t equal = 0;
  for (const auto& [name, array] : arrays) {
    equal += array.matches() ? 1 : 0;
    lines += cat(array.matches() ? "match     " : "mismatch  ", name, "  ");
    if (!array.refused.empty()) {
      lines += cat(array.refused, "\n");
      continue;
    }
    const ArrayComparison& c = array.comparison;
    lines += dtypes_and_shape(array);
    if (!array.matches()) {
      lines +=
          cat(", ", part_text(c.mismatches, c.count), ", first", place(array, c.first_mismatch));
    }
    lines += "\n";
  }
  for (const auto& [names, file] : {std::pair(&only_got, &got), std::pair(&only_want, &want)}) {
    for (const std::string& name : *names)
      lines += cat("mismatch  ", name, "  is in ", *file, " alone\n");
  }
  const std::size_t all = arrays.size() + only_got.size() + only_want.size();
  return cat(matches() ? "MATCH: " : "MISMATCH: ", got, " against ", want, ": ", equal, " of ",
             counted(all, "array"), equal == 1 ? " matches\n" : " match\n", lines);
}

Json CollectionReport::json() const {
  Json list = Json::array();
  for (const auto& [name, array] : arrays) {
    list.push_back({{"name", name}});
    list.back().update(array.json());
  }
  return {{"compare",
           {{"verdict", status()},
            {"got", got},
            {"want", want},
            {"arrays", list},
            {"only_got", only_got},
            {"only_want", only_want}}}};
}

}  // namespace convgrad::cli
