// buffer.cpp - see buffer.hpp.
#include "convgrad/buffer.hpp"

#include <algorithm>
#include <new>

#include "convgrad/plan.hpp"

namespace convgrad {

Buffer::Buffer(std::int64_t bytes, const char* what) : bytes_(bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  data_.reset(static_cast<std::byte*>(::operator new (size, std::align_val_t{64}, std::nothrow)));
  if (data_ == nullptr) {
    throw Error(ErrorKind::runtime,
                cat("out of memory: ", what, " of ", format_bytes(static_cast<double>(bytes)),
                    "; lower --memory-limit or --threads"));
  }
}

void Buffer::Free::operator()(std::byte* bytes) const noexcept {
  ::operator delete (bytes, std::align_val_t{64});
}

}  // namespace convgrad
