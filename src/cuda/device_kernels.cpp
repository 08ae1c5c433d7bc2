// device_kernels.cpp - the one table of device kernels. It says what they can do; the kernels
// themselves are in simt_gemm.hpp, streaming.hpp and so on.
#include <algorithm>
#include <array>
#include <iomanip>

#include "base/suggest.hpp"
#include "cuda/choices.hpp"
#include "engine/device_kernel.hpp"
#include "engine/device_sum.hpp"
#include "engine/kernel.hpp"
#include "engine/plan.hpp"

namespace convgrad {
namespace {

// These are rough rates of a large device (H100, H200), none of them measured. Only their
// proportions matter, to choose between kernels. The choice, and the bits with it, follows from the
// problem and the compute capability.
constexpr double kBytesPerSecond = 3e12;
constexpr double kSimtF32 = 25e12, kSimtF64 = 12e12;  // FLOP/s

// So many thread blocks run at a time on its 128 or so multiprocessors: two of those that fill
// shared memory and registers for tensor cores, eight small ones.
constexpr std::int64_t kTensorWave = 256, kSimtWave = 1024;

double tensor_bytes(const WgradProblem& problem) {
  return static_cast<double>(dtype_bytes(problem.dtype)) *
         (static_cast<double>(problem.x_count()) + static_cast<double>(problem.dy_count()));
}

// Tensor cores take so many products of bfloat16 in the time of one of float32 without them, by
// NVIDIA's figures, dense and with float32 sums: 16 on 8.0, 15 on 9.0, about 28 on 10.0 (A100, H100
// and B200); but 2 on the GeForces of 8.6, 8.9 and 12.0 (whitepapers of GA102, Ada and RTX
// Blackwell), at most 4 on their siblings for workstations, and 8 on 8.7. Six products for one are
// a loss there.
bool has_large_tensor_cores(const Device& device) {
  return device.major == 10 || device.major == 11 ||
         ((device.major == 8 || device.major == 9) && device.minor == 0);
}

double simt_rate(const WgradProblem& problem) {
  return problem.dtype == DType::f64 ? kSimtF64 : kSimtF32;
}

std::int64_t nothing_packed(const WgradProblem&, std::int64_t, std::int64_t) { return 0; }

// ---- cuda_simt_gemm ----

std::string simt_why_not(const WgradProblem& problem, const Device&) {
  return cuda::too_large(problem);
}

std::int64_t simt_tiles(const WgradProblem& problem) {
  const cuda::SimtChoice choice = cuda::simt_choice(problem);
  return problem.groups * choice.row_tiles * choice.column_tiles;
}

// Counts what tiles compute, also beyond dw's edges. Narrow tiles load twice as much a product.
double simt_seconds(const WgradProblem& problem, const Device&) {
  const cuda::SimtChoice choice = cuda::simt_choice(problem);
  const double flops = 2 * static_cast<double>(term_count(problem)) * choice.size * choice.size *
                       static_cast<double>(simt_tiles(problem));
  return tensor_bytes(problem) / kBytesPerSecond +
         flops / (simt_rate(problem) * (choice.narrow ? 0.5 : 1.0));
}

// ---- cuda_streaming ----

std::string streaming_why_not(const WgradProblem& problem, const Device&) {
  std::string large = cuda::too_large(problem);
  if (!large.empty()) return large;
  if (problem.group_c() > 16) {
    return cat("it is for groups of at most 16 input channels, and this has ", problem.group_c());
  }
  if (cuda::stream_choice(problem).unit.images == 0) {
    return "its taps are too far apart for shared memory";
  }
  return "";
}

std::int64_t streaming_tiles(const WgradProblem& problem) {
  return cuda::stream_choice(problem).tiles;
}

double streaming_seconds(const WgradProblem& problem, const Device&) {
  const cuda::StreamChoice choice = cuda::stream_choice(problem);
  // Each tile of taps and input channels reads all of x and dy again.
  const double passes = static_cast<double>(choice.tiles) / choice.k_tiles;
  const double flops = 2 * static_cast<double>(term_count(problem)) * choice.r * choice.s *
                       choice.c * cuda::kStreamLanes * static_cast<double>(choice.tiles);
  // Copies, loads of shared memory and addresses take about one and a half for each product.
  return passes * tensor_bytes(problem) / kBytesPerSecond + 2.5 * flops / simt_rate(problem);
}

// ---- cuda_mma and its like ----

std::string tensor_cores_why_not(const WgradProblem& problem, const Device& device) {
  std::string large = cuda::too_large(problem);
  if (!large.empty()) return large;
  if (device.major < 8) {
    return cat("it needs compute capability 8.0, and the device has ", device.major, ".",
               device.minor);
  }
  return "";
}

std::string mma_why_not(const WgradProblem& problem, const Device& device) {
  if (dtype_bytes(problem.dtype) != 2) {
    return cat("it multiplies float16 and bfloat16, not ", dtype_name(problem.dtype));
  }
  return tensor_cores_why_not(problem, device);
}

std::string mma_f32_why_not(const WgradProblem& problem, const Device& device) {
  if (problem.dtype != DType::f32) {
    return cat("it multiplies float32, not ", dtype_name(problem.dtype));
  }
  return tensor_cores_why_not(problem, device);
}

std::string mma_f64_why_not(const WgradProblem& problem, const Device& device) {
  if (problem.dtype != DType::f64) {
    return cat("it multiplies float64, not ", dtype_name(problem.dtype));
  }
  // Only devices of data centres are fast; 11.0 and 12.0 are others.
  const bool fast = device.major >= 8 && device.major <= 10 && device.minor == 0;
  std::string reason = tensor_cores_why_not(problem, device);
  if (!reason.empty() || fast) return reason;
  return cat("devices of compute capability ", device.major, ".", device.minor,
             " have no fast float64");
}

std::int64_t mma_tiles(const WgradProblem& problem) {
  const cuda::MmaChoice choice = cuda::mma_choice(problem);
  return problem.groups * problem.taps() * choice.row_tiles * choice.column_tiles;
}

std::int64_t mma_packed_bytes(const WgradProblem& problem, std::int64_t x_bytes,
                              std::int64_t dy_bytes) {
  const auto packed = [&](std::int64_t bytes, std::int64_t channels) {
    if (!cuda::needs_pack(problem, channels)) return std::int64_t{0};
    // The copy has whole pixels of all groups, and room to align what follows.
    return bytes / channels * cuda::mma_pitch(problem, channels) + 256;
  };
  return packed(x_bytes, problem.group_c()) + packed(dy_bytes, problem.group_k());
}

// Counts bytes of tensors that are read and written; packed copies are written and read once more.
double mma_bytes(const WgradProblem& problem) {
  const bool packs =
      cuda::needs_pack(problem, problem.group_c()) || cuda::needs_pack(problem, problem.group_k());
  return (packs ? 3 : 1) * tensor_bytes(problem);
}

double mma_seconds(const WgradProblem& problem, const Device& device) {
  const cuda::MmaChoice choice = cuda::mma_choice(problem);
  const double flops = 2 * static_cast<double>(term_count(problem)) * choice.rows * choice.columns *
                       static_cast<double>(mma_tiles(problem));
  const double rate16 = has_large_tensor_cores(device) ? 300e12 : 60e12;
  const double rate = problem.dtype == DType::f64   ? 35e12
                      : problem.dtype == DType::f32 ? rate16 / 6
                      : choice.wide                 ? rate16
                                                    : rate16 / 2;
  return mma_bytes(problem) / kBytesPerSecond + flops / rate;
}

// ---- cuda_wgmma ----

std::string wgmma_why_not(const WgradProblem& problem, const Device& device) {
  std::string reason = mma_why_not(problem, device);
  if (!reason.empty()) return reason;
  if (device.major != 9 || device.minor != 0) {
    return cat("it needs compute capability 9.0 itself, and the device has ", device.major, ".",
               device.minor);
  }
  const std::int64_t channels =
      problem.groups * std::max(cuda::mma_pitch(problem, problem.group_c()),
                                cuda::mma_pitch(problem, problem.group_k()));
  if (channels >= cuda::kMaxExtent || problem.N >= cuda::kMaxExtent) {
    return cat("its copies count channels and images to ", cuda::kMaxExtent);
  }
  return "";
}

std::int64_t wgmma_tiles(const WgradProblem& problem) {
  const cuda::WgmmaChoice choice = cuda::wgmma_choice(problem);
  return problem.groups * problem.taps() * choice.row_tiles * choice.column_tiles;
}

double wgmma_seconds(const WgradProblem& problem, const Device&) {
  constexpr double kRate = 500e12;
  const cuda::WgmmaChoice choice = cuda::wgmma_choice(problem);
  const double padded = double{cuda::kSlabPixels} / choice.slab.pixels();
  const double flops = 2 * static_cast<double>(term_count(problem)) * padded * cuda::kWgmmaRows *
                       cuda::kWgmmaColumns * static_cast<double>(wgmma_tiles(problem));
  return mma_bytes(problem) / kBytesPerSecond + flops / kRate;
}

// ---- cudnn ----

std::string cudnn_why_not(const WgradProblem& problem, const Device&) {
  if (problem.dtype == DType::f64 && problem.channels_last) {
    return "it computes float64 with channels first only";
  }
  for (const SpatialAxis& axis : problem.axis) {
    // cuDNN pads both ends alike, and computes the number of outputs from that.
    const std::int64_t reach = (axis.taps - 1) * axis.dilation + 1;
    const std::int64_t out = (axis.in + 2 * axis.pad_before - reach) / axis.stride + 1;
    if (out != axis.out) {
      return cat("it pads both ends alike, and this pads ", axis.pad_before, " and ",
                 axis.pad_after);
    }
  }
  std::string large = cuda::too_large(problem);
  return large.empty() ? why_no_cudnn() : large;
}

std::int64_t cudnn_tiles(const WgradProblem&) { return 1; }

std::int64_t cudnn_packed_bytes(const WgradProblem& problem, std::int64_t, std::int64_t) {
  return problem.dw_count() * dtype_bytes(problem.dtype);  // its result
}

double cudnn_seconds(const WgradProblem& problem, const Device&) {
  return tensor_bytes(problem) / kBytesPerSecond + flop_count(problem) / simt_rate(problem);
}

}  // namespace

std::span<const DeviceKernel> device_kernels() {
  static const auto table = std::to_array<DeviceKernel>({
      {"cuda_mma", "implicit GEMM on tensor cores for float16 and bfloat16", false, mma_why_not,
       mma_seconds, mma_tiles, mma_packed_bytes, kTensorWave},
      {"cuda_wgmma",
       "the same by the matrix instructions and bulk copies of compute capability 9.0; by name "
       "only, as it has run on no device yet",
       true, wgmma_why_not, wgmma_seconds, wgmma_tiles, mma_packed_bytes, kTensorWave},
      {"cuda_mma_f64", "the same for float64", false, mma_f64_why_not, mma_seconds, mma_tiles,
       mma_packed_bytes, kTensorWave},
      {"cuda_mma_bf16x3", "the same for float32, as three bfloat16 terms: no less exact", false,
       mma_f32_why_not, mma_seconds, mma_tiles, mma_packed_bytes, kTensorWave},
      {"cuda_mma_tf32", "the same for float32 rounded to TF32 (11 bits); by name only", true,
       mma_f32_why_not, mma_seconds, mma_tiles, mma_packed_bytes, kTensorWave},
      {"cuda_streaming", "depthwise and small groups: one pass, all taps in registers", false,
       streaming_why_not, streaming_seconds, streaming_tiles, nothing_packed, kSimtWave},
      {"cuda_simt_gemm", "implicit GEMM without tensor cores, for every problem", false,
       simt_why_not, simt_seconds, simt_tiles, nothing_packed, kSimtWave},
      {"cudnn_any", "cuDNN 9's first choice, whose bits may differ from run to run; by name only",
       true, cudnn_why_not, cudnn_seconds, cudnn_tiles, cudnn_packed_bytes, 1, true},
      {"cudnn", "cuDNN 9, if it is installed, deterministic; its result is rounded to the dtype",
       true, cudnn_why_not, cudnn_seconds, cudnn_tiles, cudnn_packed_bytes, 1, true},
  });
  return table;
}

bool is_device_kernel(std::string_view name) {
  return std::ranges::any_of(device_kernels(),
                             [&](const DeviceKernel& kernel) { return kernel.name == name; });
}

Feasible<const DeviceKernel*> find_device_kernel(const WgradProblem& problem, const Device& device,
                                                 std::string_view name) {
  const WgradProblem shape = with_channels(problem);
  const DeviceKernel* best = nullptr;
  double best_seconds = 0;
  std::vector<std::string> names = {"auto"};
  std::string reason;
  for (const DeviceKernel& kernel : device_kernels()) {
    names.emplace_back(kernel.name);
    if (name != "auto" ? kernel.name != name : kernel.by_name_only) continue;
    reason = kernel.why_not(shape, device);
    if (!reason.empty() && name == "auto") continue;
    if (!reason.empty()) {
      return Error(ErrorKind::unavailable, "--algorithm: ", name, " cannot compute ",
                   describe(problem), ": ", reason);
    }
    const double seconds = kernel.estimated_seconds(shape, device);
    if (best == nullptr || seconds < best_seconds) {
      best = &kernel;
      best_seconds = seconds;
    }
  }
  if (best != nullptr) return best;
  if (name == "auto") {
    return Error(ErrorKind::unavailable, "--backend cuda cannot compute ", describe(problem), ": ",
                 reason, "; use --backend cpu");
  }
  throw Error(ErrorKind::usage, "--algorithm: '", name, "' is none of --backend cuda, expected ",
              join_or(names), did_you_mean(name, names));
}

const DeviceKernel& choose_device_kernel(const WgradProblem& problem, const Device& device,
                                         std::string_view name) {
  return *find_device_kernel(problem, device, name).or_throw();
}

// Estimates what a kernel takes with these slices, in units of the time of a chunk. Thread blocks
// run in waves, of which the last may be a few; each takes its chunks and half a chunk's time to
// begin and end. A partial gradient is written and read again, 16 bytes an element, while a chunk
// is up to 1024 operations an element: at 100 operations a byte, of tensor cores with 16-bit data,
// that is 1.6 chunks of all the device.
double slice_cost(const SliceGrid& slices, std::int64_t tiles, std::int64_t wave) {
  constexpr double kStart = 0.5, kPartial = 1.6;
  const std::int64_t units = slices.chunks / slices.unit, blocks = slices.count() * tiles;
  const std::int64_t chunks =
      cuda::ceil_div(cuda::ceil_div(units, slices.partitions) * slices.unit, slices.interleave);
  return static_cast<double>(cuda::ceil_div(blocks, wave)) *
             (static_cast<double>(chunks) + kStart) +
         kPartial * static_cast<double>(blocks) / static_cast<double>(wave);
}

SliceGrid device_slice_grid(const WgradProblem& problem, const ChunkGrid& grid,
                            const DeviceKernel& kernel, std::int64_t tiles) {
  // A slice has at least two chunks; partials take no more memory than the processor's, and slices
  // fill a device a few times at most.
  constexpr std::int64_t kMinChunks = 2, kMaxSlices = 4096, kWaves = 4;
  constexpr std::int64_t kMaxPartialBytes = std::int64_t{128} << 20;
  // Partitions are few, as chunks are dealt to slices within each: a block within one of them still
  // has chunks of an eighth of all slices.
  constexpr std::int64_t kPartitions = 8;
  if (kernel.one_slice) return deal_slices(grid, 1, 1, 1);
  const std::int64_t most = std::clamp<std::int64_t>(
      std::min({cuda::ceil_div(kWaves * kernel.wave, std::max<std::int64_t>(tiles, 1)),
                grid.count / kMinChunks,
                kMaxPartialBytes / (with_channels(problem).dw_count() * 8)}),
      1, kMaxSlices);
  SliceGrid best = deal_slices(grid, 1, kPartitions, kMaxSlices);
  double best_cost = slice_cost(best, tiles, kernel.wave);
  for (std::int64_t slices = 2; slices <= most; ++slices) {
    const SliceGrid grid_of = deal_slices(grid, slices, kPartitions, kMaxSlices);
    const double cost = slice_cost(grid_of, tiles, kernel.wave);
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = grid_of;
  }
  return best;
}

DeviceRule device_rule(const WgradProblem& problem) {
  // A context takes about half a second, and the bus some 10 GB/s (PCIe 3.0 with 16 lanes).
  constexpr double kStart = 0.5, kBus = 10e9, kMargin = 4;
  // The processor counts as if it had no more than AVX2, so that every machine has the same rule.
  Machine plain;
  plain.instruction_sets = {"avx2", "fma"};
  const Kernel& kernel = choose_kernel(problem, plain);
  const double cpu = kernel.estimated_seconds(with_channels(problem));
  const double cuda = kStart + tensor_bytes(problem) / kBus;
  DeviceRule rule;
  rule.worth_it = cpu > kMargin * cuda;
  TextWriter text;
  text << std::setprecision(3) << "a CUDA device is taken if one core would need more than "
       << kMargin << " x (" << kStart << " s + bytes / 10 GB/s): " << cpu << " s "
       << (rule.worth_it ? ">" : "<=") << " " << kMargin * cuda << " s";
  rule.sentence = text.str();
  return rule;
}

}  // namespace convgrad
