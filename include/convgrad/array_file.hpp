// array_file.hpp - one array as a file, in the format that the file's name says.
//
// FILE.npz and FILE.safetensors are archives of this array alone, which is called dw, or NAME in
// FILE.npz:NAME. Every other name stands for a .npy file or, with OutputOptions::raw, for the
// elements alone, little endian and in C order. Equal arrays give equal bytes. An archive that is
// there and holds anything else is not replaced. A file appears complete or not at all; "-" is
// standard output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convgrad/dtype.hpp"

namespace convgrad {

struct OutputOptions {
  // An existing file is Error(input), also when it appears meanwhile. Devices, FIFOs and "-" hold
  // nothing that could be lost: they are written to all the same.
  bool no_clobber = false;
  bool raw = false;  // the file has the elements alone
};

enum class ArrayFormat : std::uint8_t { npy, npz, safetensors, raw };

struct ArrayTarget {
  std::string file;
  ArrayFormat format = ArrayFormat::npy;
  std::string member;  // of an archive

  // NpyReader takes this name. A raw file has none.
  std::string readable_name() const { return member.empty() ? file : file + ":" + member; }
};

// Looks at names alone, not at files. Error(usage) for a raw array in a file whose name promises a
// header, and for a member that cannot be called so.
ArrayTarget array_target(const std::string& argument, bool raw = false);

// Throws the Error that ArrayFile would throw for what can be seen before computing: the folder
// does not exist or cannot be written to, the target is a folder, or exists with no_clobber; and
// Error(usage) where an archive would be lost, or would go to a device or FIFO.
void check_array_output(const std::string& argument, const OutputOptions& options = {});

// Error(usage) if the file is an archive that holds anything but `own`, or a device or FIFO that is
// called .npz.
void check_archive_is_kept(const std::string& file, const std::vector<std::string>& own);

class ArrayFile {
 public:
  // Writes what stands in front of the elements.
  ArrayFile(const std::string& argument, DType dtype, std::span<const std::int64_t> shape,
            const OutputOptions& options = {});
  ~ArrayFile();  // without commit(): the target stays as it was
  ArrayFile(const ArrayFile&) = delete;
  ArrayFile& operator=(const ArrayFile&) = delete;

  // Takes the next elements, little endian and in C order, and does not keep the pointer.
  void write(const void* bytes, std::size_t count);
  // Is called after the last element and makes the file visible.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convgrad
