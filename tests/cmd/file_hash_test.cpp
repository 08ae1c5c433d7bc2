// file_hash_test.cpp - the known values, and files that change.
#include "report/file_hash.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>

#include "convgrad/error.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::cli;
using convgrad::testing::TempDir;

namespace {

// Sets a file's time of change back, as if it had been written long ago (its content's, not the
// inode's, which nobody can set).
void make_old(const std::string& path) {
  namespace fs = std::filesystem;
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(100));
}

}  // namespace

TEST_CASE("SHA-256 of FIPS 180-2") {
  CHECK(hash_of_text("") ==
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_of_text("abc") ==
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of_text(std::string(1000000, 'a')) ==
        "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("files") {
  const TempDir dir;
  CHECK(hash_of_file(dir.write("empty", "")) == hash_of_text(""));
  const std::string large(1234567, 'x');
  CHECK(hash_of_file(dir.write("large", large)) == hash_of_text(large));
  CHECK_THROWS_WITH_AS(hash_of_file(dir.file("none")), doctest::Contains("No such file"), Error);
  CHECK_THROWS_AS(hash_of_file(dir.path()), Error);
  REQUIRE(::mkfifo(dir.file("fifo").c_str(), 0600) == 0);
  CHECK_THROWS_AS(hash_of_file(dir.file("fifo")), Error);  // at once: nobody writes to it
}

TEST_CASE("a file that changes") {
  const TempDir dir;
  const std::string path = dir.write("file", "one");
  const HashedFile hashed(path);
  CHECK(hashed.hash() == hash_of_text("one"));
  CHECK(hashed.unchanged());
  // The same size, at once: too soon for the clock of some file systems.
  dir.write("file", "two");
  CHECK(!hashed.unchanged());
  const HashedFile again(path);
  make_old(path);
  CHECK(!again.unchanged());  // touched: nobody knows
  std::filesystem::remove(path);
  CHECK(!again.unchanged());
  CHECK_THROWS_AS(HashedFile{path}, Error);
}
