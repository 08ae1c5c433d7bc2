// fibers.hpp - the threads of an emulated thread block: fibers of one thread of this process, each
// with a stack of its own, which the thread sanitizer takes for threads.
//
// The sanitizer concludes what may happen at the same time from the orders that it is told of. So
// fibers, which run one at a time, in the same order in every run, show it the races of threads,
// without hundreds that the system switches at barriers, and what std::barrier orders besides.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(__has_feature)
#define CONVGRAD_HAS_FEATURE(name) __has_feature(name)
#else
#define CONVGRAD_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || CONVGRAD_HAS_FEATURE(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
extern "C" {  // of the sanitizer's runtime, but in no header of GCC 12
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
void __tsan_read_range_pc(void* address, unsigned long bytes, void* caller);
void __tsan_write_range_pc(void* address, unsigned long bytes, void* caller);
}
#define CONVGRAD_TSAN(...) __VA_ARGS__
#else
#define CONVGRAD_TSAN(...)
#endif
#if defined(__SANITIZE_ADDRESS__) || CONVGRAD_HAS_FEATURE(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define CONVGRAD_ASAN(...) __VA_ARGS__
#else
#define CONVGRAD_ASAN(...)
#endif
// A function that stands between two threads: its own accesses belong to neither.
#define CONVGRAD_UNSEEN __attribute__((no_sanitize("thread")))

namespace convgrad::testing {

inline constexpr bool kSanitized = false CONVGRAD_TSAN(|| true);

// While one lives, the sanitizer does not see its thread's accesses: to data of the emulation.
class Unseen {
 public:
  Unseen() { CONVGRAD_TSAN(__tsan_ignore_thread_begin();) }
  ~Unseen() { CONVGRAD_TSAN(__tsan_ignore_thread_end();) }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

// What threads did before they released it comes before what a thread does once it acquired it.
class Order {
 public:
  CONVGRAD_UNSEEN void release() { CONVGRAD_TSAN(__tsan_release(&place_);) }
  CONVGRAD_UNSEEN void acquire() { CONVGRAD_TSAN(__tsan_acquire(&place_);) }

 private:
  [[maybe_unused]] char place_ = 0;
};

// A thread in the eyes of the sanitizer alone: a fiber's, or what the hardware does by itself, such
// as an asynchronous copy, whose accesses are only told: whoever calls has moved the data Unseen.
class Timeline {
 public:
  Timeline() { CONVGRAD_TSAN(fiber_ = __tsan_create_fiber(0);) }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline() { CONVGRAD_TSAN(__tsan_destroy_fiber(fiber_);) }

  // From here on, the caller is this one; returns which it was.
  CONVGRAD_UNSEEN void* enter() {
    void* caller = nullptr;
    CONVGRAD_TSAN(caller = __tsan_get_current_fiber();)
    enter(fiber_);
    return caller;
  }
  CONVGRAD_UNSEEN static void enter([[maybe_unused]] void* fiber) {
    CONVGRAD_TSAN(__tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);)
  }

  CONVGRAD_UNSEEN void acquire(Order& order) {
    void* const caller = enter();
    order.acquire();
    enter(caller);
  }
  CONVGRAD_UNSEEN void release(Order& order) {
    void* const caller = enter();
    order.release();
    enter(caller);
  }
  CONVGRAD_UNSEEN void reads([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) {
    void* const caller = enter();
    CONVGRAD_TSAN(__tsan_read_range_pc(const_cast<void*>(at), bytes, __builtin_return_address(0));)
    enter(caller);
  }
  CONVGRAD_UNSEEN void writes([[maybe_unused]] void* at, [[maybe_unused]] std::size_t bytes) {
    void* const caller = enter();
    CONVGRAD_TSAN(__tsan_write_range_pc(at, bytes, __builtin_return_address(0));)
    enter(caller);
  }

 private:
  void* fiber_ = nullptr;
};

// A stack, and where its code goes on.
class Stack {
 public:
  Stack() = default;  // the caller's own
  explicit Stack(void (*begin)()) : memory_(new char[kBytes]) {
    bottom_ = memory_.get();
    bytes_ = kBytes;
    getcontext(&context_);
    context_.uc_stack.ss_sp = memory_.get();
    context_.uc_stack.ss_size = kBytes;
    makecontext(&context_, begin, 0);
  }

  // Returns when the code on another stack goes on with this one. swapcontext() would ask the
  // system for the mask of signals each time, which doubles the time of a test.
  [[gnu::noinline]] CONVGRAD_UNSEEN void switch_to(Stack& other) {
    CONVGRAD_ASAN(__sanitizer_start_switch_fiber(&fake_, other.bottom_, other.bytes_);)
    if (__builtin_setjmp(place_) == 0) go_on(other);
    arrive(other);
  }
  // Is called first on a stack that begins.
  CONVGRAD_UNSEEN void arrive([[maybe_unused]] Stack& from) {
    CONVGRAD_ASAN(__sanitizer_finish_switch_fiber(fake_, &from.bottom_, &from.bytes_);)
  }

 private:
  static constexpr std::size_t kBytes = 128 * 1024;

  [[gnu::noinline]] CONVGRAD_UNSEEN static void go_on(Stack& on) {
    if (on.memory_ == nullptr || on.begun_) __builtin_longjmp(on.place_, 1);
    on.begun_ = true;  // std::exchange() would be seen
    setcontext(&on.context_);
  }

  std::unique_ptr<char[]> memory_;
  ucontext_t context_;
  void* place_[5];  // where it was left
  bool begun_ = false;
  [[maybe_unused]] void* fake_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
};

// Fibers that take turns. They and their timelines are kept, as to make one takes a third of a ms.
class Fibers {
 public:
  // f(0) ... f(count - 1), each on a fiber, until all have ended, or one throws. f must live until
  // finish(): what a run did comes before the next one, but before nothing that the caller does.
  template <class F>
  CONVGRAD_UNSEEN void run(int count, const F& f) {
    for (int i = static_cast<int>(fibers_.size()); i < count; ++i) {
      fibers_.push_back(std::make_unique<Fiber>(*this, i));
    }
    call_ = [](const void* function, int i) { (*static_cast<const F*>(function))(i); };
    function_ = &f;
    ++runs_;
    begin_.release();
    for (int i = 0; i < count; ++i) fibers_[static_cast<std::size_t>(i)]->ended = false;
    for (bool all_ended = false; !all_ended;) {
      progress_ = false;
      all_ended = true;
      for (int i = 0; i < count; ++i) {
        Fiber& fiber = *fibers_[static_cast<std::size_t>(i)];
        if (!fiber.ended) resume(fiber);
        all_ended = all_ended && fiber.ended;
      }
      if (error_) std::rethrow_exception(error_);
      if (!progress_) throw std::logic_error("a device would wait for ever");
    }
  }
  CONVGRAD_UNSEEN void finish() {
    for (Order& end : end_) end.acquire();
  }

  // In a fiber: the others run until done() is true.
  template <class Done>
  CONVGRAD_UNSEEN void wait(Done&& done) {
    while (!done()) pause();
    progress_ = true;
  }
  // Of what fiber i starts and the hardware then does by itself, one after the other.
  CONVGRAD_UNSEEN Timeline& helper(int i) { return fibers_[static_cast<std::size_t>(i)]->helper; }

 private:
  struct Fiber {
    Fiber(Fibers& owner, int i) : all(owner), number(i), stack(&Fibers::start) {}
    Fibers& all;
    int number;
    bool ended = false;
    Stack stack;
    Timeline timeline, helper;
  };

  CONVGRAD_UNSEEN static void start() {
    Fiber& self = *resumed_;
    self.stack.arrive(self.all.caller_);
    for (;; self.all.pause()) {
      self.all.run_once(self.number);
      self.ended = self.all.progress_ = true;
    }
  }
  CONVGRAD_UNSEEN void run_once(int i) {
    begin_.acquire();
    end_[(runs_ + 1) % 2].acquire();  // of the last run
    try {
      call_(function_, i);
    } catch (...) {
      error_ = std::current_exception();
    }
    end_[runs_ % 2].release();
  }
  CONVGRAD_UNSEEN void resume(Fiber& fiber) {
    resumed_ = &fiber;
    void* const caller = fiber.timeline.enter();
    caller_.switch_to(fiber.stack);
    Timeline::enter(caller);
  }
  CONVGRAD_UNSEEN void pause() { resumed_->stack.switch_to(caller_); }

  static inline Fiber* resumed_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  void (*call_)(const void*, int) = nullptr;
  const void* function_ = nullptr;
  unsigned runs_ = 0;
  Order begin_, end_[2];
  Stack caller_;
  bool progress_ = false;
  std::exception_ptr error_;
};

}  // namespace convgrad::testing
