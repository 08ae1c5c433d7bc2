// blas.cpp - OpenBLAS, always on one thread: its results depend on its thread count, and ours must
// not. Threads are the task pool's business.
#include "cpu/blas.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <sys/resource.h>

#include <cassert>
#include <limits>

#include "convgrad/machine.hpp"

namespace convgrad {
namespace {

int narrow(std::int64_t size) {
  assert(fits_blas(size));
  return static_cast<int>(size);
}

void use_one_thread() {
  static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)done;
}

CBLAS_TRANSPOSE op(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

bool fits_blas(std::int64_t ld) { return ld > 0 && ld <= std::numeric_limits<int>::max(); }

void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<float> a,
          GemmOperand<float> b, float beta, float* c, std::int64_t ldc) {
  use_one_thread();
  cblas_sgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n),
              narrow(depth), 1.0F, a.data, narrow(a.ld), b.data, narrow(b.ld), beta, c,
              narrow(ldc));
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<double> a,
          GemmOperand<double> b, double beta, double* c, std::int64_t ldc) {
  use_one_thread();
  cblas_dgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n),
              narrow(depth), 1.0, a.data, narrow(a.ld), b.data, narrow(b.ld), beta, c, narrow(ldc));
}

void stop_blas_threads() {
  use_one_thread();  // first, because it would start them again
  // Where address space is limited (ulimit -v) a worker may be retrying for its buffer for ever,
  // and waiting for its end would hang: there it is left alone.
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return;
  // Not in OpenBLAS's headers, and not in its serial and OpenMP builds, which have no such threads.
  using Stop = int (*)();
  const auto stop = reinterpret_cast<Stop>(dlsym(RTLD_DEFAULT, "blas_thread_shutdown_"));
  if (stop != nullptr) stop();
}

BlasInfo blas_info() {
  static constexpr const char* kParallel[] = {"serial", "pthread", "openmp"};
  const int parallel = openblas_get_parallel();
  return {openblas_get_config(), openblas_get_corename(),
          parallel >= 0 && parallel <= 2 ? kParallel[parallel] : "unknown"};
}

}  // namespace convgrad
