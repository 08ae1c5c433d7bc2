// wrong_blas.cpp - takes OpenBLAS's place, and leaves out the last pixel of each product.
extern "C" {

char* openblas_get_config() {
  static char text[] = "wrong";
  return text;
}
char* openblas_get_corename() { return openblas_get_config(); }
int openblas_get_parallel() { return 0; }
void openblas_set_num_threads(int) {}
}

namespace {

constexpr int kRowMajor = 101, kTransposed = 112;

template <typename Scalar>
void gemm(int order, int transposed_a, int transposed_b, int m, int n, int depth, const Scalar* a,
          int lda, const Scalar* b, int ldb, Scalar beta, Scalar* c, int ldc) {
  if (order != kRowMajor) return;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      Scalar sum = beta == 0 ? 0 : beta * c[i * ldc + j];
      for (int p = 0; p + 1 < depth; ++p) {
        sum += (transposed_a == kTransposed ? a[p * lda + i] : a[i * lda + p]) *
               (transposed_b == kTransposed ? b[j * ldb + p] : b[p * ldb + j]);
      }
      c[i * ldc + j] = sum;
    }
  }
}

}  // namespace

extern "C" {

void cblas_sgemm(int order, int ta, int tb, int m, int n, int depth, float, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  gemm(order, ta, tb, m, n, depth, a, lda, b, ldb, beta, c, ldc);
}
void cblas_dgemm(int order, int ta, int tb, int m, int n, int depth, double, const double* a,
                 int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  gemm(order, ta, tb, m, n, depth, a, lda, b, ldb, beta, c, ldc);
}
}
