// batch_state.cpp - what --resume knows: one line a finished job, under a line that names the
// schema. The file is replaced as a whole, so it is whole whenever the batch ends.
#include <filesystem>
#include <sstream>

#include "base/failure.hpp"
#include "batch/batch.hpp"
#include "files/text_file.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

constexpr const char* kSchema = "convgrad.batch-state/1";
// Between two times of writing, as a multiple of the time that it takes.
constexpr int kOtherTime = 20;

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

}  // namespace

BatchState::BatchState(std::string path) : path_(std::move(path)) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path_, error);
  if (status.type() == std::filesystem::file_type::not_found) return;
  if (error) {
    throw Error(kind_of_failure(error.value()), cat("--state: ", path_, ": ", error.message()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    misuse("--state: ", path_, " is a device or FIFO, expected a file");
  }
  TextReader file(read_text(path_, {"--state: ", "what convgrad batch wrote"}));
  std::string line;
  std::int64_t number = 1;
  try {
    if (!std::getline(file, line) || Json::parse(line).at("schema") != kSchema) bad_input("");
    for (++number; std::getline(file, line); ++number) {
      const Json json = Json::parse(line);
      Record record;
      record.name = json.at("name");
      record.status = json.at("status");
      record.output = json.at("output");
      for (const auto& [field, hash] : json.at("files").items()) record.files[field] = hash;
      records_[json.at("job")] = std::move(record);
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    bad_input("--state: ", path_, ", line ", number,
              ": is not what convgrad batch wrote; remove the file to start anew, or name another");
  }
}

const BatchState::Record* BatchState::find(const std::string& job) const {
  const auto found = records_.find(job);
  return found == records_.end() ? nullptr : &found->second;
}

void BatchState::add(const std::string& job, Record record) {
  const std::lock_guard lock(mutex_);
  added_[job] = std::move(record);
  if (Clock::now() < next_write_) return;
  try {
    write_locked();
  } catch (const Error&) {  // write() says so in the end
  }
}

void BatchState::write() {
  const std::lock_guard lock(mutex_);
  write_locked();
}

void BatchState::write_locked() {
  const auto start = Clock::now();
  std::string text = line_of(Json{{"schema", kSchema}});
  for (const auto& [job, record] : records_) {
    if (added_.count(job) == 0) text += line_of(job, record);
  }
  for (const auto& [job, record] : added_) text += line_of(job, record);
  write_file(path_, text);
  const auto end = Clock::now();
  next_write_ = end + (end - start) * kOtherTime;
}

}  // namespace convgrad::cli
