// device_kernels.cpp - the one table of device kernels. It says what they can do; the kernels
// themselves are in gemm.hpp, depthwise.hpp and so on.
#include <algorithm>
#include <array>
#include <iomanip>
#include <limits>

#include "base/messages.hpp"
#include "cuda/choices.hpp"
#include "cuda/depthwise_choice.hpp"
#include "cuda/taps_choice.hpp"
#include "engine/block_sum.hpp"
#include "engine/device_kernel.hpp"
#include "engine/kernel.hpp"
#include "engine/plan.hpp"

namespace convgrad {
namespace {

bool always(const WgradProblem&) { return true; }
bool not_depthwise(const WgradProblem& problem) { return problem.group_c() > 1; }
// A GEMM's tile is filled with zeros where channels are few: cuda_streaming takes a third to six
// tenths of its time there (docs/measurements/cuda_h200.txt). 16-bit tensor cores outweigh that.
bool for_few_channels(const WgradProblem& problem) {
  return problem.groups > 1 || (dtype_bytes(problem.dtype) > 2 && problem.group_c() <= 4);
}

template <auto kChoice>
DeviceTiles tiles_of(const WgradProblem& problem) {
  return kChoice(problem).tiles;
}

template <auto kChannels>
std::int64_t packed_bytes_of(const WgradProblem& problem, std::int64_t x_bytes,
                             std::int64_t dy_bytes) {
  const auto [x, dy] = kChannels(problem);
  return cuda::packed_bytes(x, x_bytes) + cuda::packed_bytes(dy, dy_bytes);
}

std::string simt_why_not(const WgradProblem& problem, const Device&) {
  return cuda::too_large(problem);
}

std::string streaming_why_not(const WgradProblem& problem, const Device&) {
  std::string large = cuda::too_large(problem);
  if (!large.empty() || problem.group_c() <= 16) return large;
  return cat("it is for groups of at most 16 input channels, and this has ", problem.group_c());
}

std::string needs(const char* capability, const Device& device) {
  return cat("it needs compute capability ", capability, ", and the device has ", device.major, ".",
             device.minor);
}

// Of one dtype, or of two.
template <DType kOne, DType kOther = kOne>
std::string tensor_cores_why_not(const WgradProblem& problem, const Device& device) {
  if (problem.dtype != kOne && problem.dtype != kOther) {
    const std::string other = kOther == kOne ? "" : cat(" and ", dtype_name(kOther));
    return cat("it multiplies ", dtype_name(kOne), other, ", not ", dtype_name(problem.dtype));
  }
  std::string large = cuda::too_large(problem);
  return large.empty() && device.major < 8 ? needs("8.0", device) : large;
}

template <DType... kDTypes>
std::string wgmma_why_not(const WgradProblem& problem, const Device& device) {
  std::string reason = tensor_cores_why_not<kDTypes...>(problem, device);
  if (!reason.empty()) return reason;
  if (device.major != 9 || device.minor != 0) return needs("9.0 itself", device);
  if (!device.has_90a) return "this convgrad was built without the target 90a";
  if (std::max({problem.C, problem.K, problem.N}) + 8 >= cuda::kMaxExtent) {
    return cat("its copies count channels and images to ", cuda::kMaxExtent);
  }
  const cuda::TapsChoice choice = cuda::taps_choice(problem);
  if (choice.layout.stages == 0) {
    return cat("its copies take every ", cuda::kMaxBulkStep,
               "th position or nearer ones, and begin at multiples of 8 channels");
  }
  if (choice.grid.count >= std::int64_t{1} << 31 || choice.tiles >= 1 << 20) {
    return cat("it has ", choice.grid.count, " chunks and ", choice.tiles, " tiles, too many");
  }
  return "";
}

DeviceTiles wgmma_tiles(const WgradProblem& problem) {
  return {cuda::taps_choice(problem).tiles, 1};
}

DeviceSchedule wgmma_schedule(const WgradProblem& problem, std::int64_t least_chunks) {
  const cuda::TapsChoice choice = cuda::taps_choice(problem);
  DeviceSchedule result{choice.grid, cuda::taps_slices(choice, least_chunks), choice.tiles};
  if (choice.grid.count > 0) {
    result.partial_bytes = cuda::taps_partial_bytes(choice, result.slices);
  }
  return result;
}

std::string cudnn_why_not(const WgradProblem& problem, const Device&) {
  if (problem.dtype == DType::f64 && problem.channels_last) {
    return "it computes float64 with channels first only";
  }
  for (const SpatialAxis& axis : problem.axis) {
    // cuDNN pads both ends alike, and computes the number of outputs from that.
    const std::int64_t reach = (axis.taps - 1) * axis.dilation + 1;
    const std::int64_t out = (axis.in + 2 * axis.pad_before - reach) / axis.stride + 1;
    if (out != axis.out || axis.pad_before < 0) {
      return cat("it pads both ends alike, and does not crop; this pads ", axis.pad_before, " and ",
                 axis.pad_after);
    }
  }
  std::string large = cuda::too_large(problem);
  return large.empty() ? why_no_cudnn() : large;
}

DeviceTiles cudnn_tiles(const WgradProblem&) { return {}; }

std::int64_t cudnn_packed_bytes(const WgradProblem& problem, std::int64_t, std::int64_t) {
  return problem.dw_count() * dtype_bytes(problem.dtype);  // its result
}

}  // namespace

std::span<const DeviceKernel> device_kernels() {
  static const auto table = std::to_array<DeviceKernel>({
      {.name = "cuda_wgmma",
       .summary = "by the matrix instructions and bulk copies of capability 9.0, x once for taps",
       .auto_takes = not_depthwise,
       .why_not = wgmma_why_not<DType::f16, DType::bf16>,
       .tiles = wgmma_tiles,
       .packed_bytes = cuda::taps_packed_bytes,
       .schedule = wgmma_schedule},
      {.name = "cuda_streaming",
       .summary = "depthwise, small groups, few channels: one pass, taps in registers",
       .auto_takes = for_few_channels,
       .why_not = streaming_why_not,
       .tiles = tiles_of<cuda::depthwise_choice>,
       .packed_bytes = packed_bytes_of<cuda::depthwise_channels>,
       .chunks = cuda::depthwise_chunks},
      {.name = "cuda_mma",
       .summary = "implicit GEMM on tensor cores for float16 and bfloat16",
       .auto_takes = always,
       .why_not = tensor_cores_why_not<DType::f16, DType::bf16>,
       .tiles = tiles_of<cuda::mma_choice>,
       .packed_bytes = packed_bytes_of<cuda::gemm_channels>},
      {.name = "cuda_mma_f64",
       .summary = "the same for float64",
       .auto_takes = always,
       .why_not = tensor_cores_why_not<DType::f64>,
       .tiles = tiles_of<cuda::mma_choice>,
       .packed_bytes = packed_bytes_of<cuda::gemm_channels>},
      {.name = "cuda_simt_gemm",
       .summary = "implicit GEMM without tensor cores, for every problem",
       .auto_takes = always,
       .why_not = simt_why_not,
       .tiles = tiles_of<cuda::simt_choice>,
       .packed_bytes = packed_bytes_of<cuda::gemm_channels>},
      {.name = "cuda_wgmma_bf16x3",
       .summary = "cuda_wgmma for float32 as three bfloat16, in six products; by name only",
       .why_not = wgmma_why_not<DType::f32>,
       .tiles = wgmma_tiles,
       .packed_bytes = cuda::taps_packed_bytes,
       .schedule = wgmma_schedule},
      {.name = "cudnn_any",
       .summary = "cuDNN 9's first choice, whose bits may differ from run to run; by name only",
       .why_not = cudnn_why_not,
       .tiles = cudnn_tiles,
       .packed_bytes = cudnn_packed_bytes,
       .is_exact = false},
      {.name = "cudnn",
       .summary = "cuDNN 9, if it is installed, deterministic; its result is rounded to the dtype",
       .why_not = cudnn_why_not,
       .tiles = cudnn_tiles,
       .packed_bytes = cudnn_packed_bytes,
       .is_exact = false},
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
  std::vector<std::string> names = {"auto"};
  std::string reason;
  for (const DeviceKernel& kernel : device_kernels()) {
    names.emplace_back(kernel.name);
    const bool is_asked_for =
        name == kernel.name ||
        (name == "auto" && kernel.auto_takes != nullptr && kernel.auto_takes(shape));
    if (!is_asked_for) continue;
    reason = kernel.why_not(shape, device);
    if (reason.empty()) return &kernel;
    if (name == "auto") continue;
    return Error(ErrorKind::unavailable, "--algorithm: ", name, " cannot compute ",
                 describe(problem), ": ", reason);
  }
  if (name == "auto") {
    return Error(ErrorKind::unavailable, "--backend cuda cannot compute ", describe(problem), ": ",
                 reason, Hint("use --backend cpu"));
  }
  throw Error(ErrorKind::usage, "--algorithm: '", name, "' is none of --backend cuda, expected ",
              join_or(names), did_you_mean(name, names));
}

SliceGrid device_slice_grid(const WgradProblem& problem, const ChunkGrid& grid,
                            const DeviceKernel& kernel, const DeviceTiles& tiles,
                            std::int64_t least_chunks) {
  // A thread block takes the time of its chunks, and of about one more to begin and to write its
  // sums. There are as many slices as let the last block end first, or fewer that do.
  using namespace cuda;
  if (!kernel.is_exact) return deal_slices(grid, 1, 1, 1);
  const std::int64_t at_a_time = kMultiprocessors * tiles.resident;
  const std::int64_t most =
      std::min({grid.count / least_chunks, kMostWaves * at_a_time / tiles.count,
                kMaxPartialBytes / (with_channels(problem).dw_count() * 8)});
  SliceGrid best = deal_slices(grid, 1, kPartitions, kMostInterleave);
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t slices = 1; slices <= most; ++slices) {
    const SliceGrid dealt = deal_slices(grid, slices, kPartitions, kMostInterleave);
    const std::int64_t waves = ceil_div(dealt.count() * tiles.count, at_a_time);
    const std::int64_t time = waves * (ceil_div(grid.count, dealt.count()) + 1);
    if (time < shortest) best = dealt;
    shortest = std::min(time, shortest);
  }
  return best;
}

DeviceRule device_rule(const WgradProblem& problem) {
  // A context takes about half a second, and the bus some 10 GB/s (PCIe 3.0 with 16 lanes).
  constexpr double kStart = 0.5, kBus = 10e9, kMargin = 4;
  // The processor counts as if it had no more than AVX2, so that every machine has the same rule.
  Machine plain;
  plain.instruction_sets = {"avx2", "fma"};
  const Kernel& kernel = *find_kernel(problem, plain).or_throw();
  const double cpu = kernel.estimated_seconds(with_channels(problem));
  const double elements =
      static_cast<double>(problem.x_count()) + static_cast<double>(problem.dy_count());
  const double cuda = kStart + static_cast<double>(dtype_bytes(problem.dtype)) * elements / kBus;
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
