// commands.hpp - the commands that are a file each. They return the exit status and fill the
// report.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

int generate(const Options& options, Json& report);
int inspect(const Options& options, Json& report);
int info(const Options& options, Json& report);

}  // namespace convgrad::cli
