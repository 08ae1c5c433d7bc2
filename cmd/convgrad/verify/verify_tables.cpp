// verify_tables.cpp - the tables of verify's report: the largest errors, and those of each tap.
#include <algorithm>
#include <iomanip>

#include "base/messages.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// The table of taps has no more rows than this.
constexpr std::size_t kMaxTapRows = 32;

// Returns a line with padded columns and a newline.
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

// Returns "3", or "3 of 12" where not every element was compared.
std::string failures_text(const VerifyReport& r, const TapErrors& tap) {
  const std::int64_t cells = r.problem.dw_count() / r.problem.taps();
  return tap.count == cells ? cat(tap.mismatches) : cat(tap.mismatches, " of ", tap.count);
}

void tap_table(std::ostream& text, const VerifyReport& r, const Comparison& c) {
  text << "errors per tap   failures    largest |error|" << (c.has_bound ? "  error/bound" : "")
       << (r.has_rounding() ? "  rms error/rounding" : "") << "\n";
  const std::size_t rows = std::min(c.taps.size(), kMaxTapRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const TapErrors& tap = c.taps[i];
    text << "  " << std::left << std::setw(15) << tap_text(r.problem, static_cast<std::int64_t>(i))
         << std::setw(12) << failures_text(r, tap);
    if (c.has_bound) {
      text << std::setw(17) << general(tap.max_abs, 4) << std::setw(r.has_rounding() ? 13 : 0)
           << general(tap.max_ratio, 3);
    } else {
      text << general(tap.max_abs, 4);
    }
    if (r.has_rounding()) text << general(tap.rounding, 3);
    text << "\n";
  }
  if (rows == c.taps.size()) return;
  TapErrors rest;
  for (std::size_t i = rows; i < c.taps.size(); ++i) {
    rest.mismatches += c.taps[i].mismatches;
    rest.max_abs = std::max(rest.max_abs, c.taps[i].max_abs);
  }
  text << "  " << std::left << std::setw(15) << cat(c.taps.size() - rows, " more") << std::setw(12)
       << rest.mismatches << general(rest.max_abs, 4) << "\n";
}

}  // namespace

void print_tables(std::ostream& text, const VerifyReport& r, const Comparison& c) {
  text << "largest errors\n";
  text << error_text(r.problem, "absolute", c.abs);
  if (c.clear_rel.index >= 0) text << error_text(r.problem, "relative", c.clear_rel);
  if (c.clear_ulp.index >= 0) text << error_text(r.problem, "ULP", c.clear_ulp);
  if (c.has_bound) text << error_text(r.problem, "error/bound", c.ratio);
  if (c.mismatches > 0) text << error_text(r.problem, "first mismatch", c.first_mismatch);
  tap_table(text, r, c);
  const NonFinite &got = c.got_nonfinite, &want = c.want_nonfinite;
  if (got.nan + got.inf + want.nan + want.inf == 0) return;
  text << "non-finite: got " << got.nan << " NaN, " << got.inf << " Inf; want " << want.nan
       << " NaN, " << want.inf << " Inf\n";
}

}  // namespace convgrad::cli
