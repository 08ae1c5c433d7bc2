// commands.hpp - one function a subcommand: returns the exit status, fills the report.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

int compute(const Options& options, Json& report);
// The same under mpirun. Ranks but 0 end with SilentEnd (ranks.hpp).
int compute_on_ranks(const Options& options, Json& report);
int verify(const Options& options, Json& report);
int batch(Options& options, Json& report);
// --format json is --json, for errors too.
void use_bench_format(Options& options);
int bench(const Options& options, Json& report);
int compare(const Options& options, Json& report);
int generate(const Options& options, Json& report);
int reduce(const Options& options, Json& report);
int inspect(const Options& options, Json& report);
int info(const Options& options, Json& report);
// Of app, the whole program.
int completion(const Options& options, const CLI::App& app);

}  // namespace convgrad::cli
