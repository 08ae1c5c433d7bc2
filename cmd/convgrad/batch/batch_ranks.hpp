// batch_ranks.hpp - --mpi: jobs that are done by the processes of mpirun, given out by rank 0.
#pragma once

#include "batch/batch_runner.hpp"
#include "mpi/ranks.hpp"

namespace convgrad::cli {

// Error(input) unless all ranks are one build of the program.
void check_same_program(const Ranks& ranks);

// On rank 0: gives all ranks jobs as they get free, does some itself, and returns the fields of the
// report's batch when none is left but those that need everything. The other ranks must be in
// do_jobs_of_rank_0(), which then returns on those that are still there. options: what this rank
// may take. If this process is told to end, the jobs that run are named.
Json give_jobs_to_ranks(Ranks& ranks, const Manifest& manifest, const Options& options,
                        const std::optional<BatchState>& state, Runner& runner);
// manifest: with all jobs that rank 0 may give.
void do_jobs_of_rank_0(Ranks& ranks, const Manifest& manifest, const Options& options);

}  // namespace convgrad::cli
