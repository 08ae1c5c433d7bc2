// driver.cpp - a libcuda.so.1 without a device, which cli/test_gpu.py puts in the driver's place:
// machines whose driver is too old, sees no device or does not start are rare where tests run.
// CUDA_VERSION_OF_TEST is the CUDA that it serves (12040 is 12.4), CUDA_STATUS_OF_TEST what cuInit
// returns. The runtime asks for every function of the driver before it calls one, and takes those
// that are not there for ones that this driver does not have yet.
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND

int number_from(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? 0 : std::atoi(value);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return number_from("CUDA_STATUS_OF_TEST"); }

int cuDriverGetVersion(int* version) {
  *version = number_from("CUDA_VERSION_OF_TEST");
  return 0;
}

int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  *function = nullptr;
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(&cuInit);
  if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  }
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  }
  if (found != nullptr) *found = *function == nullptr ? 1 : 0;
  return *function == nullptr ? kNotFound : 0;
}

}  // extern "C"
