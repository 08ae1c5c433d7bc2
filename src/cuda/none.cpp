// none.cpp - device.hpp and block_adder.hpp when the program was built without the CUDA Toolkit.
#include "block_adder.hpp"
#include "convgrad/device.hpp"
#include "cuda/cudnn.hpp"

namespace convgrad {
namespace {

constexpr const char* kWhyNone = "this convgrad was built without the CUDA Toolkit";

}  // namespace

CudaInfo cuda_info() {
  CudaInfo info;
  info.why_none = kWhyNone;
  return info;
}

Device cuda_device(int) {
  throw Error(ErrorKind::unavailable, cat("--backend cuda: ", kWhyNone, "; use --backend cpu"));
}

std::unique_ptr<BlockAdder> make_device_adder(const Plan&) {
  throw Error(ErrorKind::unavailable, cat("--backend cuda: ", kWhyNone, "; use --backend cpu"));
}

std::string cuda::cudnn_missing() { return kWhyNone; }

Buffer pinned_buffer(std::int64_t bytes, const char* what, int) { return Buffer(bytes, what); }

}  // namespace convgrad
