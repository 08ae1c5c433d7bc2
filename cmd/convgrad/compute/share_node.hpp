// share_node.hpp - what each of several ranks of one machine may take of it.
#pragma once

#include <string>

#include "mpi/ranks.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

std::string host_name();

// Fills in what is not given of threads, memory and device. Ranks that mpirun has not bound to
// processors of their own share threads; those of one node share its memory and take its devices in
// turn. All ranks must call it.
void share_node(const Ranks& ranks, Options& options);

}  // namespace convgrad::cli
