// command_result.hpp - what a command came to: its report and its exit status.
#pragma once

#include <exception>

#include "report/report.hpp"

namespace convgrad::cli {

struct CommandResult {
  Json report = Json::object();  // the command's fields; of one that failed, what was known by then
  int status = 0;                // the exit status
  std::exception_ptr failure;    // what ended the command, if anything did

  // Adds the fields to those of a whole report and returns the status, or throws the failure.
  int into(Json& whole) const {
    whole.update(report);
    if (failure) std::rethrow_exception(failure);
    return status;
  }
};

// The result of fill(options, report), which returns the status.
template <typename Fill, typename CommandOptions>
CommandResult result_of(Fill&& fill, CommandOptions& options) {
  CommandResult result;
  try {
    result.status = fill(options, result.report);
  } catch (...) {
    result.failure = std::current_exception();
  }
  return result;
}

}  // namespace convgrad::cli
