// sanitized.hpp - CONVGRAD_SANITIZED: built with a sanitizer, by GCC or clang.
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
