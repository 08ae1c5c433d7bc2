// mpi_module.hpp - what convgrad_mpi.so offers the program: as much of MPI as --mpi needs.
//
// MPI is a module that is loaded when it is asked for, because starting MPI's library takes longer
// than a small job. The interface is plain C: all functions return at once with what MPI gives, and
// MPI ends the whole job if a call of it fails.
#pragma once

namespace convgrad::cli {

inline constexpr int kMpiModuleVersion = 4;

struct MpiPlace {
  int rank = 0, size = 1;
};

struct MpiModule {
  int version;  // kMpiModuleVersion
  MpiPlace (*start)();
  void (*finish)();
  void (*abort)(int status);  // ends all ranks
  void (*send)(const void* bytes, int count, int to);
  void (*receive)(void* bytes, int count, int from);
  // Gathers count bytes of every rank, in the order of the ranks.
  void (*gather)(const void* bytes, void* all, int count);
};

// The module has one symbol: extern "C" const MpiModule* convgrad_mpi_module().
inline constexpr const char* kMpiModuleSymbol = "convgrad_mpi_module";

}  // namespace convgrad::cli
