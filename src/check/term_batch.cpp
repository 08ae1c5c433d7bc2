// term_batch.cpp - see term_batch.hpp. It is compiled without contraction into fused multiply-adds.
// One loop is compiled for three instruction sets, none of which changes a bit.
#include "check/term_batch.hpp"

#include <algorithm>
#include <cmath>

namespace convgrad {
namespace {

// Neighbouring elements are added at once: compilers make of these what the processor has. Vectors
// of unlike counts follow one another, down to single elements.
typedef double Doubles8 __attribute__((vector_size(64)));
typedef double Doubles4 __attribute__((vector_size(32)));
typedef float Floats16 __attribute__((vector_size(64)));
typedef float Floats4 __attribute__((vector_size(16)));
template <typename Vector, typename Number>
inline constexpr std::int64_t kLanes = sizeof(Vector) / sizeof(Number);

template <typename Vector, typename Number>
CONVGRAD_INLINE Vector load(const Number* numbers, std::int64_t k) {
  Vector vector;
  __builtin_memcpy(&vector, numbers + k, sizeof vector);
  return vector;
}
template <typename Vector, typename Number>
CONVGRAD_INLINE void store(Number* numbers, std::int64_t k, Vector vector) {
  __builtin_memcpy(numbers + k, &vector, sizeof vector);
}
template <typename Vector>
CONVGRAD_INLINE void add_to(double* numbers, std::int64_t k, Vector vector) {
  store(numbers, k, load<Vector>(numbers, k) + vector);
}

// Sums the products in float32, as a plain loop would, from element k on.
template <int kPixels, typename Vector>
CONVGRAD_INLINE std::int64_t add_plain(const TermBatch& b, const double* x, float* plain,
                                       std::int64_t k) {
  constexpr std::int64_t kStep = kLanes<Vector, float>;
  float values[kPixels] = {};  // which no store can be taken to change
  for (int i = 0; i < kPixels; ++i) values[i] = static_cast<float>(x[i]);
  const float* const dy = b.dy_plain;
  const std::int64_t count = b.count;
  for (; k + kStep <= count; k += kStep) {
    Vector sum = load<Vector>(plain, k);
    for (int i = 0; i < kPixels; ++i) {
      sum += values[i] * load<Vector>(dy + i * count, k);
    }
    store(plain, k, sum);
  }
  return k;
}

template <int kPixels, bool kCompensated, bool kStatistics, bool kEvery, typename Vector>
CONVGRAD_INLINE std::int64_t add_vectors(TermBatch b, const double* values, TermSums s,
                                         std::int64_t k) {
  constexpr std::int64_t kStep = kLanes<Vector, double>;
  double x[kPixels] = {};  // copies, as of b and s: no store can be taken to change them
  for (int i = 0; i < kPixels; ++i) x[i] = values[i];
  for (; k + kStep <= b.count; k += kStep) {
    TermValues<Vector> v{load<Vector>(s.sum, k), {}, {}, {}, {}, {}};
    if constexpr (kCompensated) v.compensation = load<Vector>(s.compensation, k);
    for (int i = 0; i < kPixels; ++i) {
      v.template add<kCompensated, kStatistics, kEvery>(x[i], load<Vector>(b.dy + i * b.count, k));
    }
    store(s.sum, k, v.sum);
    if constexpr (kCompensated) store(s.compensation, k, v.compensation);
    if constexpr (kStatistics) {
      add_to(s.magnitude, k, v.magnitude);
      add_to(s.squares, k, v.squares);
      if constexpr (kEvery) {
        add_to(s.walk, k, v.walk);
      } else if (b.last) {
        add_to(s.walk, k, v.sum * v.sum);
      }
      add_to(s.terms, k, v.terms);
    }
  }
  return k;
}

template <int kPixels, bool kCompensated, bool kStatistics, bool kEvery = false>
CONVGRAD_INLINE void add_terms(const TermBatch& b, const double* x, const TermSums& s) {
  std::int64_t k = add_vectors<kPixels, kCompensated, kStatistics, kEvery, Doubles8>(b, x, s, 0);
  k = add_vectors<kPixels, kCompensated, kStatistics, kEvery, Doubles4>(b, x, s, k);
  add_vectors<kPixels, kCompensated, kStatistics, kEvery, double>(b, x, s, k);
  if constexpr (!kStatistics) return;
  if (s.plain != nullptr) {
    k = add_plain<kPixels, Floats16>(b, x, s.plain, 0);
    k = add_plain<kPixels, Floats4>(b, x, s.plain, k);
    add_plain<kPixels, float>(b, x, s.plain, k);
  }
}

template <int kPixels, bool kCompensated>
CONVGRAD_INLINE void add_pixels(const TermBatch& b, const double* x, const TermSums& s) {
  if (s.magnitude == nullptr) return add_terms<kPixels, kCompensated, false>(b, x, s);
  if (b.every) return add_terms<kPixels, kCompensated, true, true>(b, x, s);
  add_terms<kPixels, kCompensated, true>(b, x, s);
}

template <int kPixels>
CONVGRAD_INLINE void add_pixels(const TermBatch& b, const double* x, const TermSums& s) {
  if (s.compensation != nullptr) return add_pixels<kPixels, true>(b, x, s);
  add_pixels<kPixels, false>(b, x, s);
}

CONVGRAD_INLINE void add_all(const TermBatch& batch, const double* x, const TermSums& sums) {
  if (batch.pixels == kBatchPixels) return add_pixels<kBatchPixels>(batch, x, sums);
  TermBatch one = batch;
  for (std::int64_t i = 0; i < batch.pixels; ++i) {
    one.dy = batch.dy + i * batch.count;
    one.dy_plain = batch.dy_plain + i * batch.count;
    one.last = batch.last && i + 1 == batch.pixels;
    add_pixels<1>(one, x + i, sums);
  }
}

void add_portable(const TermBatch& batch, const double* x, const TermSums& sums) {
  add_all(batch, x, sums);
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void add_avx2(const TermBatch& batch, const double* x,
                                                  const TermSums& sums) {
  add_all(batch, x, sums);
}

__attribute__((target("avx512f,avx512dq,avx512vl,fma"))) void add_avx512(const TermBatch& batch,
                                                                         const double* x,
                                                                         const TermSums& sums) {
  add_all(batch, x, sums);
}

#endif

}  // namespace

void restart(const TermSums& s, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    s.plain_earlier[i] += s.plain != nullptr ? static_cast<double>(s.plain[i]) : s.sum[i];
    if (s.compensation != nullptr) {
      add_exactly(s.sum[i], s.earlier[i], s.compensation[i]);
    } else {
      s.earlier[i] += s.sum[i];
    }
    s.sum[i] = 0;
    if (s.plain != nullptr) s.plain[i] = 0;
  }
}

RoundingScale judge_terms(const TermSums& s, std::int64_t i, const WgradProblem& problem,
                          std::int64_t pixels, const Summation& summation, double& squares) {
  if (s.compensation != nullptr) compensate(s.earlier[i], s.compensation[i]);
  if (std::isfinite(s.squares[i])) squares += s.squares[i];
  const double plain = s.plain_earlier[i] - s.earlier[i];
  return rounding_scale({s.earlier[i], s.terms[i], s.squares[i],
                         mean_walk(problem, pixels, s.walk[i]), plain, s.magnitude[i]},
                        problem.dtype, summation);
}

std::vector<AddBatch> batch_variants() {
  std::vector<AddBatch> variants = {add_portable};
#ifdef __x86_64__
  const bool fma = __builtin_cpu_supports("fma");
  if (fma && __builtin_cpu_supports("avx2")) variants.push_back(add_avx2);
  if (fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    variants.push_back(add_avx512);
  }
#endif
  return variants;
}

void add_batch(const TermBatch& batch, const double* x, const TermSums& sums) {
  static const AddBatch chosen = batch_variants().back();
  chosen(batch, x, sums);
}

}  // namespace convgrad
