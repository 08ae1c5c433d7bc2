// output_file_failures_test.cpp - what an output file does when the system's calls fail.

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "convgrad/error.hpp"
#include "files/npy_bytes.hpp"
#include "files/output_file.hpp"
#include "files/output_files.hpp"
#include "support/failing_calls.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

TEST_CASE("the file is synced before it is renamed, its folder after that") {
  const TempDir dir;
  {
    const SyncRecorder recorder;
    write_whole(dir.file("out.npy"), "x", {.no_clobber = true});
    CHECK(recorder.calls() == "frd");
  }
  for (const int harmless : {EINVAL, EROFS, ENOTSUP, ENOSYS}) {
    const SyncRecorder recorder;
    const FailingCall fsync(Call::fsync, harmless);
    write_whole(dir.file("out.npy"), "y");
    CHECK(recorder.calls() == "fd");
    CHECK(read_file(dir.file("out.npy")) == "y");
  }
}

TEST_CASE("a sync that a signal interrupts is begun again") {
  const TempDir dir;
  const SyncRecorder recorder;
  const FailingCall fsync(Call::fsync, EINTR, 1, 2);
  write_whole(dir.file("out.npy"), "x");
  CHECK(fsync.failed() == 2);
  CHECK(recorder.calls() == "fffd");
}

TEST_CASE("a failure to write, or one that shows only at fsync or close, leaves what was there") {
  const TempDir dir;
  const std::string old = dir.write("old.npy", "old");
  for (const auto& [call, error] : {std::pair{Call::write, EFBIG}, std::pair{Call::fsync, EIO},
                                    std::pair{Call::close, EDQUOT}}) {
    for (const bool is_old : {true, false}) {
      const std::string path = is_old ? old : dir.file("new.npy");
      OutputFile file(path);
      const FailingCall failing(call, error);
      check_error(ErrorKind::runtime, path,
                  cat("cannot write: ", std::strerror(error),
                      is_old ? "; the old file is unchanged" : "; no file was made"),
                  [&] {
                    write_text(file, "new");
                    file.commit();
                  });
    }
    CHECK(dir.names() == Names{"old.npy"});
    CHECK(read_file(old) == "old");
  }
}

TEST_CASE("a close that a signal interrupts has closed the file") {
  const TempDir dir;
  OutputFile file(dir.file("out.npy"));
  write_text(file, "x");
  const FailingCall close(Call::close, EINTR);
  file.commit();
  CHECK(close.failed() > 0);
  CHECK(dir.names() == Names{"out.npy"});
}

TEST_CASE("a folder that cannot be synced is an error, though the file is complete") {
  const TempDir dir;
  const std::string path = dir.write("out.npy", "old");
  OutputFile file(path);
  write_text(file, "new");
  const FailingCall fsync(Call::fsync, EIO, 2);
  check_error(ErrorKind::runtime, path,
              "is complete, but its folder cannot be synced: Input/output error",
              [&] { file.commit(); });
  CHECK(dir.names() == Names{"out.npy"});
  CHECK(read_file(path) == "new");
}

TEST_CASE("a folder that may be written to but not read is not synced") {
  const TempDir dir;
  OutputFile file(dir.file("out.npy"));
  write_text(file, "x");
  const SyncRecorder recorder;
  {
    const FailingCall open(Call::open, EACCES);
    file.commit();
    CHECK(open.failed() == 1);
  }
  CHECK(recorder.calls() == "f");
  CHECK(dir.names() == Names{"out.npy"});
}

TEST_CASE("no_clobber on file systems without RENAME_NOREPLACE") {
  const TempDir dir;
  const OutputOptions keep{.no_clobber = true};
  for (const int error : {EINVAL, ENOSYS, ENOTSUP}) {
    const std::string path = dir.file("out.npy");
    const FailingCall renameat2(Call::renameat2, error);
    const SyncRecorder recorder;
    write_whole(path, "new", keep);
    CHECK(recorder.calls() == "frld");
    CHECK(dir.names() == Names{"out.npy"});
    CHECK(read_file(path) == "new");
    ::unlink(path.c_str());
    {
      OutputFile file(path, keep);
      dir.write("out.npy", "somebody else's");
      check_error(ErrorKind::input, path, "exists already", [&] { file.commit(); });
    }
    CHECK(dir.names() == Names{"out.npy"});
    CHECK(read_file(path) == "somebody else's");
    ::unlink(path.c_str());
  }
}

TEST_CASE("no_clobber where neither renameat2 nor link works leaves nothing") {
  const TempDir dir;
  const OutputOptions keep{.no_clobber = true};
  const std::string path = dir.file("out.npy");
  {
    const FailingCall renameat2(Call::renameat2, EIO);
    check_error(ErrorKind::runtime, path, "cannot write: Input/output error; no file was made",
                [&] { write_whole(path, "new", keep); });
  }
  const FailingCall renameat2(Call::renameat2, ENOSYS);
  const FailingCall link(Call::link, EPERM);  // vfat's answer
  check_error(ErrorKind::runtime, path, "cannot write: Operation not permitted; no file was made",
              [&] { write_whole(path, "new", keep); });
  CHECK(link.failed() == 1);
  CHECK(dir.names().empty());
}

TEST_CASE("a file that gets another owner keeps its mode, but not set-user-ID") {
  const TempDir dir;
  const std::string path = dir.write("out.npy", "old");
  REQUIRE(::chmod(path.c_str(), 06754) == 0);
  write_whole(path, "mine");
  CHECK(mode_of(path) == 06754);
  const FailingCall fchown(Call::fchown, EPERM);
  write_whole(path, "given away");
  CHECK(fchown.failed() == 1);
  CHECK(mode_of(path) == 0754);
}

TEST_CASE("file systems without modes are written to; other failures to set one are errors") {
  const TempDir dir;
  const Umask scope(022);
  const std::string path = dir.write("out.npy", "old");
  for (const int harmless : {EPERM, ENOTSUP, ENOSYS}) {
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    const FailingCall fchmod(Call::fchmod, harmless);
    write_whole(path, "new");
    CHECK(fchmod.failed() == 1);
    CHECK(mode_of(path) == 0644);
  }
  const FailingCall fchmod(Call::fchmod, EIO);
  check_error(ErrorKind::runtime, path,
              "cannot write: Input/output error; the old file is unchanged",
              [&] { OutputFile file(path); });
  CHECK(dir.names() == Names{"out.npy"});
  CHECK(read_file(path) == "new");
}

TEST_CASE("a temporary whose name is taken, or whose creation is interrupted, is tried again") {
  const TempDir dir;
  for (const int error : {EEXIST, EINTR}) {
    const FailingCall open(Call::open, error, 1, 3);
    write_whole(dir.file("out.npy"), "x");
    CHECK(open.failed() == 3);
    CHECK(dir.names() == Names{"out.npy"});
  }
  const std::string path = dir.file("other.npy");
  const auto refused = [&](int error, ErrorKind kind, const std::string& why, int tries) {
    const FailingCall open(Call::open, error);
    check_error(kind, path, cat("cannot create a temporary file in ", dir.path(), ": ", why),
                [&] { OutputFile file(path); });
    CHECK(open.failed() == tries);
    CHECK(dir.names() == Names{"out.npy"});
  };
  refused(EEXIST, ErrorKind::input, "File exists", 101);
  refused(ENOSPC, ErrorKind::runtime, "No space left on device", 1);
  refused(EACCES, ErrorKind::input, "Permission denied", 1);
}

TEST_CASE("a file system that does not tell its limit has names of 255 bytes") {
  const TempDir dir;
  const FailingCall pathconf(Call::pathconf, ENOSYS);
  const std::string name(255, 'n');
  OutputFile file(dir.file(name));
  CHECK(pathconf.failed() == 1);
  const Names names = dir.names();
  REQUIRE(names.size() == 1);
  CHECK(names[0].size() == 255);
  file.commit();
  CHECK(dir.names() == Names{name});
}

TEST_CASE("a name that is no UTF-8 at all is cut off too") {
  const TempDir dir;
  const std::string name(255, '\x80');
  OutputFile file(dir.file(name));
  const Names names = dir.names();
  REQUIRE(names.size() == 1);
  CHECK(names[0].starts_with("..convgrad-"));
  file.commit();
  CHECK(dir.names() == Names{name});
}

TEST_CASE("folders, files and devices that the kernel gives no access to") {
  const TempDir dir;
  const std::string old = dir.write("old.npy", "old");
  const std::string fifo = dir.file("fifo");
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const auto refused = [&](const std::string& path, int error, int first, const std::string& text) {
    const FailingCall faccessat(Call::faccessat, error, first);
    check_error(ErrorKind::input, path, text, [&] { check_output(path); });
    CHECK(faccessat.failed() == 1);
  };
  refused(dir.file("new.npy"), EACCES, 1,
          cat("cannot write: folder ", dir.path(), ": Permission denied"));
  refused(old, EROFS, 1, cat("cannot write: folder ", dir.path(), ": Read-only file system"));
  refused(old, EACCES, 2, "cannot write: the file is write-protected: Permission denied");
  refused(fifo, EACCES, 1, "cannot write: the device or FIFO: Permission denied");
  CHECK(dir.names() == Names{"fifo", "old.npy"});
}

TEST_CASE("a link that cannot be read is an error") {
  const TempDir dir;
  const std::string path = dir.file("link");
  REQUIRE(::symlink("target", path.c_str()) == 0);
  for (const auto& [error, kind] :
       {std::pair{EIO, ErrorKind::runtime}, std::pair{EACCES, ErrorKind::input}}) {
    const FailingCall readlink(Call::readlink, error);
    check_error(kind, path, cat("cannot read the link ", path, ": "), [&] { check_output(path); });
  }
}

TEST_CASE("what is no number in /proc/self/fd is no descriptor") {
  for (const std::string name : {"x", "1x", "99999999999999999999", "4294967297", "-1"}) {
    const std::string path = "/proc/self/fd/" + name;
    CAPTURE(path);
    check_error(ErrorKind::input, path, cat("/proc/", ::getpid(), "/fd: "),
                [&] { OutputFile file(path); });
  }
}

TEST_CASE("a write that is interrupted, or must wait, goes on where it was") {
  const TempDir dir;
  const std::string path = dir.file("out.npy");
  for (const int error : {EINTR, EAGAIN}) {
    OutputFile file(path);
    write_text(file, "first, ");
    const FailingCall write(Call::write, error, 1, 2);
    write_text(file, "second");
    CHECK(write.failed() == 2);
    file.commit();
    CHECK(read_file(path) == "first, second");
  }
}

TEST_CASE("opening a FIFO or device fails, or is interrupted") {
  const TempDir dir;
  const std::string path = device(dir, "null", 3);
  if (path.empty()) return;
  {
    const FailingCall open(Call::open, EINTR, 1, 2);
    write_whole(path, "x");
    CHECK(open.failed() == 2);
  }
  for (const auto& [error, kind] :
       {std::pair{ENXIO, ErrorKind::input}, std::pair{EIO, ErrorKind::runtime}}) {
    const FailingCall open(Call::open, error);
    check_error(kind, path, cat("cannot write: ", std::strerror(error)),
                [&] { OutputFile file(path); });
    CHECK(open.failed() == 1);
  }
}

}  // namespace
}  // namespace convgrad
