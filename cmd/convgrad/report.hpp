// report.hpp - the JSON report, schema "convgrad.report/1". docs/report.md lists its fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convgrad/device.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/peaks.hpp"
#include "convgrad/plan.hpp"
#include "convgrad/run.hpp"

namespace convgrad::cli {

using Json = nlohmann::ordered_json;

// A report with the fields that every command fills: schema, command line, tool.
Json new_report(const std::string& command, const std::string& command_line);

Json problem_json(const WgradProblem& problem);
Json tensor_json(const std::string& path, const NpyHeader& header);
Json plan_json(const Plan& plan);
Json work_json(const WgradProblem& problem);
Json timing_json(const Timing& timing, double write_s);
Json cuda_json(const CudaInfo& info);
Json peaks_json(const Peaks& peaks);

// A double as JSON: NaN and infinities as the strings "nan", "inf" and "-inf".
Json number(double value);

// Numbers in text: digits significant ones; "[1,0,2]".
std::string general(double value, int digits);
std::string bracketed(const std::vector<std::int64_t>& numbers);

// To standard output ("-") or a file, which appears complete or not at all.
void write_report(const Json& report, const std::string& destination);

}  // namespace convgrad::cli
