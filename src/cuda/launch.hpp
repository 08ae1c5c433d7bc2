// launch.hpp - launches kernels for one block's work. Runtime is a device's (cuda_runtime.hpp) or
// the processor standing in for one (tests/cuda/emulated_device.hpp):
//   template <class Body> void launch(const typename Body::Params&, std::int64_t tasks);
//   int shared_bytes();  // that a thread block can have
//   BulkTensor bulk_tensor(const BulkMap&);  // for bodies that copy in bulk
#pragma once

#include <string_view>

#include "convgrad/error.hpp"
#include "cuda/choices.hpp"
#include "cuda/depthwise_choice.hpp"
#include "cuda/kernels/add_gradient.hpp"
#include "cuda/kernels/depthwise.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/kernels/pack.hpp"
#include "cuda/kernels/reduce.hpp"
#include "cuda/kernels/wgmma_gemm.hpp"

namespace convgrad::cuda {

// Calls f(Float16{}), f(float{}), ... for the dtype: kernels are compiled for each.
template <class Function>
void with_device_scalar(DType dtype, Function&& f) {
  switch (dtype) {
    case DType::f16:
      return f(Float16{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f32:
      return f(float{});
    default:
      return f(double{});
  }
}

// Adds the whole tree: afterwards the first dw_count of partials are float64 sums. Even one slice
// takes a level, as that makes a float64 of a pair.
template <class Runtime>
void launch_tree(Runtime& runtime, DType dtype, void* partials, std::int64_t dw_count,
                 std::int64_t slices) {
  const auto run = [&]<class Body>() {
    const std::int64_t pieces = ceil_div<std::int64_t>(dw_count, Body::kThreads);
    std::int64_t step = 1;
    do {
      const std::int64_t left = ceil_div(slices, step);
      runtime.template launch<Body>({partials, dw_count, slices, step, pieces},
                                    ceil_div<std::int64_t>(left, Body::kFan) * pieces);
      step *= Body::kFan;
    } while (step < slices);
  };
  const auto run_for = [&]<typename Acc>(Acc) {  // for few slices half as long
    slices > 4 ? run.template operator()<ReduceSlices<Acc, 16>>()
               : run.template operator()<ReduceSlices<Acc, 4>>();
  };
  dtype == DType::f64 ? run_for(double{}) : run_for(float{});
}

// Views x or dy of a block as a kernel wants it: as it is, or copied to `packed`, which moves on to
// the next multiple of 256 bytes (bulk copies need 16, cudaMalloc gives 256). The copy has no more
// than the block: positions that no tap sees are not there.
template <class Runtime>
View packed_view(Runtime& runtime, const WgradProblem& problem, const View& view, Range images,
                 const ChannelChoice& choice, std::byte*& packed) {
  if (!choice.packs) return view;
  const std::int64_t item = dtype_bytes(problem.dtype), n = images.begin;
  View result = view;
  result.data = packed;
  result.c_stride = 1;
  result.group_stride =
      choice.groups == problem.groups ? choice.pitch : choice.channels / problem.groups;
  result.spatial[2] = choice.groups * choice.pitch;
  result.spatial[1] = result.spatial[2] * (view.hi[2] - view.lo[2]);
  result.spatial[0] = result.spatial[1] * (view.hi[1] - view.lo[1]);
  result.n_stride = result.spatial[0] * (view.hi[0] - view.lo[0]);
  result.base = -n * result.n_stride;
  for (int a = 0; a < 3; ++a) result.base -= view.lo[a] * result.spatial[a];
  const std::int64_t pixels = images.size() * result.n_stride / result.spatial[2];
  const auto run = [&]<typename Element>(Element) {
    using Body = Pack<Element>;
    const std::int64_t vectors = pixels * result.spatial[2] / Body::kVector;
    runtime.template launch<Body>(
        {view, packed, n, pixels, static_cast<int>(choice.groups),
         static_cast<int>(choice.channels), static_cast<int>(choice.pitch), problem.channels_last},
        ceil_div<std::int64_t>(vectors, Body::kThreads));
  };
  if (item == 2) run(std::uint16_t{});
  if (item == 4) run(std::uint32_t{});
  if (item == 8) run(std::uint64_t{});
  packed += ceil_div<std::int64_t>(images.size() * result.n_stride * item, 256) * 256;
  return result;
}

// The block's tensors as a kernel wants them; memory is for copies.
template <class Runtime>
BlockParams packed_work(Runtime& runtime, const WgradProblem& problem, BlockParams work,
                        Range images, const ChannelChoice& x, const ChannelChoice& dy,
                        void* memory) {
  auto* packed = static_cast<std::byte*>(memory);
  work.x = packed_view(runtime, problem, work.x, images, x, packed);
  work.dy = packed_view(runtime, problem, work.dy, images, dy, packed);
  return work;
}

template <class Runtime>
void launch_depthwise(Runtime& runtime, const WgradProblem& problem, const BlockParams& block,
                      std::int64_t slices, Range images, void* memory) {
  DepthwiseChoice choice = depthwise_choice(problem);
  if (choice.layout.ring_bytes > runtime.shared_bytes()) copy_none_ahead(choice.layout);
  const auto [x, dy] = depthwise_channels(problem);
  const BlockParams work = packed_work(runtime, problem, block, images, x, dy, memory);
  const auto run = [&]<class Body>() {
    runtime.template launch<Body>(
        {work, choice.k_tiles, choice.c_tiles, choice.r_tiles, choice.s_tiles, choice.layout},
        slices * work.tiles);
  };
  const auto run_taps = [&]<typename Scalar, int kWide>() {
    if (choice.r == 3) {
      run.template operator()<Depthwise<Scalar, 3, 3, 1, kWide>>();
    } else if (choice.r == 5) {
      run.template operator()<Depthwise<Scalar, 5, 5, 1, kWide>>();
    } else {
      run.template operator()<Depthwise<Scalar, 7, 7, 1, kWide>>();
    }
  };
  with_device_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    if (choice.c > 1) {
      run.template operator()<Depthwise<Scalar, 3, 3, 4, 1>>();
    } else if (choice.wide == 1) {
      run_taps.template operator()<Scalar, 1>();
    } else if constexpr (sizeof(Scalar) == 2) {
      run_taps.template operator()<Scalar, 2>();
    }
  });
}

template <class Runtime>
GemmParams gemm_params(Runtime& runtime, const WgradProblem& problem, const BlockParams& work,
                       Range images, const TileChoice& choice, void* memory) {
  const std::int64_t unit = gemm_unit(problem);
  return {
      packed_work(runtime, problem, work, images, channel_choice(problem, problem.group_c(), unit),
                  channel_choice(problem, problem.group_k(), unit), memory),
      choice.row_tiles, choice.column_tiles};
}

template <class Runtime>
void launch_gemm(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                 const BlockParams& work, std::int64_t slices, Range images, void* memory) {
  const bool simt = kernel == "cuda_simt_gemm";
  const TileChoice choice = simt ? simt_choice(problem) : mma_choice(problem);
  const GemmParams gemm = gemm_params(runtime, problem, work, images, choice, memory);
  const auto run = [&]<class Wide, class Narrow>() {
    choice.wide ? runtime.template launch<Wide>(gemm, slices * work.tiles)
                : runtime.template launch<Narrow>(gemm, slices * work.tiles);
  };
  if (simt) {
    with_device_scalar(problem.dtype, [&](auto scalar) {
      using Scalar = decltype(scalar);
      run.template operator()<SimtWide<Scalar>, SimtNarrow<Scalar>>();
    });
  } else if (kernel == "cuda_mma_f64") {
    run.template operator()<MmaF64Gemm, MmaF64Gemm>();
  } else if (kernel == "cuda_mma_tf32") {
    run.template operator()<MmaTf32Gemm, MmaTf32Gemm>();
  } else if (problem.dtype == DType::f16) {
    run.template operator()<Mma16Wide<Float16>, Mma16Narrow<Float16>>();
  } else {
    run.template operator()<Mma16Wide<BFloat16>, Mma16Narrow<BFloat16>>();
  }
}

// Maps for bulk copies are made for each block, as they hold its address and extents.
template <class Runtime>
void launch_wgmma(Runtime& runtime, const WgradProblem& problem, const BlockParams& work,
                  std::int64_t slices, Range images, void* memory) {
  for (int a = 0; a < 3; ++a) {
    if (work.x.hi[a] > work.x.lo[a]) continue;
    // No tap sees x, and no map could be made of it. cuda_mma adds what is nothing, too.
    BlockParams other = work;
    other.tiles = mma_choice(problem).tiles.count;
    return launch_gemm(runtime, "cuda_mma", problem, other, slices, images, memory);
  }
  const TileChoice choice = wgmma_choice(problem);
  const Slab slab = wgmma_slab(problem);
  const GemmParams gemm = gemm_params(runtime, problem, work, images, choice, memory);
  int step[3];
  for (int a = 0; a < 3; ++a) step[a] = slab.size[a + 1] > 1 ? work.shape.axis[a].stride : 1;
  const BulkTensor x = runtime.bulk_tensor(
      slab_map(gemm.work.x, images.size(), problem.groups * gemm.work.x.group_stride, slab, step));
  const BulkTensor dy = runtime.bulk_tensor(slab_map(
      gemm.work.dy, images.size(), problem.groups * gemm.work.dy.group_stride, slab, {1, 1, 1}));
  const auto run = [&]<class Body>() {
    runtime.template launch<Body>({gemm, x, dy, slab, images.begin}, slices * work.tiles);
  };
  problem.dtype == DType::f16 ? run.template operator()<WgmmaGemm<Float16>>()
                              : run.template operator()<WgmmaGemm<BFloat16>>();
}

// Computes the gradient of a block by cuDNN, in the dtype. Blocks are whole images, as cuDNN pads
// every tensor at its edges: it would take the edge of a part for the edge of an image.
template <class Runtime>
void compute_cudnn(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                   const BlockParams& work, Range images, void* dw) {
  for (int a = 0; a < 3; ++a) {
    if (work.x.hi[a] - work.x.lo[a] == work.shape.axis[a].in) continue;
    throw Error(ErrorKind::unavailable, "--algorithm: ", kernel,
                " needs whole images, which do not fit the memory", Hint("use another"));
  }
  runtime.cudnn(problem, images.size(), kernel == "cudnn", work.x.data, work.dy.data, dw);
}

// Adds that gradient to the only slice.
template <class Runtime>
void launch_cudnn(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                  const BlockParams& work, Range images, void* dw) {
  compute_cudnn(runtime, kernel, problem, work, images, dw);
  with_device_scalar(problem.dtype, [&](auto scalar) {
    using Body = AddGradient<decltype(scalar)>;
    runtime.template launch<Body>({dw, work.partials, problem.taps(), problem.group_c(), problem.K,
                                   problem.channels_last, work.begins(0)},
                                  ceil_div<std::int64_t>(problem.dw_count(), Body::kThreads));
  });
}

// Adds the products of a block of these images to the partials of `slices` slices. packed has the
// kernel's packed_bytes().
template <class Runtime>
void launch_block(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                  const BlockParams& work, std::int64_t slices, Range images, void* packed) {
  if (kernel == "cuda_streaming") {
    launch_depthwise(runtime, problem, work, slices, images, packed);
  } else if (kernel.starts_with("cudnn")) {
    launch_cudnn(runtime, kernel, problem, work, images, packed);
  } else if (kernel == "cuda_wgmma") {
    launch_wgmma(runtime, problem, work, slices, images, packed);
  } else {
    launch_gemm(runtime, kernel, problem, work, slices, images, packed);
  }
}

}  // namespace convgrad::cuda
