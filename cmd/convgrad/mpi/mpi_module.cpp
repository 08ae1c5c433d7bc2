// mpi_module.cpp - see mpi_module.hpp. No other file knows MPI.
#include "mpi/mpi_module.hpp"

#include <mpi.h>

#include <algorithm>

namespace convgrad::cli {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of one message: MPI counts in int

int local_rank_of_node = 0;

void start() {
  int level = 0;
  // The main thread alone calls MPI.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank_of_node);
  MPI_Comm_free(&node);
}

void finish() { MPI_Finalize(); }
void abort_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

int rank() {
  int value = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}
int size() {
  int value = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  return value;
}
int local_rank() { return local_rank_of_node; }

void send(const void* bytes, std::int64_t count, int to) {
  for (const char* at = static_cast<const char*>(bytes); count > 0;) {
    const std::int64_t part = std::min(count, kMostBytes);
    MPI_Send(at, static_cast<int>(part), MPI_BYTE, to, 0, MPI_COMM_WORLD);
    at += part;
    count -= part;
  }
}

void receive(void* bytes, std::int64_t count, int from) {
  for (char* at = static_cast<char*>(bytes); count > 0;) {
    const std::int64_t part = std::min(count, kMostBytes);
    MPI_Recv(at, static_cast<int>(part), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    at += part;
    count -= part;
  }
}

void gather(const void* bytes, void* all, std::int64_t count) {
  MPI_Allgather(bytes, static_cast<int>(count), MPI_BYTE, all, static_cast<int>(count), MPI_BYTE,
                MPI_COMM_WORLD);
}

constexpr MpiModule kModule = {kMpiModuleVersion, start, finish,  abort_all, rank, size,
                               local_rank,        send,  receive, gather};

}  // namespace
}  // namespace convgrad::cli

extern "C" __attribute__((visibility("default"))) const convgrad::cli::MpiModule*
convgrad_mpi_module() {
  return &convgrad::cli::kModule;
}
