// sanitized.hpp - says by CONVGRAD_SANITIZED that GCC or clang built with a sanitizer, and what is
// left out then.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONVGRAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define CONVGRAD_SANITIZED 1
#endif
#endif
#ifndef CONVGRAD_SANITIZED
#define CONVGRAD_SANITIZED 0
#endif

namespace convgrad::testing {

// Sanitized kernels take ten times as long, and emulated ones longer: every kThin-th case of tests
// that run them all is then enough.
#if CONVGRAD_SANITIZED || defined(CONVGRAD_EMULATED)
inline constexpr unsigned kThin = 7;
#else
inline constexpr unsigned kThin = 1;
#endif

// Counts cases, of which every kThin-th is run.
class Thinned {
 public:
  bool skips() { return number_++ % kThin != 0; }

 private:
  unsigned number_ = 0;
};

}  // namespace convgrad::testing
