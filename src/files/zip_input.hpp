// zip_input.hpp - the bytes of an archive as libzip takes them. libzip's zip_source_function(3)
// defines the commands.
#pragma once

#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <limits>

#include "files/byte_source.hpp"

namespace convgrad {

// Offers a file as a source of libzip. libzip knows of a failed read only that there was one, and
// takes some for the end of the archive; the exception is kept here. libzip's own source of a file
// reads through stdio, which stops where a read is interrupted. The object must not move, must
// outlive the archive, and the file must outlive it.
class ZipInput {
 public:
  explicit ZipInput(FileSource& file) : file_(file) { zip_error_init(&error_); }
  ~ZipInput() { zip_error_fini(&error_); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;

  FileSource& file() const { return file_; }
  // Returns null and sets *error if there is no memory.
  zip_source_t* new_source(zip_error_t* error) {
    return zip_source_function_create(on_command, this, error);
  }
  // Throws what a read threw, if one did.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // libzip is C: nothing may be thrown through it.
  static zip_int64_t on_command(void* self, void* data, zip_uint64_t length,
                                zip_source_cmd_t command) {
    auto& input = *static_cast<ZipInput*>(self);
    try {
      return input.handle(data, length, command);
    } catch (...) {
      input.failure_ = std::current_exception();
      zip_error_set(&input.error_, ZIP_ER_READ, EIO);
      return -1;
    }
  }

  zip_int64_t handle(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        position_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return read(data, length);
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t position = zip_source_seek_compute_offset(
            static_cast<zip_uint64_t>(position_), static_cast<zip_uint64_t>(file_.size()), data,
            length, &error_);
        if (position >= 0) position_ = position;
        return position >= 0 ? 0 : -1;
      }
      case ZIP_SOURCE_TELL:
        return position_;
      case ZIP_SOURCE_STAT:
        return stat(data, length);
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:  // belongs to whoever made it
        return 0;
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_SEEKABLE;
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  zip_int64_t read(void* data, zip_uint64_t length) {
    constexpr zip_uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    const auto count = static_cast<std::int64_t>(std::min(length, kMost));
    const std::int64_t got = file_.read(static_cast<std::byte*>(data), count, position_);
    position_ += got;
    return got;
  }

  zip_int64_t stat(void* data, zip_uint64_t length) {
    if (length < sizeof(zip_stat_t)) return -1;
    auto* const status = static_cast<zip_stat_t*>(data);
    zip_stat_init(status);
    status->size = static_cast<zip_uint64_t>(file_.size());
    status->valid = ZIP_STAT_SIZE;
    return sizeof(zip_stat_t);
  }

  FileSource& file_;
  std::int64_t position_ = 0;
  zip_error_t error_;
  std::exception_ptr failure_;
};

}  // namespace convgrad
