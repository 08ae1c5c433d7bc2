// launch.hpp - launches kernels for one block's work. Runtime is a device's (cuda_runtime.hpp) or
// the processor standing in for one (tests/cuda/emulated_device.hpp):
//   template <class Body> void launch(const typename Body::Params&, std::int64_t tasks,
//                                     int cluster = 1);
//   int shared_bytes();  // that a thread block can have
//   bool copies_in_bulk();  // is of compute capability 9.0
//   BulkTensor bulk_tensor(const BulkMap&);  // for bodies that copy in bulk
#pragma once

#include <algorithm>
#include <string_view>

#include "base/integers.hpp"
#include "convgrad/error.hpp"
#include "cuda/choices.hpp"
#include "cuda/depthwise_choice.hpp"
#include "cuda/kernels/add_gradient.hpp"
#include "cuda/kernels/depthwise.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/kernels/pack.hpp"
#include "cuda/kernels/reduce.hpp"
#include "cuda/kernels/wgmma_taps.hpp"
#include "cuda/taps_choice.hpp"
#include "engine/kernel.hpp"

namespace convgrad::cuda {

// Adds the partial gradients of a form (reduce.hpp) in so many slots to dw, [tap][c][k], rounded to
// the dtype. With few slots, or so many vectors that threads of their own fill a device, each takes
// all slots of its own.
template <class Form, class Runtime>
void launch_tree(Runtime& runtime, const typename Form::Params& form, const void* partials,
                 std::int64_t slots, void* dw, DType dtype) {
  constexpr std::int64_t kFewSlots = 4, kManyVectors = 1 << 17;
  const std::int64_t elements = Form::elements(form);
  const auto run = [&]<class Body>() {
    if (slots > Body::kMostSlots) {  // never by device_slice_grid()
      throw Error(ErrorKind::runtime, slots, " slices, expected at most ", Body::kMostSlots);
    }
    std::int64_t of_way = 1;
    while (of_way * Body::kWays < slots) of_way *= 2;
    runtime.template launch<Body>({form, partials, slots, of_way, dw, dtype},
                                  ceil_div<std::int64_t>(elements, Body::kLanes * Body::kVector));
  };
  using OneWay = ReduceSlices<Form, 1>;
  using Ways = ReduceSlices<Form, 8>;
  if constexpr (!Form::kWholeVectors) {
    using Singles = ReduceSlices<Form, 8, 1>;
    if (elements % Ways::kVector != 0) return run.template operator()<Singles>();
  }
  const bool many = elements / Ways::kVector >= kManyVectors && slots <= OneWay::kMostSlots;
  slots <= kFewSlots || many ? run.template operator()<OneWay>() : run.template operator()<Ways>();
}

// Makes a view of positions lo to hi that of a dense box in memory, from an image on.
inline void set_dense(View& view, const void* data, const Strides& strides,
                      std::int64_t first_image) {
  view.data = data;
  view.n_stride = strides.n;
  view.c_stride = strides.c;
  view.base = -first_image * strides.n;
  for (std::size_t a = 0; a < 3; ++a) {
    view.spatial[a] = strides.spatial[a];
    view.base -= view.lo[a] * strides.spatial[a];
  }
}

// The same of a copy with the channels last, of so many bytes for each of a pixel's elements, which
// moves `packed` on to the next multiple of 256 bytes (bulk copies need 16, cudaMalloc gives 256).
// Returns the pixels of all images.
inline std::int64_t take_packed(View& view, std::int64_t pixel_elements, std::int64_t item,
                                Range images, std::byte*& packed) {
  std::array<std::int64_t, 3> extent;
  for (std::size_t a = 0; a < 3; ++a) extent[a] = view.hi[a] - view.lo[a];
  set_dense(view, packed, box_strides(true, pixel_elements, extent), images.begin);
  packed += round_up(images.size() * view.n_stride * item, 256);
  return images.size() * extent[0] * extent[1] * extent[2];
}

// Views x or dy of a block as a kernel wants it: as it is, or copied to `packed`. The copy has no
// more than the block: positions that no tap sees are not there.
template <class Runtime>
View packed_view(Runtime& runtime, const WgradProblem& problem, const View& view, Range images,
                 const ChannelChoice& choice, std::byte*& packed) {
  if (!choice.packs) return view;
  const std::int64_t item = choice.terms > 1 ? 2 * choice.terms : dtype_bytes(problem.dtype);
  void* const to = packed;
  View result = view;
  result.group_stride =
      choice.groups == problem.groups ? choice.pitch : choice.channels / problem.groups;
  const std::int64_t pixel = choice.groups * choice.pitch;
  const std::int64_t pixels = take_packed(result, pixel, item, images, packed);
  const auto run = [&]<class Body>() {
    runtime.template launch<Body>(
        {view, to, images.begin, pixels, static_cast<int>(choice.groups),
         static_cast<int>(choice.channels), static_cast<int>(choice.pitch), problem.channels_last},
        ceil_div(pixels * pixel / Body::kVector, std::int64_t{Body::kThreads}));
  };
  if (item == 2) run.template operator()<Pack<std::uint16_t>>();
  if (item == 4) run.template operator()<Pack<std::uint32_t>>();
  if (item == 6) run.template operator()<Pack<std::uint32_t, 3>>();
  if (item == 8) run.template operator()<Pack<std::uint64_t>>();
  return result;
}

// The block's tensors with x's and dy's channels as a kernel wants them; memory is for copies.
template <class Runtime>
BlockParams packed_work(Runtime& runtime, const WgradProblem& problem, BlockParams work,
                        Range images, const ChannelChoices& channels, void* memory) {
  auto* packed = static_cast<std::byte*>(memory);
  work.x = packed_view(runtime, problem, work.x, images, channels.x, packed);
  work.dy = packed_view(runtime, problem, work.dy, images, channels.dy, packed);
  return work;
}

// Describes a block's tensor for copies of boxes of single elements.
inline BulkMap bulk_map(const View& view, std::int64_t images, std::int64_t channels,
                        std::int64_t item_bytes) {
  BulkMap map{};
  map.data = view.data;
  map.item_bytes = static_cast<int>(item_bytes);
  map.extent[0] = channels;
  map.stride[0] = 1;
  for (int a = 0; a < 3; ++a) {  // w, h, d
    map.extent[1 + a] = view.hi[2 - a] - view.lo[2 - a];
    map.stride[1 + a] = view.spatial[2 - a];
  }
  map.extent[4] = images;
  map.stride[4] = view.n_stride;
  std::ranges::fill(map.box, 1);
  std::ranges::fill(map.step, 1);
  return map;
}

template <class Runtime>
void launch_depthwise(Runtime& runtime, const WgradProblem& problem, const BlockParams& block,
                      std::int64_t slices, Range images, void* memory) {
  DepthwiseChoice choice = depthwise_choice(problem);
  if (choice.layout.ring_bytes > runtime.shared_bytes()) copy_none_ahead(choice.layout);
  const BlockParams work =
      packed_work(runtime, problem, block, images, depthwise_channels(problem), memory);
  DepthwiseParams params{
      work, choice.k_tiles, choice.c_tiles, choice.r_tiles, choice.s_tiles, choice.layout, {}};
  const int item = static_cast<int>(dtype_bytes(problem.dtype));
  if (runtime.copies_in_bulk() && lines_are_boxes(choice.layout, work, item)) {
    const auto map = [&](const View& view, const Lines& lines) {
      BulkMap result = bulk_map(view, images.size(), view.spatial[2], item);
      result.box[0] = lines.pitch / item;
      result.box[1] = lines.columns;
      result.box[4] = choice.layout.planes;
      return runtime.bulk_tensor(result);
    };
    params.bulk = {map(work.x, choice.layout.x), map(work.dy, choice.layout.dy), images.begin,
                   log_copiers(choice.layout), true};
  }
  const auto run = [&]<class Body>() {
    runtime.template launch<Body>(params, slices * work.tiles);
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
  with_scalar(problem.dtype, [&](auto scalar) {
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
void launch_gemm(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                 const BlockParams& block, std::int64_t slices, Range images, void* memory) {
  const bool simt = kernel == "cuda_simt_gemm";
  const TileChoice choice = simt ? simt_choice(problem) : mma_choice(problem);
  const GemmParams params{
      packed_work(runtime, problem, block, images, gemm_channels(problem), memory),
      choice.row_tiles, choice.column_tiles};
  const auto run = [&]<class Wide, class Narrow>() {
    choice.wide ? runtime.template launch<Wide>(params, slices * block.tiles)
                : runtime.template launch<Narrow>(params, slices * block.tiles);
  };
  if (simt) {
    with_scalar(problem.dtype, [&](auto scalar) {
      using Scalar = decltype(scalar);
      run.template operator()<SimtWide<Scalar>, SimtNarrow<Scalar>>();
    });
  } else if (kernel == "cuda_mma_f64") {
    run.template operator()<MmaF64Gemm, MmaF64Gemm>();
  } else if (problem.dtype == DType::f16) {
    run.template operator()<Mma16Wide<Float16>, Mma16Narrow<Float16>>();
  } else {
    run.template operator()<Mma16Wide<BFloat16>, Mma16Narrow<BFloat16>>();
  }
}

// Calls f<Body>() for the variant's kernel.
template <typename Scalar, class F>
void with_taps_body(TapsKind kind, F&& f) {
  switch (kind) {
    case TapsKind::rows32:
      return f.template operator()<WgmmaTaps<Scalar, 32, 3, 3>>();
    case TapsKind::panels64:
      return f.template operator()<WgmmaTaps<Scalar, 64, 2, 2>>();
    case TapsKind::panels32:
      return f.template operator()<WgmmaTaps<Scalar, 32, 4, 2>>();
    default:  // of one term
      if constexpr (TermsOf<Scalar>::kTerms == 1)
        f.template operator()<WgmmaTaps<Scalar, 64, 3, 3>>();
  }
}

// x with the taps of filter rows as channels, for the columns of dy that the block has.
template <class Runtime>
View folded_view(Runtime& runtime, const TapsChoice& choice, const BlockParams& work, Range images,
                 std::byte*& packed) {
  View result = work.x;
  result.lo[2] = work.dy.lo[2];
  result.hi[2] = work.dy.hi[2];
  result.group_stride = choice.problem.C;
  const int columns = work.dy.hi[2] - work.dy.lo[2];
  const std::int64_t pitch = folded_pitch(choice);
  void* const to = packed;
  const auto run = [&]<typename Element, int kTerms>() {
    const std::int64_t rows = take_packed(result, pitch, 2 * kTerms, images, packed) / columns;
    runtime.template launch<FoldColumns<Element, kTerms>>(
        {work.x, to, images.begin, rows, choice.layout.folded, work.dy.lo[2], columns,
         choice.layout.folded_c, static_cast<int>(pitch)},
        rows);
  };
  choice.problem.dtype == DType::f32 ? run.template operator()<std::uint32_t, 3>()
                                     : run.template operator()<std::uint16_t, 1>();
  return result;
}

// Maps a view of a block with so many channels for copies of `box` channels, columns and rows, of
// every step-th column and row.
inline BulkMap taps_map(const View& view, std::int64_t images, std::int64_t channels,
                        const std::array<int, 3>& box, const std::array<int, 2>& step) {
  BulkMap map = bulk_map(view, images, channels, 2);
  map.swizzles = true;
  std::ranges::copy(box, map.box);
  for (std::size_t a = 0; a < 2; ++a) map.step[a + 1] = box[a + 1] > 1 ? step[a] : 1;
  return map;
}

// Where no tap sees x in a block, no map can be made of it: all that is copied lies outside this.
inline View outside(View x, const void* data) {
  x.data = data;
  for (int a = 0; a < 3; ++a) {
    x.spatial[a] = kPanelChannels;
    x.hi[a] = x.lo[a] + 1;
  }
  x.n_stride = kPanelChannels;
  return x;
}

// Maps for bulk copies are made for each block, as they hold its address and extents.
template <class Runtime>
void launch_wgmma(Runtime& runtime, const WgradProblem& problem, const BlockParams& block,
                  std::int64_t slices, Range images, void* memory, const WrittenDw& written) {
  const TapsChoice choice = taps_choice(problem);
  const WgradProblem& pb = choice.problem;
  auto* packed = static_cast<std::byte*>(memory);
  const SliceGrid grid{block.chunk_count, block.unit, block.partitions, block.interleave};
  const int count = static_cast<int>(images.size());
  TapsParams params{{}, {}, block, with_slices(choice, grid), images.begin, count, written};
  BlockParams& work = params.work;
  TapsLayout& l = params.layout;
  l.cluster = divisor(std::max(written.cluster, 1));
  if (written.cluster < slices) {
    auto* const behind = static_cast<std::byte*>(block.partials) + l.total_bytes;
    params.written = {behind, DType::f64, written.cluster};
  }
  work.shape = shape_of(pb);
  bool sees = true;
  for (int a = 0; a < 3; ++a) sees = sees && work.x.hi[a] > work.x.lo[a];
  work.dy = packed_view(runtime, problem, block.dy, images, taps_channels(problem, pb.K), packed);
  if (!sees) {
    work.x = outside(work.x, work.dy.data);
    for (int i = 0; i < l.x_copies; ++i) l.copies[i].channel += static_cast<int>(kMaxExtent);
  } else if (choice.folds) {
    work.x = folded_view(runtime, choice, block, images, packed);
  } else {
    work.x = packed_view(runtime, problem, block.x, images, taps_channels(problem, pb.C), packed);
  }
  const auto run = [&]<class Body>() {
    const std::int64_t all = images.size() * Body::kTerms;
    params.x =
        runtime.bulk_tensor(taps_map(work.x, sees ? all : 1, sees ? pb.C : kPanelChannels,
                                     {Body::kRowX / 2, l.x_pitch, l.x_rows}, {l.step_w, l.step_h}));
    params.dy = runtime.bulk_tensor(
        taps_map(work.dy, all, pb.K, {kPanelChannels, l.pitch, l.rows}, {1, 1}));
    runtime.template launch<Body>(params, slices * work.tiles, static_cast<int>(l.cluster.value));
  };
  if (problem.dtype == DType::f32) return with_taps_body<Bf16x3>(choice.kind, run);
  problem.dtype == DType::f16 ? with_taps_body<Float16>(choice.kind, run)
                              : with_taps_body<BFloat16>(choice.kind, run);
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
  with_scalar(problem.dtype, [&](auto scalar) {
    using Body = AddGradient<decltype(scalar)>;
    runtime.template launch<Body>({dw, work.partials, problem.taps(), problem.group_c(), problem.K,
                                   problem.channels_last, work.begins(0)},
                                  ceil_div<std::int64_t>(problem.dw_count(), Body::kThreads));
  });
}

inline bool is_wgmma(std::string_view kernel) { return kernel.starts_with("cuda_wgmma"); }

// Counts the slices whose sums launch_block() adds itself where a block has all of these, or 0. No
// device has run clusters of several, so the kernel that `auto` takes has none.
inline int added_slices(std::string_view kernel, const WgradProblem& problem,
                        const SliceGrid& slices) {
  const bool may = slices.count() == 1 || kernel == "cuda_wgmma_bf16x3";
  return may && is_wgmma(kernel) ? cluster_of(taps_choice(problem), slices) : 0;
}

// Adds the products of a block of these images to the partials of `slices` slices; where these are
// one cluster, writes dw. packed has the kernel's packed_bytes().
template <class Runtime>
void launch_block(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                  const BlockParams& work, std::int64_t slices, Range images, void* packed,
                  const WrittenDw& written = {}) {
  if (kernel == "cuda_streaming") {
    launch_depthwise(runtime, problem, work, slices, images, packed);
  } else if (kernel.starts_with("cudnn")) {
    launch_cudnn(runtime, kernel, problem, work, images, packed);
  } else if (is_wgmma(kernel)) {
    launch_wgmma(runtime, problem, work, slices, images, packed, written);
  } else {
    launch_gemm(runtime, kernel, problem, work, slices, images, packed);
  }
}

// Adds the partial gradients of some of the slices to dw, [tap][c][k], as `written` says; clusters
// are of all.
template <class Runtime>
void launch_sum(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
                const SliceGrid& all, Range slices, const void* partials,
                const WrittenDw& written) {
  const auto [dw, dtype, cluster] = written;
  if (cluster == all.count()) return;
  const std::int64_t count = problem.dw_count();
  const auto* bytes = static_cast<const std::byte*>(partials);
  const auto add_dense = [&]<typename Acc>(Acc) {
    launch_tree<DenseSums<Acc>>(runtime, {count}, bytes + slices.begin * count * 8, slices.size(),
                                dw, dtype);
  };
  if (!is_wgmma(kernel)) {
    return problem.dtype == DType::f64 ? add_dense(double{}) : add_dense(float{});
  }
  const TapsChoice choice = taps_choice(problem);
  const TapsLayout layout = with_slices(choice, all);
  if (cluster > 0) {
    bytes += layout.total_bytes;
    slices.end /= cluster;
    return add_dense(double{});
  }
  with_taps_body<Float16>(choice.kind, [&]<class Body>() {
    const auto run = [&]<typename Number>(Number) {
      const std::int64_t first = slices.begin * layout.slice_sums * int{sizeof(Number)};
      launch_tree<TapsSums<Body, Number>>(
          runtime, {layout, shape_of(choice.problem)},
          bytes + first + (layout.has_totals ? layout.total_bytes : 0), slices.size(), dw, dtype);
    };
    layout.has_totals ? run(double{}) : run(float{});
  });
}

}  // namespace convgrad::cuda
