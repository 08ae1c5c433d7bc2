// task_pool.cpp - see task_pool.hpp.
#include "convgrad/task_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace convgrad {

struct TaskPool::State {
  int threads = 1;
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(std::int64_t, int)>* task = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  std::int64_t generation = 0;
  int busy = 0;
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
      while (static_cast<int>(workers.size()) + 1 < threads) {
        const int worker = static_cast<int>(workers.size()) + 1;
        workers.emplace_back([this, worker] { loop(worker); });
      }
    } catch (const std::system_error&) {
      threads = static_cast<int>(workers.size()) + 1;
    }
  }
};

TaskPool::TaskPool(int threads) : state_(std::make_unique<State>()) {
  state_->threads = std::max(1, threads);
}

TaskPool::~TaskPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->quit = true;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int TaskPool::threads() const { return state_->threads; }

void TaskPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  State& s = *state_;
  if (count <= 1 || s.threads == 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
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
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy == 0; });
  if (s.failure) std::rethrow_exception(s.failure);
}

}  // namespace convgrad
