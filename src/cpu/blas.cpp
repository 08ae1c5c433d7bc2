// blas.cpp - loads OpenBLAS when it is first needed: that takes half as long as all else that a
// short job does, and most jobs never call it. It is called on one thread always: its results
// depend on its thread count, and ours must not. Threads are the task pool's business.
#include "cpu/blas.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <sys/resource.h>

#include <atomic>
#include <cassert>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>

#include "convgrad/error.hpp"
#include "engine/machine.hpp"

namespace convgrad {
namespace {

int narrow(std::int64_t size) {
  assert(fits_blas(size));
  return static_cast<int>(size);
}

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  decltype(&openblas_get_config) config = nullptr;
  decltype(&openblas_get_corename) core = nullptr;
  decltype(&openblas_get_parallel) parallel = nullptr;
};

// Opens it by its name first, where the system has it now, then where it was when this was built.
void* open_library(int flags, std::string& why_not) {
  for (const char* file : {CONVGRAD_OPENBLAS_NAME, CONVGRAD_OPENBLAS_FILE}) {
    void* const library = dlopen(file, flags | RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    const char* const said = dlerror();
    if (why_not.empty() && said != nullptr) why_not = said;
  }
  return nullptr;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw Error(ErrorKind::runtime, CONVGRAD_OPENBLAS_NAME, " has no ", name,
              ": OpenBLAS 0.3 was expected", Hint("install it"));
}

// Ends the worker threads that OpenBLAS's pthread build starts when it is loaded. Never used here,
// they spin while they wait, and take up to half of a 2-core machine from the task pool.
void end_workers(void* library) {
  // Where address space is limited (ulimit -v) a worker may be retrying for its buffer for ever,
  // and waiting for its end would hang: there it is left alone.
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  // OpenBLAS's headers lack it, and so do its serial and OpenMP builds, which have no such threads.
  using Stop = int (*)();
  const auto stop = reinterpret_cast<Stop>(dlsym(library, "blas_thread_shutdown_"));
  if (stop != nullptr) stop();
}

// libgfortran, which comes with OpenBLAS, ends the process with status 1 where it cannot have its
// first blocks (42 KB in all, with the loader's), so the room for them is tried before.
void make_room() {
  void* volatile room = std::malloc(std::size_t{100} << 10);
  if (room == nullptr) throw Error(ErrorKind::runtime, "out of memory: no room for OpenBLAS");
  std::free(room);
}

OpenBlas load() {
  make_room();
  std::string why_not;
  const bool is_anothers = open_library(RTLD_NOLOAD, why_not) != nullptr;
  why_not.clear();
  void* const library = open_library(0, why_not);
  if (library == nullptr) {
    throw Error(ErrorKind::runtime, "OpenBLAS cannot be loaded: ", why_not);
  }
  OpenBlas blas;
  find(library, "cblas_sgemm", blas.sgemm);
  find(library, "cblas_dgemm", blas.dgemm);
  find(library, "openblas_get_config", blas.config);
  find(library, "openblas_get_corename", blas.core);
  find(library, "openblas_get_parallel", blas.parallel);
  decltype(&openblas_set_num_threads) use_threads = nullptr;
  find(library, "openblas_set_num_threads", use_threads);
  use_threads(1);
  if (!is_anothers) end_workers(library);  // last: whatever sets the number starts them
  return blas;
}

std::atomic<const OpenBlas*> loaded = nullptr;

// Loads it once; a call after one that failed tries again. A static variable would do the same, but
// for GCC 12's thread sanitizer: whoever waits for an initialisation that throws is never woken.
const OpenBlas& blas() {
  static OpenBlas place;
  static std::mutex loading;
  if (const OpenBlas* const there = loaded.load(std::memory_order_acquire)) return *there;
  const std::scoped_lock lock(loading);
  const OpenBlas* there = loaded.load(std::memory_order_relaxed);
  if (there == nullptr) {
    place = load();
    there = &place;
    loaded.store(there, std::memory_order_release);
  }
  return *there;
}

CBLAS_TRANSPOSE op(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

bool fits_blas(std::int64_t ld) { return ld > 0 && ld <= std::numeric_limits<int>::max(); }

void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<float> a,
          GemmOperand<float> b, float* c) {
  blas().sgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n),
               narrow(depth), 1.0F, a.data, narrow(a.ld), b.data, narrow(b.ld), 0, c, narrow(n));
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<double> a,
          GemmOperand<double> b, double* c) {
  blas().dgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n),
               narrow(depth), 1.0, a.data, narrow(a.ld), b.data, narrow(b.ld), 0, c, narrow(n));
}

bool blas_is_loaded() { return loaded != nullptr; }

BlasInfo blas_info() {
  static constexpr const char* kParallel[] = {"serial", "pthread", "openmp"};
  const int parallel = blas().parallel();
  return {blas().config(), blas().core(),
          parallel >= 0 && parallel <= 2 ? kParallel[parallel] : "unknown"};
}

}  // namespace convgrad
