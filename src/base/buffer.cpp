#include "base/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>

#include "base/messages.hpp"

namespace convgrad {
namespace {

// From this size on, memory comes from the system: as zeros, which saves clearing it, and in pages
// of 2 MiB where there are any, since a fault for every 4 KiB takes longer than clearing them.
// Sanitizers only watch what operator new hands out.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMapped = SIZE_MAX;
#else
constexpr std::size_t kMapped = std::size_t{1} << 20;
#endif
constexpr std::size_t kLargePage = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kLargePage - 1) / kLargePage * kLargePage;
}

// Memory that buffers have given back waits here for the next ones of the same size: the system
// takes longer to clear its pages than some gradients take. The program's own share of a memory
// limit has room for kAlways; what is more goes as soon as memory of another size is wanted, so it
// never adds to what a job was planned to need. It has no destructor, as buffers may outlive it.
class KeptMemory {
 public:
  // Null if there is none.
  std::byte* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = count_; i-- > 0;) {
      if (pieces_[i].size == size) return remove(i);
    }
    while (total_ > kAlways) drop_oldest();
    return nullptr;
  }

  void give(std::byte* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (size > kMost) {
      munmap(memory, size);
      return;
    }
    while (count_ == pieces_.size() || total_ + size > kMost) drop_oldest();
    pieces_[count_++] = {memory, size};
    total_ += size;
  }

 private:
  static constexpr std::size_t kAlways = std::size_t{12} << 20, kMost = std::size_t{64} << 20;
  struct Piece {
    std::byte* memory;
    std::size_t size;
  };

  void drop_oldest() {
    const std::size_t oldest = pieces_[0].size;
    munmap(remove(0), oldest);
  }

  std::byte* remove(std::size_t i) {
    std::byte* const memory = pieces_[i].memory;
    total_ -= pieces_[i].size;
    std::copy(pieces_.begin() + i + 1, pieces_.begin() + count_, pieces_.begin() + i);
    --count_;
    return memory;
  }

  std::mutex mutex_;
  std::array<Piece, 6> pieces_{};  // the oldest first
  std::size_t count_ = 0, total_ = 0;
};

constinit KeptMemory kept_memory;

std::byte* map(std::size_t bytes) {
  // One page more than wanted is mapped, so that whole pages lie in it; the rest is given back.
  const std::size_t size = whole_pages(bytes);
  void* memory =
      mmap(nullptr, size + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(memory);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t before = whole_pages(address) - address;
  if (before > 0) munmap(begin, before);
  if (before < kLargePage) munmap(begin + before + size, kLargePage - before);
#ifdef MADV_HUGEPAGE
  madvise(begin + before, size, MADV_HUGEPAGE);  // only a wish
#endif
  return begin + before;
}

}  // namespace

Buffer::Buffer(std::int64_t bytes, const char* what) : bytes_(bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  const std::size_t mapped = size >= kMapped ? size : 0;
  std::byte* memory = mapped > 0 ? kept_memory.take(whole_pages(size)) : nullptr;
  zeroed_ = mapped > 0 && memory == nullptr;
  if (memory == nullptr) {
    memory =
        mapped > 0
            ? map(size)
            : static_cast<std::byte*>(::operator new (size, std::align_val_t{64}, std::nothrow));
  }
  data_ = std::unique_ptr<std::byte, Free>(memory, Free{mapped, nullptr});
  if (memory == nullptr) {
    throw Error(ErrorKind::runtime, "out of memory: ", what, " of ", format_bytes(bytes),
                Hint("lower --memory-limit or --threads"));
  }
}

Buffer Buffer::adopt(std::byte* memory, std::int64_t bytes, void (*free)(std::byte*)) {
  Buffer buffer;
  buffer.data_ = std::unique_ptr<std::byte, Free>(memory, Free{0, free});
  buffer.bytes_ = bytes;
  return buffer;
}

void Buffer::Free::operator()(std::byte* bytes) const noexcept {
  if (foreign != nullptr) {
    foreign(bytes);
  } else if (mapped_bytes > 0) {
    kept_memory.give(bytes, whole_pages(mapped_bytes));
  } else {
    ::operator delete (bytes, std::align_val_t{64});
  }
}

}  // namespace convgrad
