// batch_state.cpp - what --resume knows: under a line that names the schema, one line a finished
// job, and one for each that has begun or ended in vain since the file was last replaced.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>

#include "base/failure.hpp"
#include "batch/batch.hpp"
#include "files/text_file.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

constexpr const char* kSchema = "convgrad.batch-state/1";

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string line_of(const std::string& job, const BatchState::Record& record) {
  Json files = Json::object();
  for (const auto& [field, hash] : record.files) files[field] = hash;
  return line_of(Json{{"job", job},
                      {"name", record.name},
                      {"status", record.status},
                      {"files", files},
                      {"output", record.output}});
}

std::string begun_line(const std::string& job, const std::string& name) {
  return line_of(Json{{"job", job}, {"name", name}, {"status", "begun"}});
}

std::string first_line() { return line_of(Json{{"schema", kSchema}}); }

bool exists(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) {
    throw Error(kind_of_failure(error.value()), cat("--state: ", path, ": ", error.message()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    misuse("--state: ", path, " is a device or FIFO, expected a file");
  }
  return true;
}

}  // namespace

BatchState::BatchState(std::string path, bool is_written) : path_(std::move(path)) {
  if (!exists(path_)) {
    if (!is_written) return;
    try {
      write_file(path_, first_line(), {.no_clobber = true});
    } catch (const Error&) {  // another batch may have begun with it
      if (!exists(path_)) throw;
    }
  }
  while (is_written && !open()) {
  }
  try {
    read(read_text(path_, {"--state: ", "what convgrad batch wrote"}));
    cut();
  } catch (...) {
    if (file_ >= 0) ::close(file_);
    throw;
  }
}

BatchState::~BatchState() {
  if (file_ >= 0) ::close(file_);
}

// False if the file has been replaced meanwhile.
bool BatchState::open() {
  do {
    file_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) {
    const std::error_code error(errno, std::generic_category());
    throw Error(kind_of_failure(error.value()), cat("--state: ", path_, ": ", error.message()));
  }
  // Where files cannot be locked, this is not noticed.
  const bool is_anothers = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat opened {
  }, named{};
  const bool is_there = ::fstat(file_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (is_there && !is_anothers) return true;
  ::close(file_);
  file_ = -1;
  if (!is_anothers) return false;
  misuse("--state: ", path_, " is in use by another batch; wait for it, or name another file");
}

void BatchState::read(const std::string& text) {
  TextReader lines(text);
  std::string line;
  std::int64_t number = 1;
  try {
    if (!std::getline(lines, line) || Json::parse(line).at("schema") != kSchema) bad_input("");
    size_ = static_cast<std::int64_t>(line.size()) + 1;
    for (++number; std::getline(lines, line); ++number) {
      if (lines.eof()) break;  // without its end: the machine went down while it was written
      size_ += static_cast<std::int64_t>(line.size()) + 1;
      const Json json = Json::parse(line);
      const std::string job = json.at("job"), status = json.at("status");
      lost_.erase(job);
      if (status == "begun") lost_[job] = json.at("name");
      if (status == "begun" || status == "failed") continue;
      Record record{json.at("name"), status, json.at("output"), {}};
      for (const auto& [field, hash] : json.at("files").items()) record.files[field] = hash;
      records_[job] = std::move(record);
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    bad_input("--state: ", path_, ", line ", number,
              ": is not what convgrad batch wrote; remove the file to start anew, or name another");
  }
  begun_ = lost_;
}

const BatchState::Record* BatchState::find(const std::string& job) const {
  const auto found = records_.find(job);
  return found == records_.end() ? nullptr : &found->second;
}

void BatchState::begin(const std::string& job, const std::string& name) {
  const std::lock_guard lock(mutex_);
  begun_[job] = name;
  append(begun_line(job, name));
}

void BatchState::end(const std::string& job, const std::optional<Record>& record) {
  const std::lock_guard lock(mutex_);
  begun_.erase(job);
  if (record) added_[job] = *record;
  append(record ? line_of(job, *record) : line_of(Json{{"job", job}, {"status", "failed"}}));
}

// The whole line or nothing. write() says what is wrong, if it still is.
void BatchState::append(const std::string& line) {
  if (::write(file_, line.data(), line.size()) != std::ssize(line)) return cut();
  size_ += std::ssize(line);
  pace_.maybe([&] { ::fdatasync(file_); });
}

// Takes the part of a line off.
void BatchState::cut() const {
  if (file_ >= 0) [[maybe_unused]]
    const int ignored = ::ftruncate(file_, size_);
}

void BatchState::write() {
  const std::lock_guard lock(mutex_);
  std::string text = first_line();
  for (const auto& [job, record] : records_) {
    if (added_.count(job) == 0) text += line_of(job, record);
  }
  for (const auto& [job, record] : added_) text += line_of(job, record);
  for (const auto& [job, name] : begun_) text += begun_line(job, name);
  write_file(path_, text);
}

}  // namespace convgrad::cli
