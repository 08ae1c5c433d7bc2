// kept_test.cpp - threads and memory that the process keeps for the next gradient.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "base/buffer.hpp"
#include "base/task_pool.hpp"
#include "support/sanitized.hpp"

using namespace convgrad;

namespace {

// The threads of a run in which none can have two tasks.
std::set<std::thread::id> threads_of(TaskPool& pool) {
  std::set<std::thread::id> ids;
  std::mutex mutex;
  std::atomic<int> running = 0;
  pool.run(pool.threads(), [&](std::int64_t, int) {
    ++running;
    while (running < pool.threads()) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  return ids;
}

}  // namespace

TEST_CASE("a pool's threads serve the next pool of as many, and no other") {
  std::set<std::thread::id> first;
  {
    TaskPool pool(3);
    first = threads_of(pool);
    CHECK(first.size() == 3);
    TaskPool other(3);  // at the same time
    std::set<std::thread::id> both = threads_of(other);
    both.insert(first.begin(), first.end());
    CHECK(both.size() == 5);  // the caller is in both
  }
  TaskPool pool(3), other(3);
  std::set<std::thread::id> ids = threads_of(pool);
  ids.merge(threads_of(other));
  CHECK(ids.size() == 5);
  CHECK(std::includes(ids.begin(), ids.end(), first.begin(), first.end()));
}

#if !CONVGRAD_SANITIZED
TEST_CASE("a forked child does not wait for its parent's threads") {
  {
    TaskPool pool(2);
    threads_of(pool);
  }
  const pid_t child = fork();
  if (child == 0) {
    TaskPool pool(2);
    _exit(threads_of(pool).size() == 2 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("memory that is given back serves the next buffer of its size") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const std::byte* first = nullptr;
  {
    const Buffer buffer(4 * kMiB);
    first = buffer.data();
    std::fill_n(buffer.as<char>(), 4 * kMiB, 'x');
  }
  {
    const Buffer other(6 * kMiB);
    CHECK(other.data() != first);
    const Buffer again(4 * kMiB - 5);
    CHECK(again.data() == first);
    CHECK_FALSE(again.zeroed());
  }
  {
    const Buffer larger(8 * kMiB);
    CHECK(larger.zeroed());
  }
  for (const std::int64_t size : {4, 6, 8}) CHECK_FALSE(Buffer(size * kMiB).zeroed());
  // Another size: of 4 + 6 + 8 MiB, what was kept first goes first, until 12 are left.
  {
    const Buffer other(20 * kMiB);
    CHECK(other.zeroed());
    CHECK(
        std::all_of(other.as<char>(), other.as<char>() + 20 * kMiB, [](char c) { return c == 0; }));
  }
  CHECK_FALSE(Buffer(8 * kMiB).zeroed());
  CHECK_FALSE(Buffer(20 * kMiB).zeroed());
  CHECK(Buffer(4 * kMiB).zeroed());  // and with it the 8 and the 20 went
  CHECK(Buffer(8 * kMiB).zeroed());
  CHECK(Buffer(20 * kMiB).zeroed());
  CHECK(Buffer(66 * kMiB).zeroed());
  CHECK(Buffer(66 * kMiB).zeroed());  // never kept
}
#endif
