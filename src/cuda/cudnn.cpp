// cudnn.cpp - see cudnn.hpp. The few declarations of cudnn.h that it would need are written out.
#include "cuda/cudnn.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "base/messages.hpp"
#include "engine/kernel.hpp"

namespace convgrad::cuda {
namespace {

// Tags stand for cudnn.h's types, which are pointers to incomplete types, too.
using Handle = struct HandleTag*;
using Descriptor = struct DescriptorTag*;  // of a tensor, a filter or a convolution
using Status = int;

constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBfloat16 = 9;  // cudnnDataType_t
constexpr int kNchw = 0, kNhwc = 1;                               // cudnnTensorFormat_t
constexpr int kCrossCorrelation = 1;                              // cudnnConvolutionMode_t
constexpr int kDefaultMath = 0, kTensorOpMath = 1, kFmaMath = 3;  // cudnnMathType_t
constexpr int kDeterministic = 1;                                 // cudnnDeterminism_t
constexpr int kMaxAlgorithms = 16;

struct AlgorithmPerf {  // cudnnConvolutionBwdFilterAlgoPerf_t
  int algorithm;
  Status status;
  float time;
  std::size_t memory;
  int determinism, math_type;
  int reserved[3];
};

// Holds functions of libcudnn.so.9. One load serves all computations.
struct Library {
  void* const handle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  std::string missing =
      handle == nullptr ? "libcudnn.so.9 is not installed where the loader looks" : "";

  // A function of any type, by name.
  struct Function {
    void* found;
    template <typename Type>
    operator Type*() const {
      return reinterpret_cast<Type*>(found);
    }
  };
  Function find_symbol(const char* name) {
    void* const found = missing.empty() ? dlsym(handle, name) : nullptr;
    if (missing.empty() && found == nullptr) missing = cat("libcudnn.so.9 has no ", name);
    return {found};
  }

  template <typename... Parameters>
  using Call = Status (*)(Parameters...);
  Call<Handle*> create = find_symbol("cudnnCreate");
  Call<Handle> destroy = find_symbol("cudnnDestroy");
  Call<Handle, void*> set_stream = find_symbol("cudnnSetStream");
  const char* (*error_string)(Status) = find_symbol("cudnnGetErrorString");
  Call<Descriptor*> create_tensor = find_symbol("cudnnCreateTensorDescriptor");
  Call<Descriptor, int, int, const int*, const int*> set_tensor =
      find_symbol("cudnnSetTensorNdDescriptor");
  Call<Descriptor> destroy_tensor = find_symbol("cudnnDestroyTensorDescriptor");
  Call<Descriptor*> create_filter = find_symbol("cudnnCreateFilterDescriptor");
  Call<Descriptor, int, int, int, const int*> set_filter =
      find_symbol("cudnnSetFilterNdDescriptor");
  Call<Descriptor> destroy_filter = find_symbol("cudnnDestroyFilterDescriptor");
  Call<Descriptor*> create_convolution = find_symbol("cudnnCreateConvolutionDescriptor");
  Call<Descriptor, int, const int*, const int*, const int*, int, int> set_convolution =
      find_symbol("cudnnSetConvolutionNdDescriptor");
  Call<Descriptor, int> set_groups = find_symbol("cudnnSetConvolutionGroupCount");
  Call<Descriptor, int> set_math = find_symbol("cudnnSetConvolutionMathType");
  Call<Descriptor> destroy_convolution = find_symbol("cudnnDestroyConvolutionDescriptor");
  Call<Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, AlgorithmPerf*> find =
      find_symbol("cudnnGetConvolutionBackwardFilterAlgorithm_v7");
  Call<Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int,
       void*, std::size_t, const void*, Descriptor, void*>
      backward_filter = find_symbol("cudnnConvolutionBackwardFilter");
};

Library& library() {
  static Library loaded;
  return loaded;
}

void check(Status status, const char* what) {
  if (status == 0) return;
  throw Error(ErrorKind::runtime, "cuDNN: ", what, " failed: ", library().error_string(status),
              Hint("use another --algorithm"));
}

// 16 bits take tensor cores, which cuDNN offers only if asked; float32 goes without TF32.
int arithmetic_of(DType dtype) {
  if (dtype_bytes(dtype) == 2) return kTensorOpMath;
  return dtype == DType::f32 ? kFmaMath : kDefaultMath;
}

int data_type(DType dtype) {
  constexpr int kTypes[] = {kHalf, kBfloat16, kFloat, kDouble};
  return kTypes[static_cast<std::size_t>(dtype)];
}

// Returns `first`, then a number of each spatial axis.
std::vector<int> numbers_of(const WgradProblem& pb, std::int64_t SpatialAxis::*field,
                            std::vector<int> first = {}) {
  for (const std::int64_t number : per_axis(pb, field)) first.push_back(static_cast<int>(number));
  return first;
}

// Sets extents n, c, (d,) h, w and the strides of a dense block. cuDNN names axes in that order
// whatever the layout, and has the layout from the strides.
void describe_tensor(Descriptor descriptor, const WgradProblem& pb, std::int64_t images,
                     std::int64_t channels, std::int64_t SpatialAxis::*extent) {
  const std::vector<int> dims =
      numbers_of(pb, extent, {static_cast<int>(images), static_cast<int>(channels)});
  const Strides dense =
      box_strides(pb, channels, {pb.axis[0].*extent, pb.axis[1].*extent, pb.axis[2].*extent});
  std::vector<int> strides = {static_cast<int>(dense.n), static_cast<int>(dense.c)};
  for (std::size_t a = 5 - dims.size(); a < 3; ++a) {
    strides.push_back(static_cast<int>(dense.spatial[a]));
  }
  if (dense.n * images > 0x7fffffff) {
    throw Error(ErrorKind::unavailable,
                "--algorithm: cudnn counts elements in 32 bits; lower --memory-limit for smaller "
                "blocks, or use another");
  }
  check(library().set_tensor(descriptor, data_type(pb.dtype), static_cast<int>(dims.size()),
                             dims.data(), strides.data()),
        "describing a tensor");
}

}  // namespace

std::string cudnn_missing() { return library().missing; }

struct Cudnn::State {
  Handle handle = nullptr;
  Descriptor x = nullptr, dy = nullptr, dw = nullptr, convolution = nullptr;
  struct Workspace {
    AlgorithmPerf algorithm;
    void* memory;
  };
  // The key is the number of images: the last block has fewer, and workspaces depend on it.
  std::map<std::int64_t, Workspace> chosen;

  // Returns the first algorithm for what has been described that may be taken.
  AlgorithmPerf choose(const WgradProblem& pb, bool deterministic, std::int64_t most_bytes) const {
    std::array<AlgorithmPerf, kMaxAlgorithms> found{};
    int count = 0;
    // cuDNN's heuristics measure nothing, so they give the same answer in every run.
    check(library().find(handle, x, dy, convolution, dw, kMaxAlgorithms, &count, found.data()),
          "choosing an algorithm");
    std::size_t too_large = 0;  // the least workspace of those that are
    for (int i = 0; i < count; ++i) {
      const AlgorithmPerf& perf = found[static_cast<std::size_t>(i)];
      if (perf.status != 0) continue;
      if (deterministic && perf.determinism != kDeterministic) continue;
      if (pb.dtype == DType::f32 && perf.math_type != arithmetic_of(pb.dtype)) continue;
      if (static_cast<std::int64_t>(perf.memory) <= most_bytes) return perf;
      too_large = too_large == 0 ? perf.memory : std::min(too_large, perf.memory);
    }
    if (too_large > 0) {
      throw Error(ErrorKind::unavailable, "--algorithm: cuDNN needs a workspace of ",
                  format_bytes(too_large), ", and ", format_bytes(most_bytes),
                  " are left; raise --memory-limit, or use another");
    }
    throw Error(ErrorKind::unavailable, "--algorithm: cuDNN has no ",
                deterministic ? "deterministic " : "", "algorithm for ", describe(pb));
  }

  // Destroys whatever exists, also after a constructor that failed half-way.
  ~State() {
    const Library& lib = library();
    if (x != nullptr) lib.destroy_tensor(x);
    if (dy != nullptr) lib.destroy_tensor(dy);
    if (dw != nullptr) lib.destroy_filter(dw);
    if (convolution != nullptr) lib.destroy_convolution(convolution);
    if (handle != nullptr) lib.destroy(handle);
  }
};

Cudnn::Cudnn() : state_(std::make_unique<State>()) {
  Library& lib = library();
  if (!lib.missing.empty()) {
    throw Error(ErrorKind::unavailable, "--algorithm: cudnn: ", lib.missing);
  }
  check(lib.create(&state_->handle), "starting");
  check(lib.create_tensor(&state_->x), "creating a descriptor");
  check(lib.create_tensor(&state_->dy), "creating a descriptor");
  check(lib.create_filter(&state_->dw), "creating a descriptor");
  check(lib.create_convolution(&state_->convolution), "creating a descriptor");
}

Cudnn::~Cudnn() = default;

void Cudnn::filter_gradient(const WgradProblem& pb, std::int64_t images, bool deterministic,
                            const void* x, const void* dy, void* dw, void* stream,
                            std::int64_t most_bytes,
                            const std::function<void*(std::int64_t)>& allocate) {
  const Library& lib = library();
  State& s = *state_;
  check(lib.set_stream(s.handle, stream), "taking a stream");
  describe_tensor(s.x, pb, images, pb.C, &SpatialAxis::in);
  describe_tensor(s.dy, pb, images, pb.K, &SpatialAxis::out);
  const std::vector<int> filter =
      numbers_of(pb, &SpatialAxis::taps, {static_cast<int>(pb.K), static_cast<int>(pb.group_c())});
  check(lib.set_filter(s.dw, data_type(pb.dtype), pb.channels_last ? kNhwc : kNchw,
                       static_cast<int>(filter.size()), filter.data()),
        "describing the filter");
  const int compute = pb.dtype == DType::f64 ? kDouble : kFloat;
  check(lib.set_convolution(
            s.convolution, pb.spatial_rank(), numbers_of(pb, &SpatialAxis::pad_before).data(),
            numbers_of(pb, &SpatialAxis::stride).data(),
            numbers_of(pb, &SpatialAxis::dilation).data(), kCrossCorrelation, compute),
        "describing the convolution");
  check(lib.set_groups(s.convolution, static_cast<int>(pb.groups)), "setting groups");
  check(lib.set_math(s.convolution, arithmetic_of(pb.dtype)), "setting the arithmetic");
  if (s.chosen.count(images) == 0) {
    const AlgorithmPerf algorithm = s.choose(pb, deterministic, most_bytes);
    void* memory =
        algorithm.memory == 0 ? nullptr : allocate(static_cast<std::int64_t>(algorithm.memory));
    s.chosen.emplace(images, State::Workspace{algorithm, memory});
  }
  const State::Workspace& work = s.chosen.at(images);
  // An algorithm comes with its arithmetic, on which its memory depends.
  check(lib.set_math(s.convolution, work.algorithm.math_type), "setting the arithmetic");
  // dw = 1 * gradient + 0 * dw; scalars are float64 for float64 alone.
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = pb.dtype == DType::f64;
  const void* one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* zero = wide ? static_cast<const void*>(&zero64) : &zero32;
  check(
      lib.backward_filter(s.handle, one, s.x, x, s.dy, dy, s.convolution, work.algorithm.algorithm,
                          work.memory, work.algorithm.memory, zero, s.dw, dw),
      "the filter gradient");
}

}  // namespace convgrad::cuda
