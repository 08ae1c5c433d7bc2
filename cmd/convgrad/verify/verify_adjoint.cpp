// verify_adjoint.cpp - see verify_adjoint.hpp.
#include "verify/verify_adjoint.hpp"

#include <iomanip>

namespace convgrad::cli {
namespace {

constexpr const char* kCriterion =
    "|<dW,V> - <dY,conv(X,V)>| <= 4*(u_out*|dW| + sqrt(L)*u_acc*|X|*|dY|), V of one tap and 16x16 "
    "channels";

void tap_table(std::ostream& text, const AdjointReport& r) {
  text << "errors per tap   failures    largest |error|  error/bound\n";
  const std::vector<AdjointTap>& taps = r.verdict.taps;
  for (std::size_t i = 0; i < std::min(taps.size(), kMaxTapRows); ++i) {
    text << "  " << std::left << std::setw(15) << tap_text(r.problem, static_cast<std::int64_t>(i))
         << std::setw(12) << taps[i].failures << std::setw(17) << general(taps[i].max_error, 4)
         << general(taps[i].max_ratio, 3) << "\n";
  }
  std::int64_t rest = 0;
  for (std::size_t i = kMaxTapRows; i < taps.size(); ++i) rest += taps[i].failures;
  if (taps.size() <= kMaxTapRows) return;
  text << "  " << std::left << std::setw(15) << cat(taps.size() - kMaxTapRows, " more") << rest
       << "\n";
}

std::string range_text(Range range) {
  return range.size() == 1 ? cat(range.begin) : cat(range.begin, "-", range.end - 1);
}

bool matches(const AdjointReport& r) { return r.verdict.match() && !r.notes.failed; }

}  // namespace

std::string adjoint_text(const AdjointReport& r) {
  const AdjointVerdict& v = r.verdict;
  TextWriter text;
  text << (matches(r) ? "MATCH" : "MISMATCH") << ": " << r.got
       << " against <dW,V> = <dY,conv(X,V)>, " << v.failures << " of " << v.equalities
       << " equalities fail\n";
  text << describe(r.problem) << "\n";
  text << "criterion: " << kCriterion << "\n";
  text << "checked: " << v.vectors << " V for each, seed " << r.seed
       << "; one wrong element is found for certain if it is off by more than "
       << general(v.certain_error, 3);
  if (v.rms_entry > 0) {
    text << ", " << general(v.certain_error / v.rms_entry, 3) << " of the elements' rms";
  }
  text << "\n";
  text << "largest error/bound " << general(v.worst_ratio, 4) << " at tap "
       << tap_text(r.problem, v.worst.tap) << ", c " << range_text(v.worst.c) << ", k "
       << range_text(v.worst.k) << ": <dW,V> " << general(v.worst.left, 9) << ", <dY,conv(X,V)> "
       << general(v.worst.right, 9) << ", bound " << general(v.worst.bound, 3) << "\n";
  tap_table(text, r);
  text << "non-finite: got " << v.nonfinite.nan << " NaN, " << v.nonfinite.inf << " Inf\n";
  if (v.all_zero) text << "warning: every expected value is 0, so this check proves little\n";
  if (r.exact != nullptr && r.exact->mismatches > 0) {
    text << error_text(r.problem, "wrong element", r.exact->first_mismatch);
  }
  for (const std::string& line : r.notes.lines) text << line << "\n";
  text << "repeat: " << r.repeat << "\n";
  return text.str();
}

Json adjoint_json(const AdjointReport& r) {
  const AdjointVerdict& v = r.verdict;
  Json taps = Json::array();
  for (std::size_t i = 0; i < v.taps.size(); ++i) {
    taps.push_back({{"tap", tap_position(r.problem, static_cast<std::int64_t>(i))},
                    {"mismatches", v.taps[i].failures},
                    {"max_abs", number(v.taps[i].max_error)},
                    {"max_ratio", number(v.taps[i].max_ratio)}});
  }
  Json json = {{"verdict", matches(r) ? "match" : "mismatch"},
               {"got", r.got},
               {"want", "<dY,conv(X,V)>"},
               {"criterion", kCriterion},
               {"count", v.equalities},
               {"mismatches", v.failures}};
  json["adjoint"] = {{"vectors", v.vectors},
                     {"seed", r.seed},
                     {"certain_error", number(v.certain_error)},
                     {"rms_element", number(v.rms_entry)},
                     {"worst",
                      {{"tap", tap_position(r.problem, v.worst.tap)},
                       {"c", {v.worst.c.begin, v.worst.c.end}},
                       {"k", {v.worst.k.begin, v.worst.k.end}},
                       {"left", number(v.worst.left)},
                       {"right", number(v.worst.right)},
                       {"bound", number(v.worst.bound)},
                       {"ratio", number(v.worst_ratio)}}}};
  if (r.exact != nullptr && r.exact->mismatches > 0) {
    const ElementError& wrong = r.exact->first_mismatch;
    json["first_mismatch"] = {{"value", number(wrong.value)},
                              {"index", element_position(r.problem, wrong.index)},
                              {"got", number(wrong.got)},
                              {"want", number(wrong.want)}};
  }
  json["taps"] = taps;
  json["nonfinite"] = {{"got", {{"nan", v.nonfinite.nan}, {"inf", v.nonfinite.inf}}}};
  json["all_zero"] = v.all_zero;
  json.update(r.notes.json);
  json["repeat"] = r.repeat;
  return json;
}

}  // namespace convgrad::cli
