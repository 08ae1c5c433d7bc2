// problems.hpp - what the options say of a problem, and of how its gradient is judged. Problems
// that no tensors say: from --input-shape and a filter, from a line, of this program or of another,
// or from a suite.
#pragma once

#include <string>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Throws Error(usage) "FLAG: given with WHY" if the flag was given, but not for a variable.
void refuse_flag(const Options& options, const std::string& flag, const std::string& why);
void refuse_flags(const Options& options, About about, const std::string& why);

struct NamedProblem {
  std::string name;  // that another program's line gives it, or ""
  WgradProblem problem;
  bool is_foreign = false;  // another program's line, which is shown as ours
};
// Returns true if words are those of another program: a descriptor of oneDNN's benchdnn, or a
// command line of MIOpenDriver.
bool is_foreign(const Words& words);
NamedProblem read_foreign(const Words& words);
// Reads such a line, or one of describe()'s grammar. Throws Error(usage) that names the word that
// cannot be said here.
NamedProblem read_problem(const std::string& line);

// Returns the problem of --problem, with the formats and the output's dtype that other flags give
// it. Throws Error(usage) if they give more.
NamedProblem problem_of_line(const Options& options);

// Returns the problem in another dtype, for tensors that are made. The gradient's dtype follows,
// unless it was another before. Throws Error(usage) if tensors of its dtypes are not made.
WgradProblem with_dtype(WgradProblem problem, DType dtype);

// Returns the problem of flags alone: the attributes, x's shape, and K, that --out-channels or
// --multiplier gives beside --kernel. Messages call the input `name`.
WgradProblem made_problem(const std::string& name, const Options& options,
                          const ShapeOptions& shape, DType dtype);

// Throws Error(usage) unless the operation is named.
void check_op(const ProblemOptions& options);
// Throws Error(usage) unless both tensors and the operation, or the whole problem, are named.
void check_required(const ProblemOptions& options);

// Returns the operation and its attributes as they were spelled, for make_problem().
WgradAttributes attributes_of(const ProblemOptions& options);

// Returns the criterion that was asked for, or rounding. Throws Error(usage) if two were.
Tolerance tolerance_of(const CriterionOptions& options);

// Returns the names of suites that are installed with the program, in alphabetical order; none
// where the files were not installed.
std::vector<std::string> suite_names();

// Returns the file of a suite. A name means the suite of that name, whatever the current folder
// holds (a file of that name is ./NAME); all else is a path.
std::string suite_path(const std::string& suite);

}  // namespace convgrad::cli
