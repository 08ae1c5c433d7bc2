// npy_stream_test.cpp - .npy files from pipes, FIFOs and standard input.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "support/failing_calls.hpp"
#include "support/sanitized.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

// An array that comes through a FIFO.
struct Stream {
  explicit Stream(const ArraySpec& array)
      : spec(array), writer(dir.file("fifo"), spec_file(array)), reader(dir.file("fifo")) {}

  bool is_right(const Extents& begin, const Extents& end) {
    return is_right_box(reader, spec, begin, end);
  }

  const TempDir dir;
  const ArraySpec spec;
  const FifoWriter writer;
  NpyReader reader;
};

TEST_CASE("a FIFO is read block by block") {
  for (const bool big_endian : {false, true}) {
    Stream stream({{7, 30, 50, 40}, 4, false, big_endian});  // 1.7 MB, pipes hold 64 kB
    CHECK_FALSE(stream.reader.seekable());
    CHECK_FALSE(stream.reader.needs_whole_payload());
    for (const auto& [from, to] :
         std::vector<std::pair<int, int>>{{0, 1}, {1, 4}, {4, 4}, {4, 7}}) {
      CHECK(stream.is_right({from, 0, 0, 0}, {to, 30, 50, 40}));
    }
    stream.reader.finish();
  }
}

TEST_CASE("other boxes of a stream are served from memory") {
  for (const bool fortran : {false, true}) {
    Stream stream({{3, 2, 4, 3}, 4, fortran, false});
    CHECK(stream.reader.needs_whole_payload() == fortran);
    CHECK(stream.is_right({1, 0, 0, 0}, {2, 2, 4, 3}));
    CHECK(wrong_boxes(stream.reader, stream.spec) == 0);
    stream.reader.finish();
  }
}

TEST_CASE("a standard input that cannot be read is the caller's fault") {
  const int writable = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  REQUIRE(writable >= 0);
  const Redirected input(STDIN_FILENO, writable);
  ::close(writable);
  check_error(ErrorKind::input, "standard input", "cannot read: ", [] { NpyReader reader("-"); });
}

TEST_CASE("a large stream in Fortran order is transposed in memory") {
  Stream stream({{600, 90, 100}, 4, true, true});  // 21.6 MB: more than the first buffer
  CHECK(stream.reader.needs_whole_payload());
  CHECK(stream.is_right({0, 0, 0}, {10, 90, 100}));
  CHECK(stream.is_right({9, 1, 2}, {600, 3, 99}));
  stream.reader.finish();
}

TEST_CASE("an empty stream in Fortran order needs no memory") {
  Stream stream({{3, 0, 2}, 4, true});
  CHECK_FALSE(stream.reader.seekable());
  CHECK_FALSE(stream.reader.needs_whole_payload());
  CHECK(read_all(stream.reader).empty());
  stream.reader.finish();
}

TEST_CASE("a stream that is held is read in any order, as a file is anyway") {
  const TempDir dir;
  const ArraySpec spec{{3, 4}};
  const FifoWriter writer(dir.file("fifo"), spec_file(spec));
  for (const std::string& path : {dir.file("fifo"), dir.write("file.npy", spec_file(spec))}) {
    NpyReader reader(path);
    reader.hold();
    for (const int row : {2, 0, 1, 2}) {
      CHECK(is_right_box(reader, spec, {row, 0}, {row + 1, 4}));
      reader.hold();  // keeps what it has
    }
    reader.finish();
  }
}

TEST_CASE("no memory for a stream is a failure with a name") {
  if (!testing::large_allocations_can_fail) {
    MESSAGE("skipped: the sanitizer hands out the memory");
    return;
  }
  Stream stream({{600, 800}});  // 1.9 MB
  {
    const FailingCall allocation(Call::large_allocation, ENOMEM);
    check_error(ErrorKind::runtime, stream.reader.name(),
                "in Fortran order, needs 1920000 bytes; save it", [&] { stream.reader.hold(); });
    CHECK(allocation.failed() == 1);
  }
  CHECK(read_all(stream.reader) == spec_payload(stream.spec));
}

TEST_CASE("the part of a stream that has gone by cannot be read again") {
  Stream stream({{4, 5, 6}});
  CHECK(stream.is_right({0, 0, 0}, {2, 5, 6}));
  CHECK(stream.is_right({3, 0, 0}, {4, 5, 6}));
  CHECK(stream.is_right({2, 1, 0}, {4, 5, 3}));
  check_error(ErrorKind::input, stream.reader.name(), "save it as a .npy file", [&] {
    read_box(stream.reader, {1, 0, 0}, {3, 5, 6});
  });
  stream.reader.finish();
}

TEST_CASE("finish() reads on to the end of a stream") {
  Stream stream({{1000, 3000}});  // 12 MB
  CHECK(stream.is_right({0, 0}, {1, 3000}));
  stream.reader.finish();
}

TEST_CASE("of a pipe on standard input nothing past the header is taken") {
  const ArraySpec spec{{2, 3}};
  for (const int major : {1, 2}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const std::string bytes = spec_header(spec, major) + spec_payload(spec);
    REQUIRE(::write(ends[1], bytes.data(), bytes.size()) == std::ssize(bytes));
    ::close(ends[1]);
    {
      const Redirected input(STDIN_FILENO, ends[0]);
      NpyReader reader("-");
      CHECK(reader.name() == "standard input");
      CHECK_FALSE(reader.seekable());
      std::string rest(100, '\0');
      rest.resize(static_cast<std::size_t>(::read(ends[0], rest.data(), rest.size())));
      CHECK(rest == spec_payload(spec));
    }
    ::close(ends[0]);
  }
}

TEST_CASE("a non-blocking pipe is waited for") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  const ArraySpec spec{{2, 3}};
  std::thread writer([&] {
    for (const char c : spec_file(spec)) {
      if (::write(ends[1], &c, 1) != 1) break;
      std::this_thread::yield();
    }
    ::close(ends[1]);
  });
  {
    const Redirected input(STDIN_FILENO, ends[0]);
    NpyReader reader("-");
    CHECK(read_all(reader) == spec_payload(spec));
    reader.finish();
  }
  writer.join();
  ::close(ends[0]);
}

TEST_CASE("a file as standard input") {
  const TempDir dir;
  const ArraySpec spec{{4, 5}};
  const std::string path = dir.write("x.npy", "skip me" + spec_file(spec));
  const std::string plain = dir.write("y.npy", spec_file(spec));
  const std::string longer = dir.write("z.npy", "skip me" + spec_file(spec) + "z");
  const auto read_from = [&](const std::string& file, off_t offset, bool seekable) {
    const int fd = ::open(file.c_str(), O_RDONLY);
    REQUIRE(::lseek(fd, offset, SEEK_SET) == offset);
    const Redirected input(STDIN_FILENO, fd);
    ::close(fd);
    NpyReader reader("-");
    CHECK(reader.seekable() == seekable);
    CHECK(is_right_box(reader, spec, {3, 0}, {4, 5}));
    reader.finish();
  };
  read_from(plain, 0, true);
  read_from(path, 7, false);
  check_error(ErrorKind::input, "standard input", "goes on after",
              [&] { read_from(longer, 7, false); });
  check_error(ErrorKind::input, "standard input", "starts with \"skip m\"",
              [&] { read_from(path, 0, true); });
}

}  // namespace
}  // namespace convgrad
