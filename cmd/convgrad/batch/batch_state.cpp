// batch_state.cpp - the file of --state; batch_job.cpp says which jobs are done.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "batch/batch.hpp"
#include "files/byte_source.hpp"
#include "files/tensor_source.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

constexpr std::string_view kFirstLine = "{\"schema\":\"convgrad.batch-state/2\"}\n";

std::string failure(const std::string& path, const char* what, int error) {
  return cat("--state: ", path, what, ": ", std::generic_category().message(error));
}

}  // namespace

BatchState::BatchState(std::string path) : path_(std::move(path)) {
  if (is_special(path_)) misuse("--state: ", path_, " is a device or FIFO, expected a file");
  // The file appears complete or not at all: without its first line it would be refused.
  if (!is_regular(path_)) write_file(path_, kFirstLine, {.no_clobber = true});
  do {
    file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) throw Error(kind_of_failure(errno), failure(path_, "", errno));
  try {
    // Where files cannot be locked, another batch is not noticed.
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      misuse("--state: ", path_, " is in use by another batch",
             Hint("wait for it, or name another file"));
    }
    read();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

BatchState::~BatchState() { ::close(file_); }

void BatchState::read() {
  const std::string text = read_text(path_, "--state: ", "what convgrad batch wrote");
  if (!text.starts_with(kFirstLine)) {
    bad_input("--state: ", path_, ", line 1: is not what convgrad batch wrote",
              Hint("remove the file to start anew, or name another"));
  }
  std::size_t at = kFirstLine.size();
  for (std::size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    lines_.insert(text.substr(at, end - at));
  }
  size_ = static_cast<std::int64_t>(at);
  cut();  // what a kill or a full disk has left of a last line
}

void BatchState::add(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (failure_ != 0) return;
  const std::string text = line + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      failure_ = errno;
      return cut();
    }
  }
  size_ += std::ssize(text);
}

void BatchState::check() const {
  if (failure_ == 0) return;
  throw Error(ErrorKind::runtime, failure(path_, ": cannot write", failure_));
}

void BatchState::cut() const { [[maybe_unused]] const int ignored = ::ftruncate(file_, size_); }

}  // namespace convgrad::cli
