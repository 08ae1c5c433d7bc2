// npy.hpp - reading .npy files and members of archives defensively and block by block.
//
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (1.0, 2.0, 3.0).
// A member of a .npz is a .npy file in a zip archive, stored or deflated; a member of a
// .safetensors file is given the header that it would have as .npy. Every byte is counted: a file
// whose size is not exactly header + payload is refused before anything is allocated. Plain reads,
// never a memory map: a file that shrinks while it is read gives an Error, not a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/dtype.hpp"

namespace convgrad {

struct NpyHeader {
  enum class Format { npy, safetensors, raw };
  Format format = Format::npy;
  int major = 1;      // of .npy, whose minor version is 0
  std::string descr;  // as spelled in the file, without quotes: "<f4", ">V2", "bfloat16"
  // f is float, i int, u unsigned, b bool, V void/bfloat16, S bytes; c is complex in .safetensors.
  char kind = 'f';
  std::int64_t item_bytes = 4;
  std::optional<DType> dtype;  // where kind and item_bytes do not say which float it is
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;  // empty for a 0-d array
  std::int64_t data_offset = 0;     // bytes before the payload
  std::int64_t element_count = 1;   // checked product of shape
  std::int64_t payload_bytes = 0;   // checked element_count * item_bytes
};

// Headers longer than this are refused: the longest legal one for our tensors is far shorter.
inline constexpr std::int64_t kMaxNpyHeaderBytes = std::int64_t{64} * 1024;

// Parses magic, version, length and dictionary from the first bytes of a file. name is used in
// messages. Throws Error(input) for what no program writes, products that overflow 63 bits
// included, and for dtypes other than numbers of 1, 2, 4 or 8 bytes, 'S' excepted. float_dtype()
// decides what can be computed with.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view name);

// Returns float16/32/64, bfloat16 ('V2' in any byte order, or 'bfloat16') or an 8-bit float ('f1'
// is ml_dtypes' float8_e5m2). Any other type is an Error(input) that names it ("'<i4' is int32,
// expected"), and the flag that take_for() is for, if this file has one.
DType float_dtype(const NpyHeader& header, std::string_view name, std::string_view flag = {});

// Returns "1.0", "safetensors" or "raw".
std::string format_name(const NpyHeader& header);

struct TensorSource;

// Reads one array, once from front to back or (a regular file, a stored member) in boxes.
class NpyReader {
 public:
  // Opens a tensor whatever form its name has (FILE, FILE.npz:NAME, FILE.safetensors:NAME, elements
  // alone as FILE:DTYPE[EXTENTS], or - for standard input), parses the header and compares the size
  // of the file or member with it.
  explicit NpyReader(const std::string& argument);
  // Reads one that is open; see src/files/tensor_source.hpp.
  explicit NpyReader(TensorSource opened);
  ~NpyReader();
  NpyReader(NpyReader&&) noexcept;
  NpyReader& operator=(NpyReader&&) noexcept;

  const std::string& name() const;  // for messages: the argument, or "standard input"
  const NpyHeader& header() const;

  // Serves files that cannot say their dtype: integers or raw bytes (kinds i, u, V) are taken for
  // floats of the same size. Any other file is an Error(input) that names the flag.
  void take_for(DType dtype, std::string_view flag);
  // Boxes are given in this dtype from now on, one of the four, which must have every number of the
  // file's.
  void widen_to(DType dtype);
  // Has boxes changed as they are read, from now on: change(begin, end, out) gets what read_box()
  // is about to return.
  using Change = std::function<void(std::span<const std::int64_t> begin,
                                    std::span<const std::int64_t> end, void* out)>;
  void change_boxes(Change change);

  // Is false for pipes and the like, and for deflated members: "a stream" below. Boxes [n0,n1) x
  // full that follow each other are then read straight from the stream; the first other box brings
  // the rest of the payload into memory, and what has gone by before cannot be read again
  // (Error(input)).
  bool seekable() const;
  // Is true if that happens at the first box already: in Fortran order, of a file too.
  bool needs_whole_payload() const;

  // Is called before the first box and reads a stream's whole payload into memory, so that boxes
  // may overlap and come in any order. It has no effect on what is seekable.
  void hold();

  // Reads the elements with begin[i] <= index[i] < end[i] into out, in C order of the logical axes
  // (whatever the file's order) and native byte order. out holds product(end - begin) *
  // item_bytes bytes, or of what they are widened to. Throws Error(input) if the file ends early or
  // changed its size, and Error(runtime) if reading fails. Not for two threads at once.
  void read_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end, void* out);

  // Counts what read_box() spent on byte order and on other orders of axes than C, reading left
  // out.
  double convert_seconds() const;

  // Is called after the last box. A stream must be at its end, else Error(input) about trailing
  // bytes. What was not asked for is read and discarded. A member whose CRC-32 differs is an
  // Error(input).
  void finish();
  // Reads the whole array, as one box, and finishes.
  void read_all(void* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads a 1-D array of any integer dtype (TensorFlow's filter_sizes tensor), at most 16 entries.
std::vector<std::int64_t> read_npy_integers(const std::string& path);

// Returns the format 1.0 header of a C-order little-endian array, padded so that the payload starts
// at a multiple of 64: byte for byte what numpy >= 1.23 writes (bfloat16 as '<V2', as ml_dtypes
// does; 8-bit floats as '|V1').
std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape);
// Takes any dtype, by its descr: "<i8".
std::string npy_header_text(std::string_view descr, std::span<const std::int64_t> shape);

}  // namespace convgrad
