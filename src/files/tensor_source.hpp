// tensor_source.hpp - how an argument names a tensor, and what opens it: FILE.npy, FILE.npz:NAME,
// FILE.safetensors:NAME, - (standard input), or FILE:DTYPE[EXTENTS] (elements alone, also of -).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/npy.hpp"
#include "files/byte_source.hpp"

namespace convgrad {

struct TensorName {
  std::string file;  // the whole argument if there is no member
  // An archive's array is a member, "" in "FILE.npz:"; so are the dtype and shape of a raw file.
  std::optional<std::string> member;
};

// Tells whether name is a raw file's, x.bin:bfloat16[16,56,56,64], and not an archive's array.
bool is_raw(const TensorName& name);

// An existing file whose name is the whole argument wins, then the longest existing regular file
// before a ':', then one that is missing, a stream or - where an archive's ending or DTYPE[EXTENTS]
// shows what is meant. Looks at names alone, opens nothing.
TensorName split_tensor_name(const std::string& argument);

// Tells whether argument is - or, of a raw tensor, -:DTYPE[EXTENTS].
bool is_standard_input(const std::string& argument);

// Tells whether file ends with .npz or .safetensors.
bool is_archive_name(const std::string& file);

// Tell what is there now, through links: a regular file; a device, a FIFO or a folder.
bool is_regular(const std::string& path);
bool is_special(const std::string& path);

// Is thrown as Error(input) for a dtype that is known, but none of numbers that are read.
struct NotNumbers : Error {
  using Error::Error;
};

struct TensorSource {
  std::unique_ptr<ByteSource> bytes;
  // A .safetensors member and a raw file have it; otherwise the bytes begin with a .npy header and
  // are nothing else.
  std::optional<NpyHeader> header;
};

// Takes an argument as split_tensor_name() does. Where an archive has no such array, Error(input)
// lists the names there are, with a suggestion.
TensorSource open_tensor(const std::string& argument);

// Reads the directory of an archive once, for as many of its arrays as are opened.
class TensorArchive {
 public:
  // file is a regular file that is_archive() knows. Error(input) if it is damaged.
  explicit TensorArchive(const std::string& file);
  ~TensorArchive();
  TensorArchive(TensorArchive&&) noexcept;
  TensorArchive& operator=(TensorArchive&&) = delete;

  // Lists what it holds, names of arrays without .npy: of a .npz with `arrays_only` what ends so.
  std::vector<std::string> names(bool arrays_only = true) const;
  // The archive need not outlive what it opens.
  TensorSource open(const std::string& member) const;

 private:
  struct State;
  std::string path_;
  std::unique_ptr<State> state_;
};

// Tells whether a file is there, a regular one, and an archive.
bool is_archive(const std::string& file);

// A zip archive that is open, for one or many of its members.
struct ZipArchive;
std::shared_ptr<ZipArchive> open_zip_archive(std::unique_ptr<FileSource> file);

// Lists the members of a zip archive (.npz) but folders, or those that end with .npy alone, in the
// archive's order and without .npy as numpy.load has them (with it where the archive has both).
std::vector<std::string> zip_array_names(const ZipArchive& archive, bool npy_only);

// Opens the bytes of a member; .npy may be left out. A stored member can be read in any order, a
// deflated one front to back. Error(input) unless there is exactly one such member, stored or
// deflated, not encrypted, whose sizes can be true. Its CRC-32 is checked by finish(), if not
// before. name is what messages call it.
std::unique_ptr<ByteSource> open_zip_member(std::shared_ptr<ZipArchive> archive,
                                            const std::string& member, const std::string& name);

inline constexpr std::string_view kTorchFile =
    "a torch.save file (save the tensor with safetensors or numpy.save)";

// Throws Error(input) if a file that starts so is known to be no array and no archive of them; it
// says what it is. start is 8 bytes, fewer of a shorter file.
void refuse_other_format(std::string_view start, std::string_view name);

// Throws Error(input): the archive has no array called member. names is what there is.
[[noreturn]] void refuse_missing_array(const std::string& file, const std::string& member,
                                       const std::vector<std::string>& names);

// Reads a .npy header and not a byte more, as the payload of a stream follows.
NpyHeader read_npy_header(ByteSource& source);

// Raw files are elements alone, whose dtype and shape the argument gives:
// x.bin:bfloat16[16,56,56,64], and x.bin:>float32[3,4] for big endian. Shapes as Python and others
// write them are taken too: (3, 4), (3,), 3x4.

// Tells whether text has the form WORD[...] or WORD(...), which no name of a file or of an array in
// an archive is expected to have.
bool looks_like_raw(std::string_view text);

// Makes the header that the array would have as .npy, with its payload at byte 0, from
// "DTYPE[EXTENTS]". Names are those of --out-dtype, 8-bit floats, and numpy's of integers and
// booleans. Error(usage) that starts with argument for a dtype that is unknown, or extents that are
// none.
NpyHeader raw_header(std::string_view text, const std::string& argument);

}  // namespace convgrad
