// byte_source.hpp - sources of a tensor's bytes: a file, a stream, a member of an archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/messages.hpp"

namespace convgrad {

class ByteSource {
 public:
  static constexpr std::int64_t kUnknown = -1;

  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }  // for messages

  // Counts the bytes in all; kUnknown for a stream.
  virtual std::int64_t size() const = 0;
  // If false, every read begins where the one before it ended, the first at 0.
  virtual bool seekable() const = 0;
  // Reads until count bytes are there or the source ends; returns how many. Error(runtime) if
  // reading fails, Error(input) if what is there turns out to be damaged.
  virtual std::int64_t read(std::byte* out, std::int64_t count, std::int64_t offset) = 0;
  // Is called after the last read, which for a source that is not seekable has met its end. Throws
  // Error(input) if the source has changed since it was opened, or its checksum is wrong.
  virtual void finish() = 0;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    bad_input(name_, ": ", parts...);
  }

 protected:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

// Reads a file, a FIFO, a device, or standard input ("-") by plain reads. A memory map of a file
// that shrinks would end in a SIGBUS.
class FileSource final : public ByteSource {
 public:
  // Messages begin with the prefix; `expected` is what a folder is not.
  explicit FileSource(const std::string& path, const std::string& prefix = "",
                      const std::string& expected = "a .npy file");
  ~FileSource() override;

  std::int64_t size() const override { return regular_ ? bytes_ : kUnknown; }
  bool seekable() const override { return regular_; }
  std::int64_t read(std::byte* out, std::int64_t count, std::int64_t offset) override;
  void finish() override;

  // Messages call it so from now on.
  void rename(std::string name) { name_ = std::move(name); }

 private:
  int fd_ = -1;
  bool owned_ = true;       // not standard input
  bool regular_ = false;    // read by pread, so in any order
  std::int64_t bytes_ = 0;  // of a regular file, when it was opened
};

// Reads all of a text file, or of standard input ("-"). Messages begin with the prefix and say what
// is expected, "a report". A read that fails is an Error(runtime) and never taken for the file's
// end; Error(input) for a folder, a zero byte, and what is too large.
std::string read_text(const std::string& path, const std::string& prefix,
                      const std::string& expected);

// Decodes a number in a header, of at most 8 bytes.
inline std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

}  // namespace convgrad
