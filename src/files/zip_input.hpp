// zip_input.hpp - the bytes of an archive as libzip takes them.
#pragma once

#include <zip.h>

#include <cstdint>
#include <exception>

#include "files/byte_source.hpp"

namespace convgrad {

// A file as a source of libzip. libzip knows of a failed read only that there was one, and takes
// some for the end of the archive; what it was is kept here. libzip's own source of a file reads
// through stdio, which stops where a read is interrupted. Stays where it is and outlives the
// archive, and the file outlives it.
class ZipInput {
 public:
  explicit ZipInput(FileSource& file) : file_(file) { zip_error_init(&error_); }
  ~ZipInput() { zip_error_fini(&error_); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;

  FileSource& file() const { return file_; }
  zip_source_t* new_source(zip_error_t* error);  // null and *error set if there is no memory
  // Throws what a read threw, if one did.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static zip_int64_t on_command(void* self, void* data, zip_uint64_t length,
                                zip_source_cmd_t command);
  zip_int64_t handle(void* data, zip_uint64_t length, zip_source_cmd_t command);
  zip_int64_t read(void* data, zip_uint64_t length);
  zip_int64_t stat(void* data, zip_uint64_t length);

  FileSource& file_;
  std::int64_t position_ = 0;
  zip_error_t error_;
  std::exception_ptr failure_;
};

}  // namespace convgrad
