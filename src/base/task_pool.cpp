#include "base/task_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace convgrad {
namespace {

// Waits are often shorter than the time that it takes to wake a sleeping thread.
template <typename Condition>
void spin_until(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  while (!condition() && std::chrono::steady_clock::now() < end) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

}  // namespace

struct TaskPool::State {
  explicit State(int most) : threads(most) {}
  ~State() {
    {
      const std::lock_guard lock(mutex);
      quit = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  int threads;
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(std::int64_t, int)>* task = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> generation{0};
  std::atomic<int> busy{0};
  bool quit = false;
  std::exception_ptr failure;

  // Takes tasks until none is left; after a failure the rest is skipped.
  void work(int worker) {
    for (;;) {
      const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      try {
        (*task)(index, worker);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(count, std::memory_order_relaxed);
      }
    }
  }

  void loop(int worker) {
    std::int64_t seen = 0;
    for (;;) {
      spin_until([&] { return generation.load(std::memory_order_relaxed) != seen; });
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return quit || generation != seen; });
        if (quit) return;
        seen = generation;
      }
      work(worker);
      const std::lock_guard lock(mutex);
      if (--busy == 0) done.notify_one();
    }
  }

  // A system that refuses more threads makes the work slower, not wrong.
  void start() {
    try {
      for (int worker = 1; worker < threads; ++worker) {
        workers.emplace_back([this, worker] { loop(worker); });
      }
    } catch (const std::system_error&) {
      threads = static_cast<int>(workers.size()) + 1;
    }
  }
};

// Threads wait here for the next pool, as starting them takes longer than a small gradient. They
// end with the process, so nothing here has a destructor; nor does it allocate, as pools end while
// memory is out. A forked child has the parent's list, but not its threads.
struct TaskPool::Idle {
  std::mutex mutex;
  std::array<State*, 4> states{};  // owned, the oldest first
  std::size_t count = 0;
  pid_t process = 0;

  static Idle& list() {
    static Idle idle;
    return idle;
  }

  std::unique_ptr<State> take(int threads) {
    const std::lock_guard lock(mutex);
    if (process != getpid()) count = 0;
    for (std::size_t i = count; i-- > 0;) {
      if (states[i]->threads == threads) return remove(i);
    }
    return nullptr;
  }

  void give(std::unique_ptr<State> state) {
    std::unique_ptr<State> oldest;  // its threads end after the lock
    const std::lock_guard lock(mutex);
    if (process != getpid()) count = 0;
    process = getpid();
    if (count == states.size()) oldest = remove(0);
    states[count++] = state.release();
  }

 private:
  std::unique_ptr<State> remove(std::size_t i) {
    std::unique_ptr<State> state(states[i]);
    std::copy(states.begin() + i + 1, states.begin() + count, states.begin() + i);
    --count;
    return state;
  }
};

TaskPool::TaskPool(int threads) : threads_(std::max(1, threads)) {}

TaskPool::~TaskPool() {
  if (state_ && !state_->workers.empty()) Idle::list().give(std::move(state_));
}

void TaskPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  if (count <= 1 || threads_ == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  if (!state_) state_ = Idle::list().take(threads_);
  if (!state_) state_ = std::make_unique<State>(threads_);
  State& s = *state_;
  if (s.workers.empty()) s.start();
  {
    const std::lock_guard lock(s.mutex);
    s.task = &task;
    s.count = count;
    s.next.store(0, std::memory_order_relaxed);
    s.failure = nullptr;
    s.busy = static_cast<int>(s.workers.size());
    ++s.generation;
  }
  s.wake.notify_all();
  s.work(0);
  spin_until([&] { return s.busy.load(std::memory_order_relaxed) == 0; });
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy == 0; });
  if (s.failure) std::rethrow_exception(s.failure);
}

}  // namespace convgrad
