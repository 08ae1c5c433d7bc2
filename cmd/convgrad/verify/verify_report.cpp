// verify_report.cpp - see verify_report.hpp.
#include "verify/verify_report.hpp"

#include <cmath>
#include <cstdio>
#include <iomanip>

#include "convgrad/gradient_file.hpp"

namespace convgrad::cli {

std::vector<std::int64_t> tap_position(const WgradProblem& pb, std::int64_t tap) {
  std::vector<std::int64_t> index;
  const std::int64_t S = pb.axis[2].taps, R = pb.axis[1].taps;
  if (pb.op == Op::conv3d) index.push_back(tap / S / R);
  index.push_back(tap / S % R);
  index.push_back(tap % S);
  return index;
}

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

void Notes::add(const Notes& more) {
  failed = failed || more.failed;
  lines.insert(lines.end(), more.lines.begin(), more.lines.end());
  json.update(more.json);
}

std::string error_text(const WgradProblem& pb, const char* name, const ElementError& error) {
  TextWriter text;
  text << "  " << std::left << std::setw(16) << name;
  if (error.index < 0) {
    text << general(error.value, 4);
  } else {
    text << std::setw(12) << general(error.value, 4) << " at " << element_text(pb, error.index)
         << ": got " << general(error.got, 9) << ", want " << general(error.want, 9);
  }
  text << "\n";
  return text.str();
}

namespace {

std::string criterion_text(const Tolerance& t) {
  switch (t.criterion) {
    case Criterion::tolerance:
      return cat("|got-want| <= ", general(t.atol, 6), " + ", general(t.rtol, 6), "*|want|");
    case Criterion::max_ulp:
      return cat("at most ", t.max_ulp, " ULP");
    case Criterion::bitwise:
      return "every bit equal";
    default:
      return cat("|got-want| <= u_out*|want| + ", kBoundFactor, "*sqrt(L)*u_acc*sum|x||dy|");
  }
}

// "3", or "3 of 12" where not every element was compared.
std::string failures_text(const VerifyReport& r, const TapErrors& tap) {
  const std::int64_t cells = r.problem.dw_count() / r.problem.taps();
  return tap.count == cells ? cat(tap.mismatches) : cat(tap.mismatches, " of ", tap.count);
}

void tap_table(std::ostream& text, const VerifyReport& r) {
  text << "errors per tap   failures    largest |error|"
       << (r.comparison.has_bound ? "  error/bound" : "") << "\n";
  const std::size_t rows = std::min(r.comparison.taps.size(), kMaxTapRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const TapErrors& tap = r.comparison.taps[i];
    text << "  " << std::left << std::setw(15) << tap_text(r.problem, static_cast<std::int64_t>(i))
         << std::setw(12) << failures_text(r, tap);
    if (r.comparison.has_bound) {
      text << std::setw(17) << general(tap.max_abs, 4) << general(tap.max_ratio, 3);
    } else {
      text << general(tap.max_abs, 4);
    }
    text << "\n";
  }
  if (rows == r.comparison.taps.size()) return;
  TapErrors rest;
  for (std::size_t i = rows; i < r.comparison.taps.size(); ++i) {
    rest.mismatches += r.comparison.taps[i].mismatches;
    rest.max_abs = std::max(rest.max_abs, r.comparison.taps[i].max_abs);
  }
  text << "  " << std::left << std::setw(15) << cat(r.comparison.taps.size() - rows, " more")
       << std::setw(12) << rest.mismatches << general(rest.max_abs, 4) << "\n";
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

}  // namespace

std::string verify_text(const VerifyReport& r) {
  const Comparison& c = r.comparison;
  TextWriter text;
  text << (c.match() && !r.notes.failed ? "MATCH" : "MISMATCH") << ": " << r.got << " against "
       << r.want << ", " << c.mismatches << " of " << c.count << " elements fail ("
       << general(c.count > 0
                      ? 100.0 * static_cast<double>(c.mismatches) / static_cast<double>(c.count)
                      : 0,
                  3)
       << " %)\n";
  text << describe(r.problem) << "\n";
  text << "criterion: " << criterion_text(r.tolerance) << "\n";
  for (const std::string& line : r.coverage.lines) text << line << "\n";
  text << "largest errors\n";
  text << error_text(r.problem, "absolute", c.abs);
  text << error_text(r.problem, "relative", c.rel);
  text << error_text(r.problem, "ULP", c.ulp);
  if (c.has_bound) text << error_text(r.problem, "error/bound", c.ratio);
  if (!c.match()) text << error_text(r.problem, "first mismatch", c.first_mismatch);
  tap_table(text, r);
  text << "non-finite: got " << c.got_nonfinite.nan << " NaN, " << c.got_nonfinite.inf
       << " Inf; want " << c.want_nonfinite.nan << " NaN, " << c.want_nonfinite.inf << " Inf\n";
  if (c.all_zero) text << "warning: every expected value is 0, so this check proves little\n";
  for (const std::string& line : r.notes.lines) text << line << "\n";
  text << "repeat: " << r.repeat << "\n";
  return text.str();
}

Json verify_json(const VerifyReport& r) {
  const Comparison& c = r.comparison;
  Json taps = Json::array();
  for (std::size_t i = 0; i < c.taps.size(); ++i) {
    Json tap = {{"tap", tap_position(r.problem, static_cast<std::int64_t>(i))},
                {"mismatches", c.taps[i].mismatches},
                {"max_abs", number(c.taps[i].max_abs)}};
    if (c.has_bound) tap["max_ratio"] = number(c.taps[i].max_ratio);
    taps.push_back(tap);
  }
  Json json = {{"verdict", c.match() && !r.notes.failed ? "match" : "mismatch"},
               {"got", r.got},
               {"want", r.want},
               {"criterion", criterion_text(r.tolerance)},
               {"count", c.count},
               {"mismatches", c.mismatches},
               {"max_abs", error_json(r.problem, c.abs)},
               {"max_rel", error_json(r.problem, c.rel)},
               {"max_ulp", error_json(r.problem, c.ulp)}};
  if (c.has_bound) json["max_ratio"] = error_json(r.problem, c.ratio);
  if (!c.match()) json["first_mismatch"] = error_json(r.problem, c.first_mismatch);
  json["taps"] = taps;
  json["nonfinite"] = {{"got", {{"nan", c.got_nonfinite.nan}, {"inf", c.got_nonfinite.inf}}},
                       {"want", {{"nan", c.want_nonfinite.nan}, {"inf", c.want_nonfinite.inf}}}};
  json["all_zero"] = c.all_zero;
  json.update(r.coverage.json);
  json.update(r.notes.json);
  json["repeat"] = r.repeat;
  return json;
}

}  // namespace convgrad::cli
