// commands.hpp - the commands that are a file each. They return the exit status and fill the
// report.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

int generate(const GenerateOptions& options, Json& report);
int inspect(const InspectOptions& options, Json& report);
int info(const InfoOptions& options, Json& report);

}  // namespace convgrad::cli
