// mpi_module.cpp - see mpi_module.hpp. No other file knows MPI.
#include "mpi/mpi_module.hpp"

#include <mpi.h>

namespace convgrad::cli {
namespace {

MpiPlace start() {
  int level = 0;
  // The main thread alone calls MPI.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  MpiPlace place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  return place;
}

void finish() { MPI_Finalize(); }
void abort_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

void send(const void* bytes, int count, int to) {
  MPI_Send(bytes, count, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

void receive(void* bytes, int count, int from) {
  MPI_Recv(bytes, count, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void gather(const void* bytes, void* all, int count) {
  MPI_Allgather(bytes, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD);
}

constexpr MpiModule kModule = {kMpiModuleVersion, start, finish, abort_all, send, receive, gather};

}  // namespace
}  // namespace convgrad::cli

extern "C" __attribute__((visibility("default"))) const convgrad::cli::MpiModule*
convgrad_mpi_module() {
  return &convgrad::cli::kModule;
}
