// tensor_hash_test.cpp - the known values, and what has none.
#include "report/tensor_hash.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "convgrad/error.hpp"
#include "support/temp_dir.hpp"

using namespace convgrad;
using namespace convgrad::cli;
using convgrad::testing::TempDir;

TEST_CASE("SHA-256 of FIPS 180-2") {
  const TempDir dir;
  const auto hash_of = [&](const std::string& text) {
    return hash_of_file(dir.write("file", text));
  };
  CHECK(hash_of("") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash_of("abc") ==
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash_of(std::string(1000000, 'a')) ==
        "sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("what has no hash") {
  const TempDir dir;
  CHECK_THROWS_WITH_AS(hash_of_file(dir.file("none")), doctest::Contains("No such file"), Error);
  CHECK_THROWS_AS(hash_of_file(dir.path()), Error);
  REQUIRE(::mkfifo(dir.file("fifo").c_str(), 0600) == 0);
  CHECK_THROWS_AS(hash_of_file(dir.file("fifo")), Error);  // at once: nobody writes to it
}
