// output_stream_test.cpp - outputs that stay what they are: devices, FIFOs, standard output.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "files/output_file.hpp"
#include "files/output_files.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

TEST_CASE("a full device") {
  const TempDir dir;
  const std::string path = device(dir, "full", 7);
  if (path.empty()) return;
  OutputFile file(path);
  check_error(ErrorKind::runtime, path, "cannot write: No space left on device; what was written",
              [&] { write_text(file, "x"); });
}

TEST_CASE("a device is written to and stays one, with no_clobber too") {
  const TempDir dir;
  const std::string path = device(dir, "null", 3);
  if (path.empty()) return;
  const auto entries = dir.names();
  write_whole(path, "x");
  write_whole(path, "x", {.no_clobber = true});
  CHECK(S_ISCHR(type_and_mode_of(path)));
  CHECK(dir.names() == entries);
}

TEST_CASE("a FIFO is written to and stays one") {
  const TempDir dir;
  const std::string path = dir.file("fifo");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] {
    std::ifstream stream(path, std::ios::binary);
    got.assign(std::istreambuf_iterator<char>(stream), {});
  });
  const std::string text(300000, 'f');
  {
    OutputFile file(path);
    write_text(file, text);
    file.commit();
  }
  reader.join();
  CHECK(got == text);
  CHECK(dir.names() == Names{"fifo"});
  CHECK(S_ISFIFO(type_and_mode_of(path)));
}

TEST_CASE("a pipe whose reader is gone is an error") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  void (*handler)(int) = std::signal(SIGPIPE, SIG_IGN);
  std::optional<Error> error;
  {
    const Redirected pipe(STDOUT_FILENO, ends[1]);
    error = error_of([] { write_whole("-", "x"); });
  }
  std::signal(SIGPIPE, handler);
  ::close(ends[1]);
  REQUIRE(error.has_value());
  CHECK(error->kind() == ErrorKind::runtime);
  CHECK(std::string(error->what()) ==
        "standard output: cannot write: Broken pipe; what was written so far is incomplete");
}

TEST_CASE("a pipe that takes only a part at a time gets everything in order") {
  std::string text(1'000'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 4099);
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  REQUIRE(::fcntl(ends[0], F_SETFL, 0) == 0);  // the reader waits
  std::string got;
  std::thread reader([&] {
    char part[5000];
    for (ssize_t size = 0; (size = ::read(ends[0], part, sizeof part)) > 0;) {
      got.append(part, static_cast<std::size_t>(size));
    }
  });
  {
    const Redirected pipe(STDOUT_FILENO, ends[1]);
    write_whole("-", text);
  }
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  CHECK((got == text));
}

TEST_CASE("standard output by all its names, appended where the shell appends") {
  const TempDir dir;
  const std::string path = dir.write("log", "before ");
  for (const std::string name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND);
    REQUIRE(fd >= 0);
    {
      const Redirected file(STDOUT_FILENO, fd);
      check_output(name, {.no_clobber = true});
      write_whole(name, name);
    }
    ::close(fd);
  }
  CHECK(read_file(path) == "before -/dev/stdout/dev/fd/1/proc/self/fd/1");
  CHECK(dir.names() == Names{"log"});
  CHECK(::fcntl(STDOUT_FILENO, F_GETFD) == 0);
}

}  // namespace
}  // namespace convgrad
