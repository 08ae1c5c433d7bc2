// npy_reader.cpp - the payload of a .npy file, from a regular file or a stream.

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "npy_box.hpp"
#include "npy_parse.hpp"

namespace convgrad {
namespace {

constexpr std::int64_t kMaxReadBytes = std::int64_t{1} << 30;     // one system call
constexpr std::int64_t kScratchBytes = std::int64_t{4} << 20;     // a span that is picked from
constexpr std::int64_t kDirectRunBytes = std::int64_t{64} << 10;  // worth a call of its own
constexpr std::int64_t kMaxGapBytes = std::int64_t{16} << 10;     // read over rather than around
constexpr std::int64_t kCacheLineBytes = 64;
constexpr std::int64_t kFirstHoldBytes = std::int64_t{16} << 20;
constexpr std::int64_t kNoOffset = -1;  // read() instead of pread()

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using MallocBytes = std::unique_ptr<std::byte, Free>;

// Reads until count bytes are there or the file ends; returns how many. Error(runtime) on failure.
std::int64_t read_fully(int fd, std::byte* out, std::int64_t count, std::int64_t offset,
                        const std::string& name) {
  std::int64_t done = 0;
  while (done < count) {
    const auto size = static_cast<std::size_t>(std::min(count - done, kMaxReadBytes));
    const ssize_t got = offset == kNoOffset ? ::read(fd, out + done, size)
                                            : ::pread(fd, out + done, size, offset + done);
    if (got == 0) break;
    if (got > 0) {
      done += got;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // somebody made our pipe non-blocking
      pollfd waiting{fd, POLLIN, 0};
      ::poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      throw Error(ErrorKind::runtime, cat(name, ": cannot read: ", std::strerror(errno)));
    }
  }
  return done;
}

// The unit in which the bytes of an element are swapped, 1 where there is nothing to swap.
std::size_t swap_unit(const NpyHeader& header) {
  if (header.big_endian == (std::endian::native == std::endian::big)) return 1;
  const auto item = static_cast<std::size_t>(header.item_bytes);
  switch (header.kind) {
    case 'c':
      return item / 2;
    case 'U':
      return 4;
    case 'V':
      return item == 2 ? 2 : 1;  // bfloat16; other raw bytes have no order
    case 'S':
    case 'R':
    case 'O':
      return 1;
    default:
      return item;
  }
}

template <typename Unsigned, typename Swap>
void swap_each(std::byte* bytes, std::size_t count, Swap swap) {
  for (std::size_t i = 0; i < count; i += sizeof(Unsigned)) {
    Unsigned value;
    std::memcpy(&value, bytes + i, sizeof value);
    value = swap(value);
    std::memcpy(bytes + i, &value, sizeof value);
  }
}

void swap_bytes(std::byte* bytes, std::size_t count, std::size_t unit) {
  switch (unit) {
    case 1:
      return;
    case 2:
      return swap_each<std::uint16_t>(bytes, count, [](auto v) { return __builtin_bswap16(v); });
    case 4:
      return swap_each<std::uint32_t>(bytes, count, [](auto v) { return __builtin_bswap32(v); });
    case 8:
      return swap_each<std::uint64_t>(bytes, count, [](auto v) { return __builtin_bswap64(v); });
    default:
      for (std::size_t i = 0; i < count; i += unit) std::reverse(bytes + i, bytes + i + unit);
  }
}

}  // namespace

struct NpyReader::State {
  std::string path;
  std::string name;
  int fd = -1;
  bool regular = false;         // read by pread, so in any order
  std::int64_t file_bytes = 0;  // of a regular file
  std::int64_t position = 0;    // of a stream: payload bytes taken from it
  MallocBytes held;             // of a stream: the payload from held_from on
  std::int64_t held_from = 0;
  MallocBytes scratch;  // kScratchBytes
  NpyHeader header;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd >= 0 && path != "-") ::close(fd);
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(ErrorKind::input, cat(name, ": ", parts...));
  }

  void open_file();
  void read_header();
  void check_size() const;

  std::byte* scratch_bytes();
  void read_payload(std::byte* out, std::int64_t offset, std::int64_t count);
  void gather(std::span<const npy::BoxAxis> axes, npy::BoxAxis strip, std::int64_t first,
              std::byte* out);
  bool gather_spans(std::span<const npy::BoxAxis> axes, const npy::BoxAxis& strip,
                    std::int64_t first, std::byte* out);
  void read_from_stream(const npy::Box& box, std::byte* out);
  void hold_rest();
  void finish_stream();
  [[noreturn]] void refuse_to_open(int error) const;
};

// The file's fault (missing, no permission) or this process's and the machine's.
void NpyReader::State::refuse_to_open(int error) const {
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO) {
    throw Error(ErrorKind::runtime, cat(name, ": cannot open: ", std::strerror(error)));
  }
  refuse("cannot open: ", std::strerror(error));
}

void NpyReader::State::open_file() {
  if (path == "-") {
    name = "standard input";
    fd = STDIN_FILENO;
  } else {
    name = path;
    do {
      fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);  // a FIFO waits for its writer
    if (fd < 0) refuse_to_open(errno);
  }
  struct stat status {};
  if (::fstat(fd, &status) != 0) refuse("cannot open: ", std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse("is a folder, expected a .npy file");
  regular = S_ISREG(status.st_mode) && ::lseek(fd, 0, SEEK_CUR) == 0;
  file_bytes = regular ? status.st_size : 0;
  if (regular) ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

// Takes the header and not a byte more: the payload of a stream follows.
void NpyReader::State::read_header() {
  std::vector<std::byte> bytes;
  const auto extend = [&](std::int64_t size) {
    const auto before = bytes.size();
    bytes.resize(static_cast<std::size_t>(size));
    const auto offset = regular ? static_cast<std::int64_t>(before) : kNoOffset;
    const auto more = size - static_cast<std::int64_t>(before);
    const auto got = read_fully(fd, bytes.data() + before, more, offset, name);
    bytes.resize(before + static_cast<std::size_t>(got));
  };
  extend(npy::kVersionBytes);
  extend(npy::dictionary_offset(bytes, name));
  extend(npy::payload_offset(bytes, name));
  header = parse_npy_header(bytes, name);
}

void NpyReader::State::check_size() const {
  if (header.kind == 'O') float_dtype(header, name);  // a pickle has any size: say what it is
  const std::int64_t expected = header.data_offset + header.payload_bytes;
  if (!regular || file_bytes == expected) return;
  refuse("has ", file_bytes, " bytes, but its header announces ", header.data_offset, " + ",
         header.element_count, " x ", header.item_bytes, " = ", expected, "; it is ",
         file_bytes < expected ? "truncated, copy or write it again"
                               : "followed by other bytes, expected exactly one array");
}

std::byte* NpyReader::State::scratch_bytes() {
  if (!scratch) {
    scratch.reset(static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(kScratchBytes))));
    if (!scratch) throw Error(ErrorKind::runtime, cat(name, ": out of memory while reading"));
  }
  return scratch.get();
}

// count bytes of the payload of a regular file.
void NpyReader::State::read_payload(std::byte* out, std::int64_t offset, std::int64_t count) {
  const std::int64_t begin = header.data_offset + offset;
  const std::int64_t got = read_fully(fd, out, count, begin, name);
  if (got == count) return;
  refuse("shrank while it was read: it had ", file_bytes, " bytes, now it ends at ", begin + got);
}

// Reads the elements that axes describe, from payload element first on, and the same again for
// each index of strip. A strip is an axis whose elements lie side by side in the box but far apart
// in the file (Fortran order): its parts are read one by one and written together.
void NpyReader::State::gather(std::span<const npy::BoxAxis> axes, npy::BoxAxis strip,
                              std::int64_t first, std::byte* out) {
  const std::int64_t item = header.item_bytes;
  const bool run =
      axes.empty() || (axes.size() == 1 && axes[0].file_stride == 1 && axes[0].out_stride == 1);
  if (run && strip.count == 1) {
    return read_payload(out, first * item, (axes.empty() ? 1 : axes[0].count) * item);
  }
  if (gather_spans(axes, strip, first, out)) return;
  const npy::BoxAxis axis = axes[0];
  const bool is_strip = axis.out_stride == 1 && strip.count == 1;
  const std::int64_t step = is_strip ? std::max<std::int64_t>(kCacheLineBytes / item, 1) : 1;
  for (std::int64_t i = 0; i < axis.count; i += step) {
    const std::int64_t width = std::min(step, axis.count - i);
    gather(axes.subspan(1), step > 1 ? npy::BoxAxis{width, axis.file_stride, 1} : strip,
           first + i * axis.file_stride, out + i * axis.out_stride * item);
  }
}

// Reads spans that cover several runs, gaps included, and picks from them. False if the gaps or
// the runs are too large for that to pay.
bool NpyReader::State::gather_spans(std::span<const npy::BoxAxis> axes, const npy::BoxAxis& strip,
                                    std::int64_t first, std::byte* out) {
  const std::int64_t item = header.item_bytes;
  std::int64_t inner = 1;  // elements from the first to the last of one index of the outer axis
  bool dense = true;
  for (std::size_t i = axes.size(); i-- > 0;) {
    dense = dense && (axes[i].file_stride - inner) * item <= kMaxGapBytes;
    if (i > 0) inner += (axes[i].count - 1) * axes[i].file_stride;
  }
  const std::int64_t room = kScratchBytes / item / strip.count;
  if (!dense || inner > room) return false;
  const bool runs = !axes.empty() && axes.back().file_stride == 1 && axes.back().out_stride == 1;
  if (axes.size() > 1 && runs && axes.back().count * item >= kDirectRunBytes) return false;

  const npy::BoxAxis outer = axes.empty() ? npy::BoxAxis{1, 1, 1} : axes[0];
  const std::int64_t step = 1 + (room - inner) / outer.file_stride;
  const bool wants_strip = axes.size() > 1 && outer.out_stride == 1;
  if (wants_strip && step < outer.count && step * item < kCacheLineBytes) return false;

  std::byte* const span = scratch_bytes();
  std::vector<npy::BoxAxis> part = {strip, outer};
  if (!axes.empty()) part.insert(part.end(), axes.begin() + 1, axes.end());
  for (std::int64_t i = 0; i < outer.count; i += step) {
    part[1].count = std::min(step, outer.count - i);
    part[0].file_stride = inner + (part[1].count - 1) * outer.file_stride;
    for (std::int64_t s = 0; s < strip.count; ++s) {
      const std::int64_t offset = first + s * strip.file_stride + i * outer.file_stride;
      read_payload(span + s * part[0].file_stride * item, offset * item,
                   part[0].file_stride * item);
    }
    npy::scatter(span, out + i * outer.out_stride * item, part, static_cast<std::size_t>(item));
  }
  return true;
}

void NpyReader::State::read_from_stream(const npy::Box& box, std::byte* out) {
  const std::int64_t item = header.item_bytes;
  if (!held && box.is_run() && box.first * item == position) {
    const std::int64_t got = read_fully(fd, out, box.count * item, kNoOffset, name);
    position += got;
    if (got == box.count * item) return;
    refuse("ends after ", position, " of ", header.payload_bytes,
           " payload bytes; it is truncated");
  }
  if (!held) hold_rest();
  if (box.first * item < held_from) {
    refuse("is a stream, and a part that has gone by is needed again; save it to a file first");
  }
  npy::scatter(held.get() + (box.first * item - held_from), out, box.axes,
               static_cast<std::size_t>(item));
}

// Reads the rest of a stream into memory. The buffer grows as bytes arrive: a header that lies
// about a short stream costs nothing.
void NpyReader::State::hold_rest() {
  const std::int64_t rest = header.payload_bytes - position;
  std::int64_t filled = 0;
  held_from = position;
  for (std::int64_t size = std::min(rest, kFirstHoldBytes); filled < rest;
       size += std::min(rest - size, size)) {
    void* grown = std::realloc(held.get(), static_cast<std::size_t>(size));
    if (grown == nullptr) {
      throw Error(ErrorKind::runtime,
                  cat(name,
                      ": out of memory: a stream that is not read in order, or in Fortran "
                      "order, needs ",
                      rest, " bytes; save it to a file first"));
    }
    static_cast<void>(held.release());
    held.reset(static_cast<std::byte*>(grown));
    filled += read_fully(fd, held.get() + filled, size - filled, kNoOffset, name);
    position = held_from + filled;
    if (filled == size) continue;
    refuse("ends after ", position, " of ", header.payload_bytes,
           " payload bytes; it is truncated");
  }
}

void NpyReader::State::finish_stream() {
  std::byte* const bytes = scratch_bytes();
  while (position < header.payload_bytes) {
    const std::int64_t size = std::min(header.payload_bytes - position, kScratchBytes);
    const std::int64_t got = read_fully(fd, bytes, size, kNoOffset, name);
    position += got;
    if (got == size) continue;
    refuse("ends after ", position, " of ", header.payload_bytes,
           " payload bytes; it is truncated");
  }
  if (read_fully(fd, bytes, 1, kNoOffset, name) == 0) return;
  refuse("goes on after the ", header.payload_bytes, " payload bytes that its header announces, ",
         "expected exactly one array");
}

NpyReader::NpyReader(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->open_file();
  state_->read_header();
  state_->check_size();
}
NpyReader::~NpyReader() = default;
NpyReader::NpyReader(NpyReader&&) noexcept = default;
NpyReader& NpyReader::operator=(NpyReader&&) noexcept = default;

const std::string& NpyReader::name() const { return state_->name; }
const NpyHeader& NpyReader::header() const { return state_->header; }
bool NpyReader::seekable() const { return state_->regular; }

bool NpyReader::needs_whole_payload() const {
  const NpyHeader& header = state_->header;
  if (state_->regular || !header.fortran_order || header.element_count == 0) return false;
  return std::ranges::count_if(header.shape, [](std::int64_t n) { return n > 1; }) > 1;
}

void NpyReader::read_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                         void* out) {
  const NpyHeader& header = state_->header;
  bool inside = begin.size() == header.shape.size() && end.size() == header.shape.size();
  for (std::size_t i = 0; inside && i < begin.size(); ++i) {
    inside = 0 <= begin[i] && begin[i] <= end[i] && end[i] <= header.shape[i];
  }
  if (!inside) throw Error(ErrorKind::runtime, cat(name(), ": internal error: box outside array"));
  if (header.payload_bytes == 0) return;
  const npy::Box box = npy::make_box(header, begin, end);
  if (box.count == 0) return;
  auto* const bytes = static_cast<std::byte*>(out);
  if (state_->regular) {
    state_->gather(box.axes, {1, 0, 0}, box.first, bytes);
  } else {
    state_->read_from_stream(box, bytes);
  }
  swap_bytes(bytes, static_cast<std::size_t>(box.count * header.item_bytes), swap_unit(header));
}

void NpyReader::hold() {
  if (!state_->regular && !state_->held) state_->hold_rest();
}

void NpyReader::finish() {
  if (!state_->regular) return state_->finish_stream();
  struct stat status {};
  if (::fstat(state_->fd, &status) != 0 || status.st_size == state_->file_bytes) return;
  state_->refuse("changed while it was read: it had ", state_->file_bytes, " bytes, now it has ",
                 status.st_size);
}

std::vector<std::int64_t> read_npy_integers(const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "values are widened in place");
  constexpr std::int64_t kMaxCount = 16;
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  const bool integer = header.kind == 'i' || header.kind == 'u';
  if (!integer || header.shape.size() != 1 || header.element_count > kMaxCount) {
    throw Error(ErrorKind::input,
                cat(reader.name(), ": is an array of rank ", header.shape.size(), ", ",
                    header.element_count, " elements and dtype '", header.descr,
                    "', expected a 1-D integer array of at most ", kMaxCount, " entries"));
  }
  const std::int64_t begin = 0;
  const std::size_t item = static_cast<std::size_t>(header.item_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.payload_bytes));
  reader.read_box({&begin, 1}, header.shape, bytes.data());
  reader.finish();
  std::vector<std::int64_t> values;
  for (std::size_t at = 0; at < bytes.size(); at += item) {
    const bool negative =
        header.kind == 'i' && (bytes[at + item - 1] & std::byte{0x80}) != std::byte{0};
    std::uint64_t value = negative ? std::numeric_limits<std::uint64_t>::max() : 0;
    std::memcpy(&value, bytes.data() + at, item);
    if (header.kind == 'u' && value >> 63 != 0) {
      throw Error(ErrorKind::input, cat(reader.name(), ": entry ", values.size(), " is ", value,
                                        ", expected at most 2^63 - 1"));
    }
    values.push_back(static_cast<std::int64_t>(value));
  }
  return values;
}
}  // namespace convgrad
