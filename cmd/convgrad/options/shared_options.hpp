// shared_options.hpp - how options are added, and the groups of them that several commands have.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <limits>
#include <string>

#include "options/options.hpp"

namespace convgrad::cli {

// Headings of --help.
inline constexpr const char* kTensors = "Tensors";
inline constexpr const char* kOperation = "Operation";
inline constexpr const char* kExecution = "Execution";
inline constexpr const char* kReporting = "Reporting";
inline constexpr const char* kComparison = "Comparison";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kProblem = "Problem";

inline constexpr std::int64_t kAnyWhole = std::numeric_limits<std::int64_t>::max();

// Checks of one word whose messages name what was expected; CLI11's own print ranges with 300
// digits.

// Not "--dry-run": "-o --dry-run" must not write a file of that name.
CLI::Validator not_a_flag();
// true, false, 1, 0, on, off, yes, no.
CLI::Validator truth();
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
// A number of at least 0.
CLI::Validator tolerance();
// "512MiB" becomes "536870912". Units are powers of 1024, with or without i and B.
CLI::Validator memory_size();
// KEY=VALUE, with a key of letters, digits, '_', '-' and '.'.
CLI::Validator tag();

// An option of one word; of several, the last one counts.
template <typename Value>
CLI::Option* option(CLI::App& app, const std::string& names, Value& value, const std::string& type,
                    const std::string& help, const char* group, const CLI::Validator& check) {
  return app.add_option(names, value, help)
      ->type_name(type)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(check);
}
CLI::Option* text(CLI::App& app, const std::string& names, std::string& value,
                  const std::string& type, const std::string& help, const char* group);
CLI::Option* flag(CLI::App& app, const std::string& names, bool& value, const std::string& help,
                  const char* group);
// A list of numbers.
CLI::Option* numbers(CLI::App& app, const std::string& names, Words& value, const std::string& type,
                     const std::string& help, const char* group = kOperation);

void add_tensors(CLI::App& app, ProblemOptions& o);
void add_output(CLI::App& app, ProblemOptions& o);
void add_attributes(CLI::App& app, ProblemOptions& o);
void add_operation(CLI::App& app, ProblemOptions& o);
void add_problem(CLI::App& app, ProblemOptions& o);
// Shapes of tensors that are made. names and help: of the option for x.
void add_shape(CLI::App& app, ShapeOptions& o, const char* names, const char* help);

void add_threads(CLI::App& app, ExecutionOptions& o,
                 const std::string& help = "CPU threads; 0, the default, is all");
void add_memory_limit(CLI::App& app, ExecutionOptions& o,
                      const std::string& help = "memory for sums and blocks, e.g. 512MiB");
void add_backend(CLI::App& app, ExecutionOptions& o);
// The form of --output.
void add_raw(CLI::App& app, ExecutionOptions& o);
void add_execution(CLI::App& app, ExecutionOptions& o);

void add_criteria(CLI::App& app, CriterionOptions& o);
void add_difference(CLI::App& app, std::string& save_diff);
void add_json(CLI::App& app, Options& o);
// What stands last in every command that computes.
void add_common(CLI::App& app, Options& o, const std::string& footer);

}  // namespace convgrad::cli
