// verify.hpp - is a gradient right? The command, and what follows its comparison.
#pragma once

#include "options/options.hpp"
#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

inline constexpr std::size_t kMaxExplained = 2;  // gradients whose faults are looked for

// The command.
ReportPointer verify(const VerifyCommand& options);

// Verdicts, and what they were judged by where a wider order explains one of them.
struct Verdicts {
  std::vector<Compared> all;
  std::optional<Expected> wide;

  const Expected& expected(const Judged& judged) const { return wide ? *wide : judged.expected; }
};
// The verdicts on these gradients, which are judged's. Where errors are larger than the order n, z,
// p, q makes, whether another order makes such: then the verdict says which, its scales allow it,
// and structure decides what they would hide. Reads x and dy again for that.
Verdicts judge(Job& job, const VerifyCommand& options, const Judged& judged,
               const Tolerance& tolerance, const std::vector<const Gradient*>& subjects);
// Whether errors are what x or dy lose when they are rounded to a narrow type.
std::optional<Structure> rounded_inputs(Job& job, const VerifyCommand& options,
                                        const Judged& judged, const Expected& expected,
                                        const Gradient& gradient);
// Whether a known fault explains a gradient with errors no larger than those of the order n, z, p,
// q.
bool is_known_fault(Job& job, const VerifyCommand& options, const Judged& judged,
                    const Gradient& gradient);

// After mismatches of these gradients, which are judged's: which known fault explains them. Reads x
// and dy again.
DiagnosisReport diagnose_mismatch(Job& job, const VerifyCommand& options, const Judged& judged,
                                  const Expected& expected,
                                  const std::vector<const Gradient*>& wrong);

// Of several --result: whether all have the same bits, or differ as sums in other orders do, or by
// more, which fails.
Notes run_to_run(const Judged& judged, const Expected& expected, const Tolerance& tolerance);

// --show and --save-diff. Error(usage) for a file that cannot be written, or with options that it
// does not fit.
void check_differences(const VerifyCommand& options);
// Of the first gradient, against what it was compared with: the elements that are most off, and
// got - want as a file, as the options ask for.
Notes differences(const VerifyCommand& options, const Judged& judged, const Expected& expected,
                  const Tolerance& tolerance);

// --save-repro: a small problem that fails, as files and the command that repeats it. Error(input)
// if the folder cannot be made, or holds anything.
void check_repro_folder(const std::string& folder);
// Writes the part of the problem in which the wrong element of subject stands, and of the gradients
// that were compared.
Notes save_repro(Job& job, const VerifyCommand& options, const Judged& judged,
                 const Expected& expected, const Gradient& subject, const Tolerance& tolerance,
                 std::int64_t wrong);

}  // namespace convgrad::cli
