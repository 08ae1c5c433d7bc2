// zip_archive.hpp - the members of a zip archive (.npz), through libzip.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/byte_source.hpp"

namespace convgrad {

// The names of all members but folders, or of those that end with .npy alone, in the archive's
// order and without .npy as numpy.load has them (with it where the archive has both). file is a
// regular file.
std::vector<std::string> zip_array_names(FileSource& file, bool npy_only);

// The bytes of a member; .npy may be left out. A stored member can be read in any order, a deflated
// one front to back. Error(input) unless there is exactly one such member, stored or deflated, not
// encrypted, whose sizes can be true. Its CRC-32 is checked by finish(), if not before. name is
// what messages call it.
std::unique_ptr<ByteSource> open_zip_member(std::unique_ptr<FileSource> file,
                                            const std::string& member, const std::string& name);

}  // namespace convgrad
