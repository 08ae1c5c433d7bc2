// buffer.hpp - aligned, uninitialised memory that is owned by one object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "convgrad/error.hpp"

namespace convgrad {

// A buffer is aligned to 64 bytes. Its contents are undefined, except that memory fresh from the
// system is zeros, which zeroed() tells. The process keeps up to 64 MiB of what is given back for
// buffers of the same size, and of that 12 MiB when another size is asked for. Throws
// Error(runtime) instead of std::bad_alloc.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes, const char* what = "a buffer");

  // Takes over memory from elsewhere, which `free` gives back.
  static Buffer adopt(std::byte* memory, std::int64_t bytes, void (*free)(std::byte*));

  std::byte* data() const { return data_.get(); }
  template <typename Element>
  Element* as() const {
    return reinterpret_cast<Element*>(data_.get());
  }
  std::int64_t size_bytes() const { return bytes_; }
  bool zeroed() const { return zeroed_; }

 private:
  struct Free {
    std::size_t mapped_bytes = 0;  // 0: from operator new
    void (*foreign)(std::byte*) = nullptr;
    void operator()(std::byte* bytes) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{}};
  std::int64_t bytes_ = 0;
  bool zeroed_ = false;
};

}  // namespace convgrad
