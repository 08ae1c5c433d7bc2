// cudnn.hpp - cuDNN 9, loaded at run time where it is installed. Nothing here needs it to build.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "convgrad/problem.hpp"

namespace convgrad::cuda {

// Says why libcudnn.so.9 and its functions are not available, or "".
std::string cudnn_missing();

class Cudnn {
 public:
  Cudnn();  // for the current device; Error(unavailable) if the library is missing
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  // Computes the filter gradient of `images` whole images of the problem, in its dtype, to dw:
  // [k][c][taps], with channels last [k][taps][c]. It takes the first algorithm in cuDNN's own
  // order, or of those that it calls deterministic, whose workspace has no more than most_bytes;
  // Error(unavailable) if there is none. Everything is in device memory, stream is a cudaStream_t,
  // and allocate gives device memory that is kept.
  void filter_gradient(const WgradProblem& problem, std::int64_t images, bool deterministic,
                       const void* x, const void* dy, void* dw, void* stream,
                       std::int64_t most_bytes, const std::function<void*(std::int64_t)>& allocate);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convgrad::cuda
