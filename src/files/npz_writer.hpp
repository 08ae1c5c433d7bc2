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

  // Adds the array `name`: its pieces follow, `bytes` in all, which are those of a .npy file.
  // Devices and the like cannot take it, as the check sum in front of the pieces is only known
  // after them.
  void begin(const std::string& name, std::uint64_t bytes);
  void append(std::span<const std::byte> piece);
  // Is called after the last array.
  void finish();

 private:
  struct Member {
    std::string name;  // with .npy
    std::uint32_t crc = 0;
    std::uint64_t bytes = 0, offset = 0;
  };
  void write(std::span<const std::byte> bytes);
  void end();

  OutputFile& file_;
  std::uint64_t written_ = 0;
  std::vector<Member> members_;
};

}  // namespace convgrad
