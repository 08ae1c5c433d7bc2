// verify_tables.cpp - the tables of verify's report: the largest errors, and those of each tap.
#include <algorithm>

#include "options/arguments.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// The table of taps has no more rows than this.
constexpr std::size_t kMaxTapRows = 32;

std::string error_text(const WgradProblem& pb, const char* name, const ElementError& error) {
  const std::string head = cat("  ", padded(name, 16)), value = general(error.value, 4);
  if (error.index < 0) return cat(head, value, "\n");
  return cat(head, padded(value, 12), " at ", element_text(pb, error.index), ": got ",
             general(error.got, 9), ", want ", general(error.want, 9), "\n");
}

// Returns "3", or "3 of 12" where not every element was compared.
std::string failures_text(const VerifyReport& r, const TapErrors& tap) {
  const std::int64_t cells = r.problem.dw_count() / r.problem.taps();
  return tap.count == cells ? cat(tap.mismatches) : cat(tap.mismatches, " of ", tap.count);
}

std::string tap_row(const std::string& name, const std::string& failures,
                    const std::string& values) {
  return cat("  ", padded(name, 15), padded(failures, 12), values, "\n");
}

std::string tap_table(const VerifyReport& r, const Comparison& c) {
  std::string text =
      cat("errors per tap   failures    largest |error|", c.has_bound ? "  error/bound" : "",
          r.has_rounding() ? "  rms error/rounding" : "", "\n");
  const std::size_t rows = std::min(c.taps.size(), kMaxTapRows);
  for (std::size_t i = 0; i < rows; ++i) {
    const TapErrors& tap = c.taps[i];
    std::string values = general(tap.max_abs, 4);
    if (c.has_bound) {
      values = padded(values, 17) + padded(general(tap.max_ratio, 3), r.has_rounding() ? 13 : 0);
    }
    if (r.has_rounding()) values += general(tap.rounding, 3);
    text +=
        tap_row(tap_text(r.problem, static_cast<std::int64_t>(i)), failures_text(r, tap), values);
  }
  if (rows == c.taps.size()) return text;
  TapErrors rest;
  for (std::size_t i = rows; i < c.taps.size(); ++i) {
    rest.mismatches += c.taps[i].mismatches;
    rest.max_abs = std::max(rest.max_abs, c.taps[i].max_abs);
  }
  return text + tap_row(cat(c.taps.size() - rows, " more"), cat(rest.mismatches),
                        general(rest.max_abs, 4));
}

}  // namespace

std::string tables_text(const VerifyReport& r, const Comparison& c) {
  std::string text = "largest errors\n" + error_text(r.problem, "absolute", c.abs);
  if (c.clear_rel.index >= 0) text += error_text(r.problem, "relative", c.clear_rel);
  if (c.clear_ulp.index >= 0) text += error_text(r.problem, "ULP", c.clear_ulp);
  if (c.has_bound) text += error_text(r.problem, "error/bound", c.ratio);
  if (c.mismatches > 0) text += error_text(r.problem, "first mismatch", c.first_mismatch);
  text += tap_table(r, c);
  const NonFinite &got = c.got_nonfinite, &want = c.want_nonfinite;
  if (got.nan + got.inf + want.nan + want.inf == 0) return text;
  return cat(text, "non-finite: got ", got.nan, " NaN, ", got.inf, " Inf; want ", want.nan,
             " NaN, ", want.inf, " Inf\n");
}

}  // namespace convgrad::cli
