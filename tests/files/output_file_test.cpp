// output_file_test.cpp - complete or not at all, whatever goes wrong.
#include "files/output_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "files/output_files.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

bool is_link(const std::string& path) { return S_ISLNK(type_and_mode_of(path)); }

// check_output() and OutputFile refuse it in the same words.
void check_no_target(const std::string& path, std::string_view message,
                     const OutputOptions& options = {}) {
  check_error(ErrorKind::input, path, message, [&] { check_output(path, options); });
  check_error(ErrorKind::input, path, message, [&] { OutputFile file(path, options); });
}

class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) : saved_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingFolder() { std::filesystem::current_path(saved_); }

 private:
  std::filesystem::path saved_;
};

TEST_CASE("a file appears with commit(), complete") {
  const TempDir dir;
  const std::string path = dir.file("out.npy");
  {
    OutputFile file(path);
    write_text(file, "first, ");
    write_text(file, "");
    write_text(file, "second");
    const Names names = dir.names();
    REQUIRE(names.size() == 1);
    CHECK(names[0].starts_with(".out.npy.convgrad-"));
    CHECK(names[0].ends_with(".tmp"));
    CHECK(names[0].size() == std::string(".out.npy.convgrad-XXXXXXXX.tmp").size());
    file.commit();
    CHECK(dir.names() == Names{"out.npy"});
    CHECK(read_file(path) == "first, second");
  }
  CHECK(dir.names() == Names{"out.npy"});
  write_whole(path, "");
  CHECK(read_file(path).empty());
}

TEST_CASE("until commit() nothing has happened, and readers keep the old file") {
  const TempDir dir;
  const std::string old = dir.write("old.npy", "old");
  for (const std::string& path : {old, dir.file("new.npy")}) {
    OutputFile file(path);
    write_text(file, "new");
    CHECK(dir.names().size() == 2);
  }
  CHECK(dir.names() == Names{"old.npy"});
  CHECK(read_file(old) == "old");
  std::ifstream reader(old);
  write_whole(old, "new content");
  CHECK(read_file(old) == "new content");
  std::string text;
  CHECK(std::getline(reader, text));
  CHECK(text == "old");
}

TEST_CASE("names relative to the working folder, which may change meanwhile") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("sub"));
  const WorkingFolder in(dir.path());
  for (const std::string path : {"a.npy", "./b.npy", "sub/../c.npy", "sub/d.npy", "sub//e.npy"}) {
    OutputFile file(path);
    write_text(file, path);
    const WorkingFolder elsewhere("/");
    file.commit();
  }
  CHECK(dir.names() == Names{"a.npy", "b.npy", "c.npy", "sub"});
  CHECK(read_file(dir.file("c.npy")) == "sub/../c.npy");
  CHECK(read_file(dir.file("sub/d.npy")) == "sub/d.npy");
  CHECK(read_file(dir.file("sub/e.npy")) == "sub//e.npy");
}

TEST_CASE("the mode of a new file follows the umask") {
  const TempDir dir;
  for (const mode_t mask : {077u, 022u, 027u, 0u}) {
    const Umask scope(mask);
    const std::string path = dir.file(cat("out", mask));
    write_whole(path, "x");
    CHECK(mode_of(path) == (0666 & ~mask));
  }
}

TEST_CASE("the mode of a replaced file is kept") {
  const TempDir dir;
  const Umask scope(077);
  for (const mode_t mode : {0600u, 0644u, 0666u, 0755u, 0640u}) {
    const std::string path = dir.write("out.npy", "old");
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    write_whole(path, "new");
    CHECK(mode_of(path) == mode);
    CHECK(read_file(path) == "new");
  }
}

TEST_CASE("the owner of a replaced file is kept where that is allowed") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can give files away");
    return;
  }
  const TempDir dir;
  const std::string path = dir.write("out.npy", "old");
  REQUIRE(::chown(path.c_str(), 1234, 4321) == 0);
  write_whole(path, "new");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK(status.st_uid == 1234);
  CHECK(status.st_gid == 4321);
}

TEST_CASE("the target of a link is replaced, not the link") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("sub"));
  const std::string target = dir.write("sub/target.npy", "old");
  REQUIRE(::symlink("sub/target.npy", dir.file("relative").c_str()) == 0);
  REQUIRE(::symlink(target.c_str(), dir.file("absolute").c_str()) == 0);
  REQUIRE(::symlink("relative", dir.file("twice").c_str()) == 0);
  REQUIRE(::symlink("../relative", dir.file("sub/up").c_str()) == 0);
  REQUIRE(::symlink("sub", dir.file("folder").c_str()) == 0);
  for (const std::string name : {"relative", "absolute", "twice", "sub/up"}) {
    write_whole(dir.file(name), name);
    CHECK(is_link(dir.file(name)));
    CHECK_FALSE(is_link(target));
    CHECK(read_file(target) == name);
  }
  write_whole(dir.file("folder/other.npy"), "other");
  CHECK(read_file(dir.file("sub/other.npy")) == "other");
  CHECK(is_link(dir.file("folder")));
}

TEST_CASE("the target of a dangling link is made") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("sub"));
  REQUIRE(::symlink("sub/new.npy", dir.file("link").c_str()) == 0);
  check_output(dir.file("link"), {.no_clobber = true});
  write_whole(dir.file("link"), "made", {.no_clobber = true});
  CHECK(is_link(dir.file("link")));
  CHECK(read_file(dir.file("sub/new.npy")) == "made");
  REQUIRE(::symlink("nowhere/new.npy", dir.file("lost").c_str()) == 0);
  check_error(ErrorKind::input, dir.file("lost"), "No such file or directory",
              [&] { OutputFile file(dir.file("lost")); });
}

TEST_CASE("links in a circle") {
  const TempDir dir;
  REQUIRE(::symlink("b", dir.file("a").c_str()) == 0);
  REQUIRE(::symlink("a", dir.file("b").c_str()) == 0);
  check_no_target(dir.file("a"), "Too many levels of symbolic links");
}

TEST_CASE("check_output and OutputFile refuse the same targets") {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("sub"));
  dir.write("file", "x");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {dir.file("missing/out.npy"), "No such file or directory"},
      {dir.file("file/out.npy"), "Not a directory"},
      {dir.file("sub"), "is a folder"},
      {dir.file("sub/"), "is a folder"},
      {dir.file("sub/."), "is a folder"},
      {dir.file("sub/.."), "is a folder"},
      {"/", "is a folder"},
      {"/dev", "is a folder"},
      {dir.file("file/"), "Not a directory"},
      {".", "is a folder"},
      {"", "the name of the output file is empty"},
      {dir.file(std::string(256, 'n')), "File name too long"},
  };
  for (const auto& [path, message] : cases) {
    check_no_target(path, message);
  }
  CHECK(dir.names() == Names{"file", "sub"});
  check_output(dir.file("file"));
  check_output(dir.file("new"));
  check_output("-");
  check_output("/dev/null");
  CHECK(dir.names() == Names{"file", "sub"});
}

TEST_CASE("folders and files that may not be written to") {
  if (::geteuid() == 0) {
    MESSAGE("skipped: root may write everywhere");
    return;
  }
  const TempDir dir;
  const std::string golden = dir.write("golden.npy", "old");
  REQUIRE(::chmod(golden.c_str(), 0444) == 0);
  check_no_target(golden, "write-protected");
  REQUIRE(::chmod(dir.path().c_str(), 0555) == 0);
  check_no_target(dir.file("out.npy"), "Permission denied");
  REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
}

TEST_CASE("an array in an archive is not written to") {
  const TempDir dir;
  const std::string archive = dir.write("a.npz", "PK");
  for (const std::string& path :
       {archive + ":x", dir.file("new.npz:x"), dir.file("new.safetensors:x")}) {
    CAPTURE(path);
    check_error(ErrorKind::input, path, cat("in the archive ", path.substr(0, path.size() - 2)),
                [&] { check_output(path); });
  }
  const std::string other = dir.write("b.npy", "no archive");
  write_whole(other + ":x", "a name with a colon");
  CHECK(dir.names() == Names{"a.npz", "b.npy", "b.npy:x"});
}

TEST_CASE("no_clobber") {
  const TempDir dir;
  const OutputOptions keep{.no_clobber = true};
  const std::string old = dir.write("old.npy", "old");
  REQUIRE(::symlink("old.npy", dir.file("link").c_str()) == 0);
  for (const std::string& path : {old, dir.file("link")}) {
    check_no_target(path, "--no-clobber", keep);
  }
  write_whole(dir.file("new.npy"), "new", keep);
  CHECK(read_file(dir.file("new.npy")) == "new");
  {
    OutputFile file(dir.file("late.npy"), keep);
    write_text(file, "mine");
    dir.write("late.npy", "somebody else's");
    check_error(ErrorKind::input, dir.file("late.npy"), "exists already", [&] { file.commit(); });
  }
  CHECK(read_file(dir.file("late.npy")) == "somebody else's");
  CHECK(read_file(old) == "old");
  CHECK(dir.names() == Names{"late.npy", "link", "new.npy", "old.npy"});
}

TEST_CASE("of two that make a file with no_clobber one wins") {
  const TempDir dir;
  for (int round = 0; round < 20; ++round) {
    const std::string path = dir.file(cat("out", round));
    int made[2] = {0, 0};
    const auto make = [&](int who) {
      made[who] = !error_of([&] { write_whole(path, who ? "1" : "0", {.no_clobber = true}); });
    };
    std::thread other(make, 1);
    make(0);
    other.join();
    CHECK(made[0] + made[1] == 1);
    CHECK(read_file(path) == (made[1] ? "1" : "0"));
  }
  CHECK(dir.names().size() == 20);
}

TEST_CASE("names as long as the file system takes them") {
  const TempDir dir;
  for (const std::size_t size : {200u, 231u, 232u, 233u, 254u, 255u}) {
    for (const std::string unit : {"n", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
      std::string name;
      while (name.size() + unit.size() <= size) name += unit;
      const std::string path = dir.file(name);
      {
        OutputFile file(path);
        const Names names = dir.names();
        REQUIRE(names.size() == 1);
        CHECK(names[0].size() <= 255);
        const std::string kept = names[0].substr(1, names[0].rfind(".convgrad-") - 1);
        CHECK(kept.size() % unit.size() == 0);  // no character is cut in two
        CHECK(name.starts_with(kept));
        CHECK(kept.size() + 26 > std::min<std::size_t>(name.size(), 255));
        write_text(file, "x");
        file.commit();
      }
      CHECK(dir.names() == Names{name});
      ::unlink(path.c_str());
    }
  }
}

TEST_CASE("a rename that fails leaves no temporary") {
  const TempDir dir;
  const std::string path = dir.file("out.npy");
  {
    OutputFile file(path);
    write_text(file, "x");
    std::filesystem::create_directory(path);
    check_error(ErrorKind::runtime, path, "Is a directory", [&] { file.commit(); });
  }
  CHECK(dir.names() == Names{"out.npy"});
  std::filesystem::create_directory(dir.file("sub"));
  {
    OutputFile file(dir.file("sub/out.npy"));
    std::filesystem::remove_all(dir.file("sub"));
    check_error(ErrorKind::runtime, dir.file("sub/out.npy"), "No such file or directory",
                [&] { file.commit(); });
  }
}

}  // namespace
}  // namespace convgrad
