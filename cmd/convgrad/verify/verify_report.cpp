#include <algorithm>
#include <cmath>

#include "base/messages.hpp"
#include "options/arguments.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

std::vector<std::int64_t> tap_position(const WgradProblem& pb, std::int64_t tap) {
  const TapPlace at = tap_place(pb, tap);
  return {at.end() - pb.spatial_rank(), at.end()};
}

std::string criterion_text(const Tolerance& t) {
  switch (t.criterion) {
    case Criterion::rounding:
      return cat("rms of error/rounding <= ", general(t.slack, 6),
                 "*g(n) of n elements: all, each tap, channel and element");
    case Criterion::bound:
      return cat("|got-want| <= u_out*|want| + ", kBoundFactor, "*sqrt(L)*u_acc*sum|x||dy|");
    case Criterion::tolerance:
      return cat("|got-want| <= ", general(t.atol, 6), " + ", general(t.rtol, 6), "*|want|");
    case Criterion::max_ulp:
      return cat("at most ", t.max_ulp, " ULP");
    default:
      return "every bit equal";
  }
}

Json error_json(const WgradProblem& pb, const ElementError& error) {
  Json json = {{"value", number(error.value)}};
  if (error.index >= 0) {
    json["index"] = element_position(pb, error.index);
    json["got"] = number(error.got);
    json["want"] = number(error.want);
  }
  return json;
}

Json group_json(const WgradProblem& pb, const GroupError& error) {
  constexpr const char* kKinds[] = {"all",     "tap",  "input_channel", "output_channel",
                                    "element", "limit"};
  Json json = {{"kind", kKinds[static_cast<std::size_t>(error.kind)]}};
  if (error.kind == GroupKind::tap) json["tap"] = tap_position(pb, error.index);
  if (error.kind == GroupKind::input_channel || error.kind == GroupKind::output_channel) {
    json["channel"] = error.index;
  }
  if (error.kind >= GroupKind::element) json["index"] = element_position(pb, error.index);
  json["rms"] = number(error.rms);
  json["allowed"] = error.allowed;
  return json;
}

Json rounding_json(const WgradProblem& pb, const RoundingErrors& e) {
  return {{"score", number(e.worst.score())},
          {"rms", number(e.all.rms)},
          {"group", group_json(pb, e.worst)},
          {"failing_groups", e.failing},
          {"scale", number(e.scale)},
          {"right_relative_error", number(e.right)},
          {"detectable",
           {{"element", number(e.element)},
            {"tap", number(e.tap)},
            {"gradient", number(e.gradient)},
            {"pixels", number(e.pixels)}}}};
}

// Returns true if only the errors' size is wrong, and the worst case would allow it.
bool is_accuracy(const VerifyReport& r, const Comparison& c) {
  return r.has_rounding() && !c.match() && c.within_bound && !c.structure;
}

// Returns "tap [0,1]".
std::string group_name(const WgradProblem& pb, const GroupError& error) {
  switch (error.kind) {
    case GroupKind::all:
      return "all elements";
    case GroupKind::tap:
      return "tap " + tap_text(pb, error.index);
    case GroupKind::input_channel:
      return cat("input channel ", error.index);
    case GroupKind::output_channel:
      return cat("output channel ", error.index);
    default:
      return element_text(pb, error.index);
  }
}

// Returns " at tap [0,1]" or " over all elements".
std::string place_text(const WgradProblem& pb, const GroupError& group) {
  return (group.kind == GroupKind::all ? " over " : " at ") + group_name(pb, group);
}

std::string accuracy_text(const VerifyReport& r, const Comparison& c) {
  const GroupError& worst = c.rounding->worst;
  return cat("reason: accuracy: every element is within the worst-case bound, but errors are ",
             group_text(r.problem, worst),
             worst.kind == GroupKind::limit
                 ? ""
                 : cat(" of a ", dtype_name(accumulator_dtype(r.problem.dtype)), " sum"),
             ": lower precision or missing terms; --criterion bound accepts it");
}

// Returns "[5,9,13]", a pixel of out_backprop.
std::string pixel_text(const WgradProblem& pb, std::int64_t pixel) {
  const std::array<std::int64_t, 4> at = pixel_place(pb, pixel);
  std::vector<std::int64_t> shown(at.end() - pb.spatial_rank(), at.end());
  shown.insert(shown.begin(), at[0]);
  return bracketed(shown);
}

std::string structure_text(const VerifyReport& r, const Structure& s) {
  const std::string chance = cat("by chance once in 2^", fixed(s.bits, 0), " times");
  switch (s.form) {
    case Structure::Form::pixel:
      return cat("reason: structure: errors are the terms of pixel ",
                 pixel_text(r.problem, s.index), " of out_backprop, ",
                 s.size < 0 ? "which is left out (" : "which is there twice (", chance, ")");
    case Structure::Form::inputs:
      return cat("reason: structure: errors are what is lost where ", s.text, " (", chance, ")");
    case Structure::Form::factor:
      return cat("reason: structure: errors are ", general(s.size, 3), " times the gradient",
                 place_text(r.problem, {s.kind, s.index}), " (", chance, ")");
    default:
      return cat("reason: structure: errors make elements ", s.size < 0 ? "smaller" : "larger",
                 place_text(r.problem, {s.kind, s.index}), ", as digits that are cut off do (",
                 chance, ")");
  }
}

// Returns what is wrong besides elements that fail by themselves, or "".
std::string reason_text(const VerifyReport& r, const Compared& v) {
  const Comparison& c = v.comparison;
  if (v.cut) {
    const std::int64_t n = v.cut->longest_sum;
    return cat("reason: adders: errors are those of ", n > 0 ? "sums" : "3xTF32",
               " on tensor cores, whose adders cut digits off",
               n > 0 ? cat(", of up to ", n, " terms at a time; --longest-sum ", n)
                     : std::string("; --adders tensor-core"),
               " accepts it");
  }
  if (c.structure) return structure_text(r, *c.structure);
  return is_accuracy(r, c) ? accuracy_text(r, c) : "";
}

// Returns "agrees to 13.4 bits; right float32 sums of these data agree to 19.7".
std::string agreement_line(const VerifyReport& r, const Compared& v) {
  const Comparison& c = v.comparison;
  if (c.rounding && c.rounding->zero) {
    return cat("the gradient is 0 as far as float64 shows; errors at most ",
               group_text(r.problem, c.rounding->worst));
  }
  std::string text = "agrees to " + agreement_text(c.relative_error);
  if (std::isinf(c.abs.value)) text += " where both are finite";
  if (!c.rounding) return text;
  const DType sums = accumulator_dtype(r.problem.dtype);
  if (c.rounding->right > 0 && c.rounding->right < 1) {
    text += cat(
        "; right ", dtype_name(sums), " sums of these data",
        unit_roundoff(v.dtype) > unit_roundoff(sums) ? cat(", as ", dtype_name(v.dtype), ",") : "",
        " agree to ", fixed(-std::log2(c.rounding->right), 1));
  }
  if (!is_accuracy(r, c)) text += "; errors at most " + group_text(r.problem, c.rounding->worst);
  return text + cat("; rounding's = ", general(c.rounding->scale, 2), " here");
}

// Returns how large faults must be, typically, for a match to see them.
std::string detectable_text(const RoundingErrors& e) {
  std::string text = cat("would have failed, typically: one element off by ", general(e.element, 2),
                         " of the gradient's rms, one tap by ", general(e.tap, 2),
                         ", all elements by ", general(e.gradient, 2));
  if (e.pixels == 0) return text + "; left-out pixels would not be seen";
  return text + cat("; ", general(e.pixels, 3), e.pixels == 1 ? " pixel" : " pixels", " left out");
}

bool all_match(const VerifyReport& r) {
  return std::ranges::all_of(r.verdicts, [](const Compared& v) { return v.match(); });
}

// Returns true if it fails because an order is assumed, and --fail-assumed says that it should.
bool is_assumed_failure(const VerifyReport& r) {
  return r.options.verify.fail_assumed && all_match(r) &&
         std::ranges::any_of(r.verdicts,
                             [](const Compared& v) { return v.order_assumed.has_value(); });
}

// Returns true if it fails because nothing was tested, and --fail-vacuous says that it should.
bool is_vacuous_failure(const VerifyReport& r) {
  return r.options.verify.fail_vacuous && !r.vacuous.empty() && all_match(r);
}

// Returns "3 of 36 elements fail", or which elements do together where none does alone.
std::string failing_text(const VerifyReport& r, const Comparison& c) {
  if (c.mismatches > 0 || c.match()) return cat(c.mismatches, " of ", c.count, " elements fail");
  if (c.structure) return "no element is off by itself, but their errors have a pattern";
  const GroupError& worst = c.rounding->worst;
  return cat("no single element fails, but ", group_name(r.problem, worst),
             worst.kind == GroupKind::all ? " together do" : " does");
}

const char* but_runs_differ(const VerifyReport& r) {
  return r.notes.failed && all_match(r) ? ", but the runs differ" : "";
}

std::string order_text(const Verdict::Order& order) {
  return cat("it sums in another order than n, z, p, q: errors are ", general(order.rms, 3),
             " times what that order makes, another may make ", general(order.allowed, 3),
             "; --order natural or the probe (generate --signs) decides");
}

// Returns the verdict and its cause, which comes first if there is one.
std::string verdict_line(const VerifyReport& r, const Compared& v, bool match) {
  const Comparison& c = v.comparison;
  const std::string compared = cat(v.got, " against ", v.want);
  if (!r.wrong_dtype.empty() && all_match(r)) {
    return cat("MISMATCH: ", r.wrong_dtype, "; its numbers match");
  }
  if (!r.vacuous.empty() && (match || is_vacuous_failure(r))) {
    return cat(match ? "MATCH, but " : "MISMATCH: ", "nothing was tested: ", r.vacuous, "; ",
               compared);
  }
  if (v.match() && v.order_assumed) {
    return cat(match ? "MATCH if " : "MISMATCH: it matches only if ", order_text(*v.order_assumed),
               "; ", compared);
  }
  if (!v.accepted.empty()) {
    return cat("MATCH, with ", v.accepted, " accepted: ", v.cause, "; ", compared);
  }
  if (!match && !v.cause.empty()) {
    return cat("MISMATCH: ", v.cause, " (", failing_text(r, c), "); ", compared);
  }
  const double part =
      c.count > 0 ? 100.0 * static_cast<double>(c.mismatches) / static_cast<double>(c.count) : 0;
  return cat(match ? "MATCH: " : "MISMATCH: ", compared, ", ", failing_text(r, c),
             c.mismatches > 0 || c.match() ? cat(" (", general(part, 3), " %)")
             : is_accuracy(r, c)           ? " (accuracy)"
                                           : "",
             but_runs_differ(r));
}

// Returns a line about a gradient that is not reported in full.
std::string other_line(const VerifyReport& r, const Compared& v) {
  const Comparison& c = v.comparison;
  std::string text = cat(v.got, ": ", v.match() ? "MATCH" : "MISMATCH", " against ", v.want, ", ",
                         failing_text(r, c), ", agrees to ", agreement_text(c.relative_error));
  if (c.rounding) text += cat(", errors ", group_text(r.problem, c.rounding->worst));
  return text;
}

Json structure_json(const VerifyReport& r, const Structure& s) {
  constexpr const char* kForms[] = {"factor", "digits", "pixel", "inputs"};
  return {{"form", kForms[static_cast<std::size_t>(s.form)]},
          {"text", structure_text(r, s)},
          {"size", number(s.size)},
          {"bits", number(s.bits)}};
}

// Returns what to do where no known fault explains a result, or "".
std::string next_step(const VerifyReport& r, const Comparison& c) {
  if (!r.diagnosis || r.diagnosis->tried == 0 || r.matches()) return "";
  const VerifyOptions& v = r.options.verify;
  std::vector<std::string> steps;
  if (!r.diagnosis->findings.empty()) {
    const Finding& first = r.diagnosis->findings[0].finding;
    if (!first.only_rounds) return "";
    if (first.covers_all) {
      return cat("next: --accept ", first.fault, " if the kernel does so on purpose");
    }
  }
  if (c.mismatches > 0 && c.mismatches < c.count && !v.show) {
    steps.emplace_back("--show 5 lists the worst elements");
  }
  if (v.results.size() == 1 && c.mismatches < c.count) {
    steps.emplace_back("a second run as another --result shows whether it repeats");
  }
  if (v.results.empty()) steps.emplace_back("--algorithm NAME tries another kernel");
  return steps.empty() ? "" : "next: " + joined(steps, "; ");
}

Json comparison_json(const VerifyReport& r, const Compared& v) {
  const Comparison& c = v.comparison;
  Json json = {{"verdict", v.match() ? "match" : "mismatch"},
               {"got", v.got},
               {"dtype", dtype_name(v.dtype)},
               {"want", v.want},
               {"criterion", criterion_text(r.tolerance)},
               {"count", c.count},
               {"mismatches", c.mismatches},
               {"failing", failing_text(r, c)},
               {"relative_error", number(c.relative_error)},
               {"max_abs", error_json(r.problem, c.abs)},
               {"max_rel", error_json(r.problem, c.rel)},
               {"max_ulp", error_json(r.problem, c.ulp)}};
  if (c.has_bound) json["max_ratio"] = error_json(r.problem, c.ratio);
  if (c.rounding) json["rounding"] = rounding_json(r.problem, *c.rounding);
  if (v.order_assumed) {
    json["order_assumed"] = {{"rms", number(v.order_assumed->rms)},
                             {"allowed", number(v.order_assumed->allowed)}};
  }
  if (!v.accepted.empty()) json["accepted"] = v.accepted;
  if (c.structure) json["structure"] = structure_json(r, *c.structure);
  if (!v.match()) {
    json["reason"] = v.cut               ? "adders"
                     : c.structure       ? "structure"
                     : is_accuracy(r, c) ? "accuracy"
                                         : "elements";
    if (v.cut && v.cut->longest_sum > 0) json["longest_sum"] = v.cut->longest_sum;
  }
  if (c.mismatches > 0) json["first_mismatch"] = error_json(r.problem, c.first_mismatch);
  json["taps"] = taps_json(r.problem, c, r.has_rounding());
  json["nonfinite"] = {{"got", {{"nan", c.got_nonfinite.nan}, {"inf", c.got_nonfinite.inf}}},
                       {"want", {{"nan", c.want_nonfinite.nan}, {"inf", c.want_nonfinite.inf}}}};
  json["all_zero"] = c.all_zero;
  return json;
}

Json compare_json(const VerifyReport& r) {
  Json json = comparison_json(r, r.verdicts[r.shown()]);
  json["verdict"] = r.status();
  json["failing"].get_ref<std::string&>() += but_runs_differ(r);
  json["vacuous"] = !r.vacuous.empty();
  if (is_vacuous_failure(r)) json["reason"] = "vacuous";
  if (is_assumed_failure(r)) json["reason"] = "assumed";
  if (!r.wrong_dtype.empty()) {
    if (all_match(r)) json["reason"] = "dtype";
    json["wrong_dtype"] = r.wrong_dtype;
  }
  if (!r.vacuous.empty()) json["why_vacuous"] = r.vacuous;
  if (!r.not_tested.empty()) json["not_tested"] = r.not_tested;
  if (r.verdicts.size() > 1) {
    Json all = Json::array();
    for (const Compared& v : r.verdicts) all.push_back(comparison_json(r, v));
    json["results"] = all;
  }
  if (r.diagnosis) json["diagnosis"] = r.diagnosis->json();
  for (const Notes* notes : {&r.coverage, &r.notes}) json.update(notes->json);
  json["repeat"] = r.options.command_line;
  return json;
}

}  // namespace

std::vector<std::int64_t> element_position(const WgradProblem& problem, std::int64_t index) {
  WgradProblem tensorflow = problem;
  tensorflow.filter_format = FilterFormat::hwio;
  return position_in_file(tensorflow, index);
}

std::string element_text(const WgradProblem& problem, std::int64_t index) {
  return bracketed(element_position(problem, index));
}

std::string tap_text(const WgradProblem& problem, std::int64_t tap) {
  return bracketed(tap_position(problem, tap));
}

Json taps_json(const WgradProblem& pb, const Comparison& c, bool by_rounding) {
  Json taps = Json::array();
  for (std::size_t i = 0; i < c.taps.size(); ++i) {
    taps.push_back({{"tap", tap_position(pb, static_cast<std::int64_t>(i))},
                    {"mismatches", c.taps[i].mismatches},
                    {"max_abs", number(c.taps[i].max_abs)}});
    if (c.has_bound) taps.back()["max_ratio"] = number(c.taps[i].max_ratio);
    if (by_rounding) taps.back()["rounding"] = number(c.taps[i].rounding);
  }
  return taps;
}

std::string agreement_text(double relative_error) {
  if (relative_error == 0) return "every bit";
  if (!(relative_error < 1)) return "no bit";
  return cat(fixed(-std::log2(relative_error), 1), " bits");
}

std::string group_text(const WgradProblem& pb, const GroupError& error) {
  const std::string place = place_text(pb, error);
  if (error.kind == GroupKind::limit) {
    return cat(general(error.rms, 3), " times the most that rounding can make", place);
  }
  return cat(general(error.rms, 3), " times rounding's (", general(error.allowed, 3), " allowed)",
             place);
}

std::size_t VerifyReport::shown() const {
  const auto wrong = std::ranges::find_if(verdicts, [](const Compared& v) { return !v.match(); });
  return wrong == verdicts.end() ? 0 : static_cast<std::size_t>(wrong - verdicts.begin());
}

bool VerifyReport::matches() const {
  return !notes.failed && wrong_dtype.empty() && !is_vacuous_failure(*this) &&
         !is_assumed_failure(*this) && all_match(*this);
}

std::string VerifyReport::text() const {
  const Compared& full = verdicts[shown()];
  const Comparison& c = full.comparison;
  const bool match = matches();
  std::string text;
  const auto add = [&text](const std::string& line) {
    if (!line.empty()) text += line + "\n";
  };
  const auto add_all = [&add](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) add(line);
  };
  add(verdict_line(*this, full, match));
  add(reason_text(*this, full));
  if (!wrong_dtype.empty() && !all_match(*this)) add("reason: dtype: " + wrong_dtype);
  if (diagnosis) add_all(diagnosis->lines);
  add(next_step(*this, c));
  if (c.want_nonfinite.nan + c.want_nonfinite.inf < c.count) add(agreement_line(*this, full));
  if (match && c.rounding && !c.rounding->zero && vacuous.empty()) {
    add(detectable_text(*c.rounding));
  }
  if (match && !not_tested.empty()) add("not tested: " + joined(not_tested, "; "));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (i != shown()) add(other_line(*this, verdicts[i]));
  }
  add_all(notes.lines);
  add(describe(problem));
  add("criterion: " + criterion_text(tolerance));
  add_all(coverage.lines);
  if (!all_match(*this) || options.execution.verbose) text += tables_text(*this, c);
  add("repeat: " + options.command_line);
  return colored_verdict(options, text);
}

Json VerifyReport::json() const {
  Json json = {{"tensors", tensors_json(tensors)}};
  json.update(problem_fields(problem));
  if (pass) {
    json["execution"] = plan_json(pass->plan);
    json.update(pass->timing.fields());
  }
  if (!options.problem.output.empty()) json["output"] = options.problem.output;
  json["compare"] = compare_json(*this);
  return json;
}

std::string VerifyReport::in_short() const {
  if (matches()) return "";
  const std::string line = verdict_line(*this, verdicts[shown()], false);
  return line.substr(line.find(' ') + 1);
}

}  // namespace convgrad::cli
