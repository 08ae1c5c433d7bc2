// none.cpp - device.hpp when the program was built without the CUDA Toolkit.
#include "convgrad/device.hpp"

namespace convgrad {

CudaInfo cuda_info() {
  CudaInfo info;
  info.why_none = "this convgrad was built without the CUDA Toolkit";
  return info;
}

}  // namespace convgrad
