// turns.hpp - two functions that wait for each other, as the roles of a device's threads do, but
// one at a time: the result depends on nothing but where they hand over.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace convgrad::testing {

class Turns {
 public:
  // `first` on this thread, `second` on one of its own. `first` begins; each goes on until it
  // waits, yields or is done. What either throws ends both.
  template <class First, class Second>
  void run(First&& first, Second&& second) {
    std::thread other([&] {
      const bool begins = await(1);
      stuck_ = false;
      if (begins) guarded(second);
      finish(1);
    });
    guarded(first);
    finish(0);
    other.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  // Until ready(), which only the other function can bring about: where it waits too, or is done, a
  // device would hang.
  template <class Ready>
  void wait(Ready&& ready) {
    while (!ready()) {
      if (stuck_ || done_ > 0) throw std::logic_error("a device would wait for ever");
      stuck_ = true;
      hand_over();
    }
    stuck_ = false;
  }
  void yield() {
    if (done_ > 0) return;
    stuck_ = false;
    hand_over();
    stuck_ = false;
  }

 private:
  struct Abandoned {};

  template <class F>
  void guarded(F& f) {
    try {
      f();
    } catch (const Abandoned&) {  // the other one failed
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  // False where the other has failed.
  bool await(int me) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == me; });
    return !failure_;
  }
  void give(int to) {
    const std::lock_guard lock(mutex_);
    turn_ = to;
    changed_.notify_all();
  }
  void hand_over() {
    const int me = turn_;
    give(1 - me);
    if (!await(me)) throw Abandoned();
  }
  void finish(int me) {
    ++done_;
    give(1 - me);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  // Of the one whose turn it is, which the mutex hands to the other.
  int turn_ = 0, done_ = 0;
  bool stuck_ = false;  // the other waits, and nothing has happened since
  std::exception_ptr failure_;
};

}  // namespace convgrad::testing
