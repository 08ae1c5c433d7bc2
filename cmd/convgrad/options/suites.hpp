// suites.hpp - the suites that have names: files that are installed with the program.
#pragma once

#include <string>
#include <vector>

namespace convgrad::cli {

// Returns their names in alphabetical order; none where the files were not installed.
std::vector<std::string> suite_names();

// Returns the file of a suite. A name means the suite of that name, whatever the current folder
// holds (a file of that name is ./NAME); all else is a path.
std::string suite_path(const std::string& suite);

}  // namespace convgrad::cli
