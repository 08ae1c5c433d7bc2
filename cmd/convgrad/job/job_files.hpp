// job_files.hpp - which files of a command are one, and may not be replaced by it.
#pragma once

#include <string>

#include "options/options.hpp"

namespace convgrad::cli {

// Both name one file, that may not exist yet, through whatever links; devices may be shared. An
// array of an archive stands for the archive; what is to be written is a file.
bool same_file(const std::string& file, const std::string& tensor);
// Equal for two names of one file, through whatever links, and also before it exists. "" for
// devices and the like, which may be shared.
std::string file_key(const std::string& path);

// The report must replace no file that the command reads or writes, and nothing but a report. Looks
// at the files: once, before the command begins, is enough.
void check_report_replaces_nothing(const Options& options);

// stdout may be asked for once only: the gradient, the report, or text. And the files that are read
// must not be lost to what is written.
void check_stdout_is_free(const Options& options);

// Error(usage) where --save-diff or --heatmap is standard output, one of the tensors (of which
// `what` then says what is wrong), the same file, or no kind of picture that is written.
void check_difference(const DifferenceOptions& options, const Words& tensors,
                      const std::string& what);

}  // namespace convgrad::cli
