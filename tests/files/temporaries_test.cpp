// temporaries_test.cpp - no temporary is left by a process that a signal ends.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "files/output_file.hpp"
#include "files/output_files.hpp"
#include "support/temp_dir.hpp"

#ifdef CONVGRAD_COVERAGE
extern "C" void __gcov_dump();
#endif

namespace convgrad {
namespace {

using namespace testing;

// Ends a child process here and now; what gcov has counted in it is kept.
[[noreturn]] void leave(int status) {
#ifdef CONVGRAD_COVERAGE
  __gcov_dump();
#endif
  ::_exit(status);
}

// The status of a child process that does this, and does not come back from it.
template <typename Work>
int status_of_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    leave(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("the signal handler removes temporaries and nothing else") {
  const TempDir dir;
  write_whole(dir.file("done.npy"), "done");
  dir.write("old.npy", "old");
  CHECK(status_of_child([&] {
          OutputFile first(dir.file("old.npy"));
          OutputFile second(dir.file("new.npy"));
          write_text(first, "half");
          auto discarded = std::make_unique<OutputFile>(dir.file("discarded.npy"));
          discarded.reset();
          if (dir.names().size() != 4) leave(2);
          end_temporaries_in_signal_handler();
          leave(3);
        }) == 3);
  CHECK(dir.names() == Names{"done.npy", "old.npy"});
  CHECK(read_file(dir.file("old.npy")) == "old");
}

TEST_CASE("slots are used again, and one file too many does without") {
  const TempDir dir;
  CHECK(status_of_child([&] {
          std::vector<std::unique_ptr<OutputFile>> files;
          for (int round = 0; round < 3; ++round) {
            files.clear();
            for (int i = 0; i <= kCoveredOutputFiles; ++i) {
              files.push_back(std::make_unique<OutputFile>(dir.file(cat("out", i))));
            }
            if (dir.names().size() != kCoveredOutputFiles + 1) leave(2);
          }
          end_temporaries_in_signal_handler();
          leave(dir.names().size() == 1 ? 3 : 4);
        }) == 3);
}

TEST_CASE("threads that are writing leave no temporary when a signal ends the process") {
  const TempDir dir;
  for (int round = 0; round < 40; ++round) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGTERM, [](int) {
        end_temporaries_in_signal_handler();
        ::usleep(2000);  // as long as others might take to make another
        ::_exit(143);
      });
      std::vector<std::thread> writers;
      for (int i = 0; i < 4; ++i) {
        writers.emplace_back([&, i] {
          try {
            for (;;) {
              OutputFile file(dir.file(cat("out", i)));
              if (i % 2 == 0) file.commit();
            }
          } catch (const Error&) {  // because its temporary was removed: nobody wants to know
            ::_exit(7);
          }
        });
      }
      if (::write(ready[1], "r", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::usleep(static_cast<useconds_t>(round * 50));
    REQUIRE(::kill(child, SIGTERM) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 143);
    ::close(ready[0]);
    ::close(ready[1]);
    for (const std::string& name : dir.names()) REQUIRE(name.starts_with("out"));
  }
}

TEST_CASE("a forked child leaves its parent's temporaries alone") {
  const TempDir dir;
  OutputFile file(dir.file("out.npy"));
  CHECK(status_of_child([] {
          end_temporaries_in_signal_handler();
          leave(3);
        }) == 3);
  CHECK(dir.names().size() == 1);
  file.commit();
  CHECK(dir.names() == Names{"out.npy"});
}

}  // namespace
}  // namespace convgrad
