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
#include "convgrad/output_file.hpp"
#include "files/npy_bytes.hpp"
#include "files/output_files.hpp"
#include "support/temp_dir.hpp"

#ifdef CONVGRAD_COVERAGE
extern "C" void __gcov_dump();
#endif

namespace convgrad {
namespace {

using namespace testing;

TEST_CASE("the signal handler removes temporaries and nothing else") {
  const TempDir dir;
  write_whole(dir.file("done.npy"), "done");
  dir.write("old.npy", "old");
  OutputFile first(dir.file("old.npy"));
  OutputFile second(dir.file("new.npy"));
  auto discarded = std::make_unique<OutputFile>(dir.file("discarded.npy"));
  discarded.reset();
  CHECK(dir.names().size() == 4);
  remove_temporaries_in_signal_handler();
  CHECK(dir.names() == Names{"done.npy", "old.npy"});
  CHECK(read_file(dir.file("old.npy")) == "old");
  check_error(ErrorKind::runtime, dir.file("new.npy"), "No such file", [&] { second.commit(); });
  remove_temporaries_in_signal_handler();
  CHECK(dir.names() == Names{"done.npy", "old.npy"});
}

TEST_CASE("slots are used again, and one file too many does without") {
  const TempDir dir;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<OutputFile>> files;
    for (int i = 0; i <= kCoveredOutputFiles; ++i) {
      files.push_back(std::make_unique<OutputFile>(dir.file(cat("out", i))));
    }
    CHECK(dir.names().size() == kCoveredOutputFiles + 1);
    remove_temporaries_in_signal_handler();
    CHECK(dir.names().size() == 1);
    files.back()->commit();
    const std::string last = cat("out", kCoveredOutputFiles);
    CHECK(dir.names() == Names{last});
    files.clear();
    ::unlink(dir.file(last).c_str());
  }
  CHECK(dir.names().empty());
}

TEST_CASE("a process that is killed by a signal leaves no temporary") {
  const TempDir dir;
  const std::string path = dir.write("out.npy", "old");
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGTERM, [](int) {
      remove_temporaries_in_signal_handler();
      ::_exit(143);
    });
    OutputFile file(path);
    write_text(file, "half");
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(dir.names().size() == 2);
  REQUIRE(::kill(child, SIGTERM) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 143);
  CHECK(dir.names() == Names{"out.npy"});
  CHECK(read_file(path) == "old");
  ::close(ready[0]);
  ::close(ready[1]);
}

// Ends a child process here and now; what gcov has counted in it is kept.
[[noreturn]] void leave(int status) {
#ifdef CONVGRAD_COVERAGE
  __gcov_dump();
#endif
  ::_exit(status);
}

TEST_CASE("the end of temporaries removes those that are there") {
  const TempDir dir;
  const std::string path = dir.write("out.npy", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    OutputFile file(path);
    write_text(file, "half");
    const bool made = dir.names().size() == 2;
    end_temporaries_in_signal_handler();
    leave(made && dir.names() == Names{"out.npy"} ? 3 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(read_file(path) == "old");
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
  const pid_t child = ::fork();
  if (child == 0) {
    remove_temporaries_in_signal_handler();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(dir.names().size() == 1);
  file.commit();
  CHECK(dir.names() == Names{"out.npy"});
}

}  // namespace
}  // namespace convgrad
