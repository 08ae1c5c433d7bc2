// batch_range.hpp - --batch-range: the sums of a part of the batch, in a file for convgrad reduce.
#pragma once

#include <string>

#include "files/output_file.hpp"
#include "job/job.hpp"
#include "problem/batch_part.hpp"

namespace convgrad::cli {

// "A:B", images A to B-1, where a missing A is 0 and a missing B the end, or "K/R", the K-th of R
// parts; all of the batch for "". images: those of the whole. Error(usage) otherwise.
BatchRange parse_batch_range(const std::string& text, std::int64_t images);

// Error(usage) for options that a part of the batch cannot have.
void check_batch_range(const Options& options);

// The part as the report has it, and as a line of --dry-run.
Json part_json(const Plan& plan);
std::string part_text(const Plan& plan);

// The plan's problem with the part's images alone: for rates.
WgradProblem part_problem(const Plan& plan);

// Writes the sums of a plan's part to a file for reduce.
void write_part(const std::string& path, const Plan& plan, BlockSum& sum,
                const OutputOptions& options);

// What must be the same for parts of one run: version, revision, compiler.
std::string program_build();

}  // namespace convgrad::cli
