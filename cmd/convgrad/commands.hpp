// commands.hpp - the commands that are a file each.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

ReportPointer generate(const GenerateOptions& options);
ReportPointer inspect(const InspectOptions& options);
ReportPointer info(const InfoOptions& options);

}  // namespace convgrad::cli
