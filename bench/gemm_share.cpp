// gemm_share.cpp - how much of OpenBLAS's own speed do the algorithms reach? For dense layers:
// SGEMM (DGEMM) of the shape that im2col of the whole batch would have, on the same threads, and
// each algorithm on the tensors themselves; interleaved, the minimum of several rounds.
//
//   convgrad_bench_gemm [--threads N] [--rounds N] [--float64] [--only TEXT]
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/integers.hpp"
#include "engine/run.hpp"

// Not in OpenBLAS's headers, nor in its serial and OpenMP builds.
extern "C" __attribute__((weak)) int blas_thread_shutdown_();

namespace {

using namespace convgrad;

struct Layer {
  const char* name;
  std::int64_t N, size, C, K, taps, stride, groups;
};

constexpr Layer kLayers[] = {
    {"stem 16x224x224x3 -> 64, 7x7 s2", 16, 224, 3, 64, 7, 2, 1},
    {"16x56x56x64 -> 256, 1x1", 16, 56, 64, 256, 1, 1, 1},
    {"16x56x56x64 -> 64, 3x3", 16, 56, 64, 64, 3, 1, 1},
    {"16x14x14x256 -> 256, 3x3", 16, 14, 256, 256, 3, 1, 1},
    {"16x7x7x512 -> 512, 3x3", 16, 7, 512, 512, 3, 1, 1},
    {"16x28x28x96 -> 160, 3x3 s2", 16, 28, 96, 160, 3, 2, 1},
    {"5x33x33x101 -> 67, 5x5", 5, 33, 101, 67, 5, 1, 1},
    {"16x56x56x128 -> 128, 3x3, 32 groups", 16, 56, 128, 128, 3, 1, 32},
    {"16x28x28x128 -> 128, 3x3, 4 groups", 16, 28, 128, 128, 3, 1, 4},
    {"depthwise 16x56x56x144, 3x3", 16, 56, 144, 144, 3, 1, 144},
};

struct Settings {
  int threads = 0;
  int rounds = 7;
  DType dtype = DType::f32;
  std::string only;  // layers whose names hold this
};

WgradProblem problem_of(const Layer& layer, DType dtype) {
  WgradAttributes a;
  a.op = "conv2d";
  a.kernel = {layer.taps};
  a.strides = {layer.stride};
  a.padding = "SAME";
  a.groups = layer.groups;
  const std::int64_t out = ceil_div(layer.size, layer.stride);
  return make_problem({"x", dtype, {layer.N, layer.size, layer.size, layer.C}},
                      {"dy", dtype, {layer.N, out, out, layer.K}}, a);
}

template <typename Scalar>
std::vector<Scalar> ramp(std::int64_t count) {
  std::vector<Scalar> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Scalar>(static_cast<double>(i * 7919 % 1021) / 1021.0 - 0.5);
  }
  return values;
}

// One GEMM of [taps*C/G, pixels] x [pixels, K/G] for each group.
template <typename Scalar>
double gemm_seconds(const WgradProblem& pb, int threads, const std::vector<Scalar>& columns,
                    const std::vector<Scalar>& dy, std::vector<Scalar>& dw) {
  const int m = static_cast<int>(pb.taps() * pb.group_c()), n = static_cast<int>(pb.group_k());
  const int depth = static_cast<int>(term_count(pb));
  openblas_set_num_threads(threads);
  const double time = seconds_of([&] {
    for (std::int64_t g = 0; g < pb.groups; ++g) {
      const Scalar* b = dy.data() + g * pb.group_k();
      const int ldb = static_cast<int>(pb.K);
      if constexpr (sizeof(Scalar) == 4) {
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, depth, 1, columns.data(), m, b,
                    ldb, 0, dw.data(), n);
      } else {
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, depth, 1, columns.data(), m, b,
                    ldb, 0, dw.data(), n);
      }
    }
  });
  openblas_set_num_threads(1);
  // Its threads would spin through the next measurement.
  if (blas_thread_shutdown_ != nullptr) blas_thread_shutdown_();
  return time;
}

template <typename Scalar>
void measure(const Layer& layer, const Settings& settings) {
  const WgradProblem pb = problem_of(layer, settings.dtype);
  const auto x = ramp<Scalar>(pb.x_count()), dy = ramp<Scalar>(pb.dy_count());
  const auto columns = ramp<Scalar>(term_count(pb) * pb.taps() * pb.group_c());
  std::vector<Scalar> dw(static_cast<std::size_t>(pb.taps() * pb.group_c() * pb.group_k()));
  std::vector<Scalar> gradient(static_cast<std::size_t>(pb.dw_count()));
  PlanOptions options;
  options.threads = settings.threads;
  double gemm = std::numeric_limits<double>::infinity();
  std::vector<double> best(kernels().size(), gemm);
  for (int round = 0; round < settings.rounds; ++round) {
    gemm = std::min(gemm, gemm_seconds(pb, settings.threads, columns, dy, dw));
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (!kernels()[i].why_not(pb, this_machine()).empty()) continue;
      options.algorithm = kernels()[i].name;
      best[i] = std::min(best[i], seconds_of([&] {
                           filter_gradient(pb, x.data(), dy.data(), gradient.data(), options);
                         }));
    }
  }
  const double gflop = flop_count(pb) * 1e-9;
  std::printf("%-38s %7.1f", layer.name, gflop / gemm);
  for (std::size_t i = 0; i < best.size(); ++i) {
    if (std::isinf(best[i])) {
      std::printf("  %-26s", "-");
      continue;
    }
    const double estimate = kernels()[i].estimated_seconds(pb) / settings.threads;
    std::printf("  %7.1f (%4.2f, est %5.1f)", gflop / best[i], gemm / best[i], gflop / estimate);
  }
  std::printf("  %s\n", std::string(find_kernel(pb, this_machine()).or_throw()->name).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.threads = this_machine().threads;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--float64") settings.dtype = DType::f64;
    if (word == "--only" && i + 1 < argc) settings.only = argv[++i];
    if (word == "--threads" && i + 1 < argc) settings.threads = std::atoi(argv[++i]);
    if (word == "--rounds" && i + 1 < argc) settings.rounds = std::atoi(argv[++i]);
  }
  const BlasInfo blas = blas_info();
  std::printf("%s, %d threads, OpenBLAS kernels for %s, %s, minimum of %d rounds, GFLOP/s\n",
              this_machine().processor.c_str(), settings.threads, blas.core.c_str(),
              std::string(dtype_name(settings.dtype)).c_str(), settings.rounds);
  std::printf("in brackets: share of the GEMM's speed, and the estimate that auto goes by\n");
  std::printf("%-38s %7s", "layer", "GEMM");
  for (const Kernel& kernel : kernels()) {
    std::printf("  %-26s", std::string(kernel.name).c_str());
  }
  std::printf("  auto\n");
  for (const Layer& layer : kLayers) {
    if (std::string(layer.name).find(settings.only) == std::string::npos) continue;
    if (settings.dtype == DType::f64) {
      measure<double>(layer, settings);
    } else {
      measure<float>(layer, settings);
    }
  }
  return 0;
}
