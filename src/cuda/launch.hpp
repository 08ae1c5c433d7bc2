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
// the dtype. With few slots, or vectors enough to fill a device, a thread takes all of a vector's.
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

// The same for copies of `box` channels, columns and rows, of every step-th column and row.
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
      if constexpr (TermsOf<Scalar>::kTerms == 1) {
        f.template operator()<WgmmaTaps<Scalar, 64, 3, 3>>();
      }
  }
}

inline bool is_wgmma(std::string_view kernel) { return kernel.starts_with("cuda_wgmma"); }

// A block in device memory, and the slices from params.first_slice on that have chunks in it.
struct BlockWork {
  BlockParams params;
  std::int64_t slices;
  Range images;
};

// Launches a kernel for a block. Memory is for copies, and has the kernel's packed_bytes().
template <class Runtime>
class BlockLaunch {
 public:
  BlockLaunch(Runtime& runtime, std::string_view kernel, const WgradProblem& problem,
              const BlockWork& block, void* memory)
      : runtime_(runtime),
        kernel_(kernel),
        problem_(problem),
        work_(block.params),
        slices_(block.slices),
        images_(block.images),
        packed_(static_cast<std::byte*>(memory)) {}

  // Adds the products to the partials of the slices; where these are one cluster, writes dw.
  void run(const WrittenDw& written) {
    if (kernel_ == "cuda_streaming") {
      launch_depthwise();
    } else if (kernel_.starts_with("cudnn")) {
      launch_cudnn();
    } else if (is_wgmma(kernel_)) {
      launch_wgmma(written);
    } else {
      launch_gemm();
    }
  }

  // Computes the gradient by cuDNN, in the dtype, to the memory for copies. Blocks are whole
  // images: cuDNN pads every tensor at its edges, and would take a part's edge for an image's.
  void compute_cudnn() {
    for (int a = 0; a < 3; ++a) {
      if (work_.x.hi[a] - work_.x.lo[a] == work_.shape.axis[a].in) continue;
      throw Error(ErrorKind::unavailable, "--algorithm: ", kernel_,
                  " needs whole images, which do not fit the memory", Hint("use another"));
    }
    runtime_.cudnn(problem_, images_.size(), kernel_ == "cudnn", work_.x.data, work_.dy.data,
                   packed_);
  }

 private:
  // A task is a tile of a slice.
  template <class Body>
  void launch(const typename Body::Params& params, int cluster = 1) {
    runtime_.template launch<Body>(params, slices_ * work_.tiles, cluster);
  }

  // Makes a view that of a copy with the channels last, of so many bytes for each of a pixel's
  // elements, which moves packed_ on to the next multiple of 256 bytes (bulk copies need 16,
  // cudaMalloc gives 256). Returns the pixels of all images.
  std::int64_t take_packed(View& view, std::int64_t pixel_elements, std::int64_t item) {
    std::array<std::int64_t, 3> extent;
    for (std::size_t a = 0; a < 3; ++a) extent[a] = view.hi[a] - view.lo[a];
    set_dense(view, packed_, box_strides(true, pixel_elements, extent), images_.begin);
    packed_ += round_up(images_.size() * view.n_stride * item, 256);
    return images_.size() * extent[0] * extent[1] * extent[2];
  }

  // Views x or dy as a kernel wants it: as it is, or copied. The copy has no more than the block:
  // positions that no tap sees are not there.
  View packed_view(const View& view, const ChannelChoice& choice) {
    if (!choice.packs) return view;
    const std::int64_t item = choice.terms > 1 ? 2 * choice.terms : dtype_bytes(problem_.dtype);
    void* const to = packed_;
    View result = view;
    result.group_stride =
        choice.groups == problem_.groups ? choice.pitch : choice.channels / problem_.groups;
    const std::int64_t pixel = choice.groups * choice.pitch;
    const std::int64_t pixels = take_packed(result, pixel, item);
    const auto run = [&]<class Body>() {
      runtime_.template launch<Body>(
          {view, to, images_.begin, pixels, static_cast<int>(choice.groups),
           static_cast<int>(choice.channels), static_cast<int>(choice.pitch),
           problem_.channels_last},
          ceil_div(pixels * pixel / Body::kVector, std::int64_t{Body::kThreads}));
    };
    if (item == 2) run.template operator()<Pack<std::uint16_t>>();
    if (item == 4) run.template operator()<Pack<std::uint32_t>>();
    if (item == 6) run.template operator()<Pack<std::uint32_t, 3>>();
    if (item == 8) run.template operator()<Pack<std::uint64_t>>();
    return result;
  }
  void pack(const ChannelChoices& channels) {
    work_.x = packed_view(work_.x, channels.x);
    work_.dy = packed_view(work_.dy, channels.dy);
  }

  void launch_depthwise() {
    DepthwiseChoice choice = depthwise_choice(problem_);
    if (choice.layout.ring_bytes > runtime_.shared_bytes()) copy_none_ahead(choice.layout);
    pack(depthwise_channels(problem_));
    const LineLayout& l = choice.layout;
    DepthwiseParams params{work_, choice.k_tiles, choice.c_tiles, choice.r_tiles, choice.s_tiles, l,
                           {}};
    const int item = static_cast<int>(dtype_bytes(problem_.dtype));
    if (runtime_.copies_in_bulk() && lines_are_boxes(l, work_, item)) {
      const auto map = [&](const View& view, const Lines& lines) {
        BulkMap result = bulk_map(view, images_.size(), view.spatial[2], item);
        result.box[0] = lines.pitch / item;
        result.box[1] = lines.columns;
        result.box[4] = l.planes;
        return runtime_.bulk_tensor(result);
      };
      params.bulk = {map(work_.x, l.x), map(work_.dy, l.dy), images_.begin, log_copiers(l), true};
    }
    with_scalar(problem_.dtype, [&](auto scalar) {
      using Scalar = decltype(scalar);
      if (choice.c > 1) {
        launch<Depthwise<Scalar, 3, 3, 4, 1>>(params);
      } else if (choice.wide == 1) {
        launch_taps<Scalar, 1>(choice.r, params);
      } else if constexpr (sizeof(Scalar) == 2) {
        launch_taps<Scalar, 2>(choice.r, params);
      }
    });
  }
  template <typename Scalar, int kWide>
  void launch_taps(int taps, const DepthwiseParams& params) {
    if (taps == 3) launch<Depthwise<Scalar, 3, 3, 1, kWide>>(params);
    if (taps == 5) launch<Depthwise<Scalar, 5, 5, 1, kWide>>(params);
    if (taps == 7) launch<Depthwise<Scalar, 7, 7, 1, kWide>>(params);
  }

  void launch_gemm() {
    const bool simt = kernel_ == "cuda_simt_gemm";
    const TileChoice choice = simt ? simt_choice(problem_) : mma_choice(problem_);
    pack(gemm_channels(problem_));
    const GemmParams params{work_, choice.row_tiles, choice.column_tiles};
    const auto run = [&]<class Wide, class Narrow>() {
      choice.wide ? launch<Wide>(params) : launch<Narrow>(params);
    };
    if (simt) {
      with_scalar(problem_.dtype, [&](auto scalar) {
        using Scalar = decltype(scalar);
        run.template operator()<SimtWide<Scalar>, SimtNarrow<Scalar>>();
      });
    } else if (kernel_ == "cuda_mma_f64") {
      launch<MmaF64Gemm>(params);
    } else if (problem_.dtype == DType::f16) {
      run.template operator()<Mma16Wide<Float16>, Mma16Narrow<Float16>>();
    } else {
      run.template operator()<Mma16Wide<BFloat16>, Mma16Narrow<BFloat16>>();
    }
  }

  // Maps for bulk copies are made for each block, as they hold its address and extents.
  void launch_wgmma(const WrittenDw& written) {
    const TapsChoice choice = taps_choice(problem_);
    const WgradProblem& pb = choice.problem;
    const SliceGrid grid{work_.chunk_count, work_.unit, work_.partitions, work_.interleave};
    const int count = static_cast<int>(images_.size());
    TapsParams params{{}, {}, work_, with_slices(choice, grid), images_.begin, count, written};
    BlockParams& work = params.work;
    TapsLayout& l = params.layout;
    l.cluster = divisor(std::max(written.cluster, 1));
    if (written.cluster < slices_) {
      auto* const behind = static_cast<std::byte*>(work.partials) + l.total_bytes;
      params.written = {behind, DType::f64, written.cluster};
    }
    work.shape = shape_of(pb);
    bool sees = true;
    for (int a = 0; a < 3; ++a) sees = sees && work.x.hi[a] > work.x.lo[a];
    work.dy = packed_view(work.dy, taps_channels(problem_, pb.K));
    if (!sees) {
      work.x = outside(work.x, work.dy.data);
      for (int i = 0; i < l.x_copies; ++i) l.copies[i].channel += static_cast<int>(kMaxExtent);
    } else if (choice.folds) {
      work.x = folded_view(choice);
    } else {
      work.x = packed_view(work.x, taps_channels(problem_, pb.C));
    }
    const auto run = [&]<class Body>() {
      const std::int64_t all = images_.size() * Body::kTerms;
      params.x = runtime_.bulk_tensor(taps_map(work.x, sees ? all : 1, sees ? pb.C : kPanelChannels,
                                               {Body::kRowX / 2, l.x_pitch, l.x_rows},
                                               {l.step_w, l.step_h}));
      params.dy = runtime_.bulk_tensor(
          taps_map(work.dy, all, pb.K, {kPanelChannels, l.pitch, l.rows}, {1, 1}));
      launch<Body>(params, static_cast<int>(l.cluster.value));
    };
    if (problem_.dtype == DType::f32) return with_taps_body<Bf16x3>(choice.kind, run);
    problem_.dtype == DType::f16 ? with_taps_body<Float16>(choice.kind, run)
                                 : with_taps_body<BFloat16>(choice.kind, run);
  }

  // x with the taps of filter rows as channels, for the columns of dy that the block has.
  View folded_view(const TapsChoice& choice) {
    View result = work_.x;
    result.lo[2] = work_.dy.lo[2];
    result.hi[2] = work_.dy.hi[2];
    result.group_stride = choice.problem.C;
    const int columns = work_.dy.hi[2] - work_.dy.lo[2];
    const std::int64_t pitch = folded_pitch(choice);
    void* const to = packed_;
    const auto run = [&]<typename Element, int kTerms>() {
      const std::int64_t rows = take_packed(result, pitch, 2 * kTerms) / columns;
      runtime_.template launch<FoldColumns<Element, kTerms>>(
          {work_.x, to, images_.begin, rows, choice.layout.folded, work_.dy.lo[2], columns,
           choice.layout.folded_c, static_cast<int>(pitch)},
          rows);
    };
    problem_.dtype == DType::f32 ? run.template operator()<std::uint32_t, 3>()
                                 : run.template operator()<std::uint16_t, 1>();
    return result;
  }

  // Adds cuDNN's gradient to the only slice.
  void launch_cudnn() {
    compute_cudnn();
    with_scalar(problem_.dtype, [&](auto scalar) {
      using Body = AddGradient<decltype(scalar)>;
      runtime_.template launch<Body>({packed_, work_.partials, problem_.taps(), problem_.group_c(),
                                      problem_.K, problem_.channels_last, work_.begins(0)},
                                     ceil_div<std::int64_t>(problem_.dw_count(), Body::kThreads));
    });
  }

  Runtime& runtime_;
  const std::string_view kernel_;
  const WgradProblem& problem_;
  BlockParams work_;
  const std::int64_t slices_;
  const Range images_;
  std::byte* packed_;  // what is left of the memory
};

}  // namespace convgrad::cuda
