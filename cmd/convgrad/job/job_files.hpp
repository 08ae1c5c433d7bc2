// job_files.hpp - which files of a command are one, and may not be replaced by it.
#pragma once

#include <string>
#include <vector>

#include "convgrad/array_file.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Returns a key that is equal for two names of one file, through whatever links, and also before it
// exists. It is "" for devices and the like, which may be shared. "-" is the file that the
// descriptor `hyphen` is redirected from or to.
std::string file_key(const std::string& path, int hyphen = -1);
// Returns the key of the file that a tensor is in: an array of an archive stands for the archive.
std::string tensor_key(const std::string& name, int hyphen = -1);
// Returns true if what is written ("-": standard output) is in the other's file, by tensor_key().
bool same_file(const std::string& written, const std::string& other, int hyphen);

// Returns the files that the command reads, or those that it writes.
std::vector<NamedFile> files_of(const Options& options, FileUse use);

// Throws Error(usage) if the command reads standard input twice.
void check_standard_input(const Options& options);

// Throws Error(usage) if the report would replace a file that the command reads or writes, or
// anything but a report. It looks at the files: once, before the command begins, is enough.
void check_report_replaces_nothing(const Options& options);

// Throws Error(usage) if a file that the command writes is one that it reads, or another that it
// writes, the report aside. Most often it is a slip, and what was read would be lost.
void check_files_are_kept(const Options& options);
// Does the same with one file that is written, and only with those that are read.
void check_is_not_read(const std::string& flag, const std::string& file, const Options& options);

// Throws Error(usage) if an array would be written to a terminal, by whatever name of it.
void refuse_terminals(const Options& options);

// Checks --output before everything else: as above; standard output may be asked for once only, and
// is no terminal; the name and --raw must agree.
void check_outputs(const Options& options);

// These return how the gradient is written, and to what.
OutputOptions gradient_options(const Options& options);
ArrayTarget gradient_target(const Options& options);

// Warns on standard error of each array whose file name has an ending that says nothing of .npy.
void warn_of_endings(const Options& options);

// Throws Error(usage) if --save-diff is standard output.
void check_difference(const std::string& save_diff);

}  // namespace convgrad::cli
