// npz_writer.hpp - a .npz archive of arrays in memory, as numpy.savez writes it: stored, ZIP64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "files/output_file.hpp"

namespace convgrad {

class NpzWriter {
 public:
  // Writes through to file, which it does not own and does not commit.
  explicit NpzWriter(OutputFile& file) : file_(file) {}

  // Adds the array `name`: pieces are the bytes of a .npy file, its header among them.
  void add(const std::string& name, const std::vector<std::span<const std::byte>>& pieces);
  // Add an array whose pieces come one after the other, `bytes` in all. Devices and the like cannot
  // take it, as the check sum in front of the pieces is only known after them.
  void begin(const std::string& name, std::uint64_t bytes);
  void append(std::span<const std::byte> piece);
  void end();
  // Is called after the last array.
  void finish();

 private:
  struct Member {
    std::string name;  // with .npy
    std::uint32_t crc = 0;
    std::uint64_t bytes = 0, offset = 0;
  };
  void write(std::span<const std::byte> bytes);
  void write_local_header(const Member& member);

  OutputFile& file_;
  std::uint64_t written_ = 0;
  std::vector<Member> members_;  // the last one is not complete between begin() and end()
};

}  // namespace convgrad
