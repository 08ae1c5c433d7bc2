// ranks.cpp - see ranks.hpp.
#include "mpi/ranks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/load_module.hpp"

namespace convgrad::cli {
namespace {

#ifdef CONVGRAD_HAS_MPI
bool is_ours(const void* offers) {
  return static_cast<const MpiModule*>(offers)->version == kMpiModuleVersion;
}

const MpiModule* load_mpi() {
  // Open MPI's own modules look its symbols up in the process.
  const LoadedModule loaded =
      load_module("convgrad_mpi.so", kMpiModuleSymbol, RTLD_NOW | RTLD_GLOBAL, is_ours);
  if (loaded.offers != nullptr) return static_cast<const MpiModule*>(loaded.offers);
  throw Error(ErrorKind::unavailable, "--mpi: no MPI: ", loaded.why_none,
              Hint("install Open MPI (Debian: openmpi-bin) and convgrad"));
}
#else
const MpiModule* load_mpi() {
  throw Error(ErrorKind::unavailable, "--mpi: this convgrad was built without MPI",
              Hint("install Open MPI (Debian: "
                   "libopenmpi-dev) and build with -DCONVGRAD_MPI=ON"));
}
#endif

}  // namespace

Ranks::Ranks() : module_(load_mpi()) {
  module_->start();
  rank_ = module_->rank();
  size_ = module_->size();
}

Ranks::~Ranks() {
  // Rank 0 may end with a status now, and mpirun then ends those that are slower: not worth a word.
  if (rank_ != 0) std::signal(SIGTERM, SIG_IGN);
  module_->finish();
}

void Ranks::send(const double* values, std::int64_t count, int to) {
  module_->send(values, count * 8, to);
}

void Ranks::receive(double* values, std::int64_t count, int from) {
  module_->receive(values, count * 8, from);
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  std::string mine = text.substr(0, kMostText - 1);
  mine.resize(kMostText);
  std::string all(kMostText * static_cast<std::size_t>(size_), '\0');
  module_->gather(mine.data(), all.data(), kMostText);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kMostText) texts.emplace_back(all.c_str() + at);
  return texts;
}

void Ranks::together(const std::function<void()>& work) const {
  std::string failure;  // the status' digit and the message
  try {
    work();
  } catch (const Error& error) {
    failure = cat(static_cast<int>(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    failure = cat(static_cast<int>(ErrorKind::runtime), "out of memory; lower --memory-limit");
  } catch (const std::exception& error) {
    failure = cat(static_cast<int>(ErrorKind::runtime), error.what());
  }
  const std::vector<std::string> failures = gather(failure);
  const auto first = std::ranges::find_if_not(failures, &std::string::empty);
  if (first == failures.end()) return;
  all_failed_ = true;
  if (rank_ != 0) throw SilentEnd{};
  const int status = first->front() - '0';
  const bool everywhere = std::ranges::count(failures, *first) == size_;
  const std::string which = everywhere ? "" : cat("rank ", first - failures.begin(), ": ");
  throw Error(static_cast<ErrorKind>(status), which + first->substr(1));
}

void Ranks::abort(int status) const {
  module_->abort(status);
  std::_Exit(status);
}

bool is_silent_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) return std::strcmp(value, "0") != 0;
  }
  return false;
}

}  // namespace convgrad::cli
