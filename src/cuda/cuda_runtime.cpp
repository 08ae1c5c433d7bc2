#include "cuda/cuda_runtime.hpp"

#include <cudaTypedefs.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/messages.hpp"
#include "cuda/cudnn.hpp"

namespace convgrad::cuda {

bool succeeded(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess;
}

void check(cudaError_t status, std::string_view what) {
  if (succeeded(status)) return;
  throw Error(ErrorKind::runtime, "CUDA: ", what, " failed: ", cudaGetErrorName(status), ", ",
              cudaGetErrorString(status), Hint("try --backend cpu"));
}

CurrentDevice::CurrentDevice(int device) {
  int before = -1;
  if (succeeded(cudaGetDevice(&before)) && before == device) return;
  if (succeeded(cudaSetDevice(device))) before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) succeeded(cudaSetDevice(before_));
}

namespace {

// Begins a copy.
void copy_async(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                cudaStream_t stream, const char* what) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream), what);
}

// Of the current device.
int attribute(cudaDeviceAttr which, const char* what) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "finding the current device");
  check(cudaDeviceGetAttribute(&value, which, device), what);
  return value;
}

}  // namespace

struct CudaRuntime::State {
  int device = 0;
  cudaStream_t copies = nullptr, kernels = nullptr;
  std::array<cudaEvent_t, 2> computed{};  // of each buffer: kernels have read its block
  std::array<cudaEvent_t, 2> timer{};
  cudaGraphExec_t graph = nullptr;  // what is timed
  std::vector<void*> memory;
  std::int64_t spare_bytes = 0;
  std::optional<Cudnn> library;

  // Destroys whatever exists, also after a constructor that failed half-way, but no memory under a
  // copy: streams are waited for first.
  ~State() {
    const CurrentDevice current(device);
    for (const cudaStream_t stream : {copies, kernels}) {
      if (stream != nullptr) cudaStreamSynchronize(stream);
    }
    if (graph != nullptr) cudaGraphExecDestroy(graph);
    for (void* pointer : memory) cudaFree(pointer);
    library.reset();
    for (const auto& events : {computed, timer}) {
      for (const cudaEvent_t event : events) {
        if (event != nullptr) cudaEventDestroy(event);
      }
    }
    for (const cudaStream_t stream : {copies, kernels}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    cudaGetLastError();
  }
};

CudaRuntime::CudaRuntime(int device, std::int64_t spare_bytes) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = device;
  s.spare_bytes = spare_bytes;
  const CurrentDevice current(device);
  check(cudaSetDevice(device), cat("taking device ", device));
  // They do not wait for the default stream, which belongs to the caller's own code.
  check(cudaStreamCreateWithFlags(&s.copies, cudaStreamNonBlocking), "creating a stream");
  check(cudaStreamCreateWithFlags(&s.kernels, cudaStreamNonBlocking), "creating a stream");
  for (cudaEvent_t& event : s.computed) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  }
}

CudaRuntime::~CudaRuntime() = default;
CudaRuntime::CudaRuntime(CudaRuntime&&) noexcept = default;

CurrentDevice CudaRuntime::current() const { return CurrentDevice(state_->device); }

void* CudaRuntime::allocate(std::int64_t bytes) {
  void* pointer = nullptr;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  if (!succeeded(cudaMalloc(&pointer, size))) {  // reported here, with what is free
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorKind::runtime, "out of memory on device ", state_->device, ": ",
                format_bytes(bytes), " wanted, ", format_bytes(free), " of ", format_bytes(total),
                " free", Hint("lower --memory-limit, or use --backend cpu"));
  }
  state_->memory.push_back(pointer);
  return pointer;
}

BulkTensor CudaRuntime::bulk_tensor(const BulkMap& map) const {
  // Linked to libcuda, the module would not load without a driver. Newer ones keep version 12000.
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result),
        "looking for the driver's tensor maps");
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw Error(ErrorKind::unavailable, "CUDA: the driver has no tensor maps",
                Hint("use another --algorithm"));
  }
  // The box counts positions of the tensor, of which every step-th is copied.
  constexpr int kRank = 5;
  cuuint64_t extents[kRank], strides[kRank - 1];  // in bytes; the first one is known
  cuuint32_t boxes[kRank], steps[kRank];
  for (int i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(map.extent[i]);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(map.stride[i] * map.item_bytes);
    boxes[i] = static_cast<cuuint32_t>(map.box[i] * map.step[i]);
    steps[i] = static_cast<cuuint32_t>(map.step[i]);
  }
  CUtensorMap encoded;
  static_assert(sizeof(encoded) == sizeof(BulkTensor));
  // Bits are copied, so that only the size of the type matters.
  const CUtensorMapDataType type = map.item_bytes == 2   ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                   : map.item_bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                                         : CU_TENSOR_MAP_DATA_TYPE_UINT64;
  const CUtensorMapSwizzle swizzle = !map.swizzles                 ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : map.box[0] * 2 == kRowBytes ? CU_TENSOR_MAP_SWIZZLE_128B
                                                                   : CU_TENSOR_MAP_SWIZZLE_64B;
  const CUresult status = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found)(
      &encoded, type, kRank, const_cast<void*>(map.data), extents, strides, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error(ErrorKind::runtime, "CUDA: describing a tensor for bulk copies failed: error ",
                static_cast<int>(status), Hint("use another --algorithm"));
  }
  BulkTensor tensor;
  std::memcpy(tensor.bytes, &encoded, sizeof(encoded));
  return tensor;
}

// The device waits, not the calling thread, which goes on to read the next block. An event that was
// never recorded is not waited for, as with the first blocks.
void CudaRuntime::begin_upload(std::int64_t buffer) {
  check(cudaStreamWaitEvent(state_->copies, state_->computed[static_cast<std::size_t>(buffer)], 0),
        "waiting for kernels");
}

void CudaRuntime::upload(void* to, const void* from, std::int64_t bytes) {
  copy_async(to, from, bytes, cudaMemcpyHostToDevice, state_->copies,
             "copying a block to the device");
}

// The caller may reuse the block's memory after this, and kernels that start then find the block.
void CudaRuntime::end_upload() {
  check(cudaStreamSynchronize(state_->copies), "copying a block to the device");
}

void CudaRuntime::end_compute(std::int64_t buffer) {
  check(cudaEventRecord(state_->computed[static_cast<std::size_t>(buffer)], state_->kernels),
        "recording an event");
}

void CudaRuntime::download(void* to, const void* from, std::int64_t bytes) {
  copy_async(to, from, bytes, cudaMemcpyDeviceToHost, state_->kernels,
             "copying the sums from the device");
  check(cudaStreamSynchronize(state_->kernels), "computing on the device");
}

void CudaRuntime::cudnn(const WgradProblem& problem, std::int64_t images, bool deterministic,
                        const void* x, const void* dy, void* dw) {
  if (!state_->library) state_->library.emplace();
  const auto take = [this](std::int64_t bytes) {
    state_->spare_bytes -= bytes;
    return allocate(bytes);
  };
  state_->library->filter_gradient(problem, images, deterministic, x, dy, dw, state_->kernels,
                                   state_->spare_bytes, take);
}

void CudaRuntime::copy(void* to, const void* from, std::int64_t bytes) {
  copy_async(to, from, bytes, cudaMemcpyDeviceToDevice, state_->kernels, "copying on the device");
}

// A library may allocate while it is recorded. What fails here fails again without a graph.
void CudaRuntime::record(const std::function<void()>& start) {
  State& s = *state_;
  if (cudaStreamBeginCapture(s.kernels, cudaStreamCaptureModeRelaxed) == cudaSuccess) {
    bool complete = true;
    try {
      start();
    } catch (const Error&) {
      complete = false;
    }
    cudaGraph_t graph = nullptr;
    complete = cudaStreamEndCapture(s.kernels, &graph) == cudaSuccess && complete;
    if (complete && cudaGraphInstantiate(&s.graph, graph, 0) != cudaSuccess) s.graph = nullptr;
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGetLastError();
}

double CudaRuntime::time(const std::function<void()>& start) {
  State& s = *state_;
  if (s.timer[0] == nullptr) {
    for (cudaEvent_t& event : s.timer) check(cudaEventCreate(&event), "creating an event");
    record(start);
  }
  check(cudaEventRecord(s.timer[0], s.kernels), "recording an event");
  if (s.graph != nullptr) {
    check(cudaGraphLaunch(s.graph, s.kernels), "starting a graph");
  } else {
    start();
  }
  check(cudaEventRecord(s.timer[1], s.kernels), "recording an event");
  check(cudaEventSynchronize(s.timer[1]), "computing on the device");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, s.timer[0], s.timer[1]), "reading a timer");
  return static_cast<double>(milliseconds) * 1e-3;
}

cudaStream_t CudaRuntime::compute_stream() const { return state_->kernels; }

bool CudaRuntime::copies_in_bulk() const {
  constexpr const char* kWhat = "finding the compute capability";
  return attribute(cudaDevAttrComputeCapabilityMajor, kWhat) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor, kWhat) == 0;
}

int CudaRuntime::shared_bytes() const {
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin,
                   "finding the shared memory of a thread block");
}

}  // namespace convgrad::cuda
