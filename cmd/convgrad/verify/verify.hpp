// verify.hpp - is a gradient right? The command, and what follows its comparison.
#pragma once

#include "options/options.hpp"
#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

inline constexpr std::size_t kMaxExplained = 2;  // gradients whose faults are looked for

ReportPointer verify(const VerifyCommand& options);

// Holds verdicts, and what they were judged by where a wider order explains one of them.
struct Verdicts {
  std::vector<Compared> all;
  std::optional<Expected> wide;

  const Expected& expected(const Judged& judged) const { return wide ? *wide : judged.expected; }
};
// Returns the verdicts on these gradients, which are judged's. Where errors are larger than the
// order n, z, p, q makes, it looks for another order that makes such: then the verdict says which,
// its scales allow it, and structure decides what they would hide. Reads x and dy again for that.
Verdicts judge(Job& job, const VerifyCommand& options, const Judged& judged,
               const Tolerance& tolerance, const std::vector<const Gradient*>& subjects);
// Returns the structure of errors that x or dy make when they are rounded to a narrow type.
std::optional<Structure> rounded_inputs(Job& job, const VerifyCommand& options,
                                        const Judged& judged, const Expected& expected,
                                        const Gradient& gradient);
// Returns true if a known fault explains a gradient with errors no larger than those of the order
// n, z, p, q.
bool is_known_fault(Job& job, const VerifyCommand& options, const Judged& judged,
                    const Gradient& gradient);

// Says which known fault explains mismatches of these gradients, which are judged's. Reads x and dy
// again.
DiagnosisReport diagnose_mismatch(Job& job, const VerifyCommand& options, const Judged& judged,
                                  const Expected& expected,
                                  const std::vector<const Gradient*>& wrong);

// Says whether several --result have the same bits, or differ as sums in other orders do, or by
// more, which fails.
Notes run_to_run(const Judged& judged, const Expected& expected, const Tolerance& tolerance);

// Checks --show and --save-diff. Throws Error(usage) for a file that cannot be written, or with
// options that it does not fit.
void check_differences(const VerifyCommand& options);
// Compares the first gradient with what it is judged by: lists the elements that are most off, and
// writes got - want to a file, as the options ask for.
Notes differences(const VerifyCommand& options, const Judged& judged, const Expected& expected,
                  const Tolerance& tolerance);

// Checks the folder of --save-repro, which gets a small problem that fails, as files and the
// command that repeats it. Throws Error(input) if it cannot be made, or holds anything.
void check_repro_folder(const std::string& folder);
// Writes the part of the problem in which the wrong element of subject stands, and the same part of
// the gradients that were compared.
Notes save_repro(Job& job, const VerifyCommand& options, const Judged& judged,
                 const Expected& expected, const Gradient& subject, const Tolerance& tolerance,
                 std::int64_t wrong);

}  // namespace convgrad::cli
