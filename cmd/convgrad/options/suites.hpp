// suites.hpp - the suites that have names: files that are installed with the program.
#pragma once

#include <string>
#include <vector>

namespace convgrad::cli {

// Their names in alphabetical order; empty where the files were not installed.
std::vector<std::string> suite_names();

// The file of a suite: of one that has a name that one, whatever the current folder holds (a file
// of that name is ./NAME), else the path as it is given.
std::string suite_path(const std::string& suite);

}  // namespace convgrad::cli
