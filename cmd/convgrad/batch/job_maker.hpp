// job_maker.hpp - from the fields of a line to a job. A field is an option of compute or verify,
// set through the same checks as a flag, or one of own_fields.hpp.
#pragma once

#include <CLI/App.hpp>

#include "batch/batch.hpp"
#include "batch/manifest_fields.hpp"

namespace convgrad::cli {

class JobMaker {
 public:
  // defaults: the options that a job has before its fields are set. folder: what relative paths
  // start from; "" is the current one.
  JobMaker(const Options& defaults, std::string folder);

  // Error(input) names the field.
  BatchJob make(Fields fields, std::int64_t line);

 private:
  void check_name(const std::string& field) const;
  std::string resolved(const std::string& path) const;
  CLI::Option& option_of(const std::string& field, bool verifies);
  void set_options(const Fields& fields, BatchJob& job);
  void take_file(const std::string& field, std::string& path, BatchJob& job) const;

  const Options& defaults_;
  const std::string folder_;
  CLI::App app_;
  CLI::App* verify_ = nullptr;
  Options options_;  // what app_ is bound to
  std::vector<std::string> names_;
};

}  // namespace convgrad::cli
