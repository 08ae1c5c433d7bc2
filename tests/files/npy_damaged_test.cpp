// npy_damaged_test.cpp - files and streams whose bytes are too few, too many or changed: each gives
// an Error of one line, none a crash.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

std::string good_file() {
  const std::int64_t shape[] = {2, 3};
  return npy_header_text(DType::f32, shape) + kPayload;
}

TEST_CASE("every truncation of a good file or stream is refused") {
  const TempDir dir;
  const std::string good = good_file();
  REQUIRE_FALSE(error_of([&] { read_completely(dir.write("x.npy", good)); }).has_value());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    const std::string cut = good.substr(0, size);
    const FifoWriter writer(dir.file("fifo"), cut);
    for (const std::string& path : {dir.write("x.npy", cut), dir.file("fifo")}) {
      check_error(ErrorKind::input, path, size == 0 ? "is empty" : "truncated",
                  [&] { read_completely(path); });
    }
  }
}

TEST_CASE("trailing bytes are refused") {
  const TempDir dir;
  for (const std::size_t more : {1u, 4u, 24u, 152u, 5000u}) {
    const std::string path = dir.write("x.npy", good_file() + std::string(more, '\n'));
    check_error(ErrorKind::input, path, "followed by other bytes", [&] { read_completely(path); });
  }
}

TEST_CASE("every byte of a header changed to every value: the same array or an error") {
  const std::string good = good_file();
  const NpyHeader original = parse(good);
  const std::size_t order = good.find('<');
  int refused = 0;
  for (std::size_t at = 0; at < 128; ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      NpyHeader header;
      const auto error = error_of([&] { header = parse(bytes); });
      if (error) {
        ++refused;
        continue;
      }
      const bool fits = header.data_offset + header.payload_bytes == std::ssize(good);
      const bool is_f32 = header.kind == 'f' && header.item_bytes == 4 && header.data_offset == 128;
      const bool same = header.shape == original.shape && !header.fortran_order &&
                        (header.big_endian == (value == '>') || at != order);
      const bool acceptable = !fits || !is_f32 || same;
      if (!acceptable) FAIL_CHECK("byte ", at, " = ", value, " is taken for another array");
    }
  }
  CHECK(refused > 10000);
}

TEST_CASE("what is no file") {
  const TempDir dir;
  check_unreadable(dir.file("missing.npy"), "No such file or directory");
  check_unreadable(dir.path(), "is a folder");
  check_unreadable(dir.write("file", "x") + "/x.npy", "Not a directory");
  REQUIRE(::symlink("loop", dir.file("loop").c_str()) == 0);
  check_unreadable(dir.file("loop"), "Too many levels of symbolic links");
  check_unreadable("/dev/null", "is empty");
  check_unreadable("/dev/zero", "not a .npy");
  check_unreadable("", "cannot open");
  if (::geteuid() == 0) return;  // root may read everything
  const std::string secret = dir.write("secret.npy", good_file());
  REQUIRE(::chmod(secret.c_str(), 0) == 0);
  check_unreadable(secret, "Permission denied");
}

TEST_CASE("a closed standard input") {
  const Redirected closed(STDIN_FILENO, -1);
  check_error(ErrorKind::input, "standard input", "Bad file descriptor",
              [] { NpyReader reader("-"); });
}

TEST_CASE("a file that changes its size while it is read") {
  const TempDir dir;
  const std::string path = dir.write("x.npy", good_file());
  {
    NpyReader reader(path);
    REQUIRE(::truncate(path.c_str(), 140) == 0);
    check_error(ErrorKind::input, path, "shrank while it was read", [&] { read_all(reader); });
    check_error(ErrorKind::input, path, "it had 152 bytes, now it has 140",
                [&] { reader.finish(); });
  }
  dir.write("x.npy", good_file());
  NpyReader reader(path);
  std::ofstream(path, std::ios::app | std::ios::binary) << "more";
  CHECK(read_all(reader) == kPayload);
  check_error(ErrorKind::input, path, "it had 152 bytes, now it has 156", [&] { reader.finish(); });
}

TEST_CASE("streams that are too short or too long, however they are read") {
  const TempDir dir;
  const auto finished = [](const std::string& path) { NpyReader(path).finish(); };
  const auto refused = [&](const std::string& bytes, std::string_view text, auto&& read) {
    const std::string path = dir.file("fifo");
    const FifoWriter writer(path, bytes);
    check_error(ErrorKind::input, path, text, [&] { read(path); });
  };
  refused(good_file().substr(0, 150), "ends after 22 of 24 payload bytes", finished);
  refused(good_file() + "x", "goes on after the 24 payload bytes", read_completely);
  refused(good_file() + "x", "goes on after the 24 payload bytes", finished);
}

TEST_CASE("a short stream whose header announces terabytes allocates little") {
  const TempDir dir;
  const std::string huge = "(2, 1000000000000)";
  for (const std::string order : {"False", "True"}) {
    const std::string bytes =
        header_bytes(dict_text("'<f4'", huge, order)) + std::string(std::size_t{20} << 20, 'p');
    const std::string path = dir.file("fifo");
    const FifoWriter writer(path, bytes);
    NpyReader reader(path);
    const std::int64_t begin[] = {1, 5};
    const std::int64_t end[] = {2, 6};
    float out = 0;
    check_error(ErrorKind::input, path, "ends after 20971520 of 8000000000000 payload bytes",
                [&] { reader.read_box(begin, end, &out); });
  }
}

}  // namespace
}  // namespace convgrad
