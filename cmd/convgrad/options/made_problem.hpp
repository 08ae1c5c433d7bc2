// made_problem.hpp - problems that no tensors say: from --input-shape and a filter, or from a line,
// of this program or of another.
#pragma once

#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Throws Error(usage) "FLAG: given with WHY" if the flag was given, but not for a variable.
void refuse_flag(const Options& options, const std::string& flag, const std::string& why);
// Does the same for every flag of that kind.
void refuse_flags(const Options& options, About about, const std::string& why);

struct NamedProblem {
  std::string name;  // that another program's line gives it, or ""
  WgradProblem problem;
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
WgradProblem problem_of_line(const Options& options);

// Returns the problem in another dtype, for tensors that are made. The gradient's dtype follows,
// unless it was another before. Throws Error(usage) if tensors of its dtypes are not made.
WgradProblem with_dtype(WgradProblem problem, DType dtype);

// Returns the problem of flags alone: the attributes, x's shape, and K, that --out-channels or
// --multiplier gives beside --kernel. Messages call the input `name`.
WgradProblem made_problem(const std::string& name, const Options& options,
                          const ShapeOptions& shape, DType dtype);

}  // namespace convgrad::cli
