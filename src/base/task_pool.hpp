// task_pool.hpp - the only place with threads besides the read-ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace convgrad {

// Runs tasks 0 .. count-1 on up to `threads` threads, the caller being one of them. Threads are
// taken or started when a first run has more than one task, and wait for the next pool of as many
// when this one is over. The first exception of a task ends the run and is thrown to the caller.
class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const { return threads_; }
  // Calls task(index, worker), 0 <= worker < threads(). It is not reentrant.
  void run(std::int64_t count, const std::function<void(std::int64_t, int)>& task);

 private:
  struct State;
  struct Idle;
  const int threads_;
  std::unique_ptr<State> state_;  // once there is more than one task
};

}  // namespace convgrad
