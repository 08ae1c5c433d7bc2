// npy_reader.cpp - reads the payload of a tensor, in any order or front to back.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/buffer.hpp"
#include "base/clock.hpp"
#include "base/messages.hpp"
#include "convgrad/npy.hpp"
#include "files/array.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

constexpr std::int64_t kSkippedBytes = std::int64_t{4} << 20;  // of a stream, at once
constexpr std::int64_t kFirstHoldBytes = std::int64_t{16} << 20;

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
// realloc() can grow these, which it cannot do with a Buffer.
using MallocBytes = std::unique_ptr<std::byte, Free>;

// The elements of a file that make up a box of an array, as nested strides.
struct BoxAxis {
  std::int64_t count;
  std::int64_t file_stride;  // in elements
  std::int64_t out_stride;
};

// Element sum(i[a] * file_stride[a]) + first of the payload goes to sum(i[a] * out_stride[a]).
struct Box {
  std::vector<BoxAxis> axes;  // in the file's order, outermost first; counts > 1; folded
  std::int64_t first = 0;
  std::int64_t count = 1;
};

// Tells whether this is one run of elements, in the same order in the file and in the box.
bool is_run(std::span<const BoxAxis> axes) {
  return axes.empty() || (axes.size() == 1 && axes[0].file_stride == 1 && axes[0].out_stride == 1);
}

// The box has begin <= index < end on the logical axes, which must lie within the shape.
Box make_box(const NpyHeader& header, std::span<const std::int64_t> begin,
             std::span<const std::int64_t> end) {
  const std::size_t rank = header.shape.size();
  Box box;
  for (std::size_t axis = 0; axis < rank; ++axis) box.count *= end[axis] - begin[axis];
  if (box.count == 0) return box;  // other extents may be huge
  std::vector<BoxAxis> logical(rank);
  std::int64_t out_stride = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    logical[axis] = {end[axis] - begin[axis], 0, out_stride};
    out_stride *= logical[axis].count;
  }
  std::int64_t file_stride = 1;
  for (std::size_t i = 0; i < rank; ++i) {  // from the axis that is innermost in the file
    const std::size_t axis = header.fortran_order ? i : rank - 1 - i;
    logical[axis].file_stride = file_stride;
    box.first += begin[axis] * file_stride;
    file_stride *= header.shape[axis];
  }
  if (header.fortran_order) std::ranges::reverse(logical);
  for (const BoxAxis& axis : logical) {
    if (axis.count == 1) continue;
    BoxAxis* outer = box.axes.empty() ? nullptr : &box.axes.back();
    if (outer != nullptr && outer->file_stride == axis.count * axis.file_stride &&
        outer->out_stride == axis.count * axis.out_stride) {
      *outer = {outer->count * axis.count, axis.file_stride, axis.out_stride};
    } else {
      box.axes.push_back(axis);
    }
  }
  return box;
}

// Copies elements of kItem bytes (0: of item bytes) from a copy of the file's part to the box.
template <std::size_t kItem>
void scatter(const std::byte* source, std::byte* out, std::span<const BoxAxis> axes,
             std::size_t item) {
  const auto bytes = static_cast<std::int64_t>(kItem == 0 ? item : kItem);
  if (axes.size() > 2) {
    const BoxAxis& outer = axes[0];
    for (std::int64_t i = 0; i < outer.count; ++i) {
      scatter<kItem>(source + i * outer.file_stride * bytes, out + i * outer.out_stride * bytes,
                     axes.subspan(1), item);
    }
    return;
  }
  const BoxAxis outer = axes.size() == 2 ? axes[0] : BoxAxis{1, 0, 0};
  const BoxAxis inner = axes.empty() ? BoxAxis{1, 1, 1} : axes.back();
  const bool run = inner.file_stride == 1 && inner.out_stride == 1;
  for (std::int64_t i = 0; i < outer.count; ++i) {
    const std::byte* const from = source + i * outer.file_stride * bytes;
    std::byte* const to = out + i * outer.out_stride * bytes;
    if (run) {
      std::memcpy(to, from, static_cast<std::size_t>(inner.count * bytes));
      continue;
    }
    for (std::int64_t j = 0; j < inner.count; ++j) {
      std::memcpy(to + j * inner.out_stride * bytes, from + j * inner.file_stride * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
}

// The axis that is innermost in the box becomes the inner loop: writes then fill whole cache lines,
// and the lines read stay in the cache for the next element.
void scatter(const std::byte* source, std::byte* out, std::vector<BoxAxis> axes, std::size_t item) {
  const auto innermost = std::ranges::min_element(axes, {}, &BoxAxis::out_stride);
  if (innermost != axes.end()) std::rotate(innermost, innermost + 1, axes.end());
  switch (item) {
    case 2:
      return scatter<2>(source, out, axes, item);
    case 4:
      return scatter<4>(source, out, axes, item);
    case 8:
      return scatter<8>(source, out, axes, item);
    default:
      return scatter<0>(source, out, axes, item);
  }
}

// Returns the unit in which the bytes of an element are swapped, 1 where there is nothing to swap.
std::size_t swap_unit(const NpyHeader& header) {
  if (header.big_endian == (std::endian::native == std::endian::big)) return 1;
  const auto item = static_cast<std::size_t>(header.item_bytes);
  if (header.kind == 'V') return item == 2 ? 2 : 1;  // bfloat16; other raw bytes have no order
  return header.kind == 'S' ? 1 : item;
}

// A loop of these becomes vectors, one of std::reverse does not: reading would take half again.
template <typename Unsigned, typename Swap>
void swap_each(std::byte* bytes, std::size_t count, Swap swap) {
  for (std::size_t i = 0; i < count; i += sizeof(Unsigned)) {
    Unsigned value;
    std::memcpy(&value, bytes + i, sizeof value);
    value = swap(value);
    std::memcpy(bytes + i, &value, sizeof value);
  }
}

// unit is 2, 4 or 8.
void swap_bytes(std::byte* bytes, std::size_t count, std::size_t unit) {
  switch (unit) {
    case 2:
      return swap_each<std::uint16_t>(bytes, count, [](auto v) { return __builtin_bswap16(v); });
    case 4:
      return swap_each<std::uint32_t>(bytes, count, [](auto v) { return __builtin_bswap32(v); });
    default:
      return swap_each<std::uint64_t>(bytes, count, [](auto v) { return __builtin_bswap64(v); });
  }
}

}  // namespace

struct NpyReader::State {
  std::unique_ptr<ByteSource> source;
  std::int64_t position = 0;  // of a stream: payload bytes taken from it
  MallocBytes held;           // of a stream: the payload from held_from on
  std::int64_t held_from = 0;
  double convert_s = 0;
  NpyHeader header;
  std::optional<DType> given;  // boxes are widened to it
  Change change;               // or none

  explicit State(TensorSource opened) : source(std::move(opened.bytes)) {
    if (opened.header) {
      header = *std::move(opened.header);
      return;
    }
    header = read_npy_header(*source);
    const std::int64_t expected = header.data_offset + header.payload_bytes;
    const std::int64_t bytes = source->size();
    if (bytes == ByteSource::kUnknown || bytes == expected) return;
    source->refuse("has ", bytes, " bytes, but its header announces ", header.data_offset, " + ",
                   header.element_count, " x ", header.item_bytes, " = ", expected, "; it is ",
                   bytes < expected ? "truncated, copy or write it again"
                                    : "followed by other bytes, expected exactly one array");
  }

  // Reads the elements that axes describe, in C order, from payload element first on, of a source
  // that is read in any order.
  void gather(std::span<const BoxAxis> axes, std::int64_t first, std::byte* out) {
    const std::int64_t item = header.item_bytes;
    if (is_run(axes)) {
      const std::int64_t count = (axes.empty() ? 1 : axes[0].count) * item;
      const std::int64_t begin = header.data_offset + first * item;
      const std::int64_t got = source->read(out, count, begin);
      if (got == count) return;
      source->refuse("shrank while it was read: it had ", source->size(), " bytes, now it ends at ",
                     begin + got);
    }
    const BoxAxis axis = axes[0];
    for (std::int64_t i = 0; i < axis.count; ++i) {
      gather(axes.subspan(1), first + i * axis.file_stride, out + i * axis.out_stride * item);
    }
  }

  void read_from_stream(const Box& box, std::byte* out) {
    const std::int64_t item = header.item_bytes;
    if (!held && is_run(box.axes) && box.first * item == position) {
      return take(out, box.count * item);
    }
    if (!held) hold_rest();
    if (box.first * item < held_from) {
      source->refuse("is a stream, and a part that has gone by is needed again",
                     Hint("save it as a .npy file first"));
    }
    convert_s += seconds_of([&] {
      scatter(held.get() + (box.first * item - held_from), out, box.axes,
              static_cast<std::size_t>(item));
    });
  }

  // Reads the rest of a stream into memory. The buffer grows as bytes arrive: a header that lies
  // about a short stream costs nothing.
  void hold_rest() {
    const std::int64_t rest = header.payload_bytes - position;
    std::int64_t filled = 0;
    held_from = position;
    for (std::int64_t size = std::min(rest, kFirstHoldBytes); filled < rest;
         size += std::min(rest - size, size)) {
      void* grown = std::realloc(held.get(), static_cast<std::size_t>(size));
      if (grown == nullptr) {
        throw Error(ErrorKind::runtime, source->name(),
                    ": out of memory: a stream (or deflated member) that is not read in "
                    "order, or in Fortran order, needs ",
                    rest, " bytes", Hint("save it as a .npy file first"));
      }
      static_cast<void>(held.release());
      held.reset(static_cast<std::byte*>(grown));
      take(held.get() + filled, size - filled);
      filled = size;
    }
  }

  // Reads the next count bytes of the payload.
  void take(std::byte* out, std::int64_t count) {
    const std::int64_t got = source->read(out, count, header.data_offset + position);
    position += got;
    if (got == count) return;
    source->refuse("ends after ", position, " of ", header.payload_bytes,
                   " payload bytes; it is truncated");
  }

  // Reads to the end also what nobody asked for: only then is the size known to be right, and a
  // deflated member's checksum compared.
  void finish_stream() {
    const Buffer bytes(kSkippedBytes, "the rest of a stream");
    while (position < header.payload_bytes) {
      take(bytes.data(), std::min(header.payload_bytes - position, kSkippedBytes));
    }
    if (source->read(bytes.data(), 1, header.data_offset + position) == 0) return;
    const bool is_raw = header.format == NpyHeader::Format::raw;
    source->refuse("goes on after the ", header.payload_bytes, " payload bytes that ",
                   is_raw ? "dtype and shape in its name make" : "its header announces",
                   ", expected exactly one array");
  }
};

NpyReader::NpyReader(const std::string& argument) : NpyReader(open_tensor(argument)) {}
NpyReader::NpyReader(TensorSource opened) : state_(std::make_unique<State>(std::move(opened))) {}
NpyReader::~NpyReader() = default;
NpyReader::NpyReader(NpyReader&&) noexcept = default;
NpyReader& NpyReader::operator=(NpyReader&&) noexcept = default;

const std::string& NpyReader::name() const { return state_->source->name(); }
const NpyHeader& NpyReader::header() const { return state_->header; }
bool NpyReader::seekable() const { return state_->source->seekable(); }

// In Fortran order a file is in another one than C's where two axes are longer than 1.
bool NpyReader::needs_whole_payload() const {
  return header().fortran_order && header().element_count > 0 &&
         std::ranges::count_if(header().shape, [](std::int64_t n) { return n > 1; }) > 1;
}

void NpyReader::take_for(DType dtype, std::string_view flag) {
  NpyHeader& header = state_->header;
  const bool unsure = header.kind == 'u' || header.kind == 'i' || header.kind == 'V';
  if (header.item_bytes != dtype_bytes(dtype) ||
      !(unsure || float_dtype(header, name()) == dtype)) {
    state_->source->refuse("dtype '", printable(header.descr), "' cannot be ", dtype_name(dtype),
                           ", as ", flag, " says, expected integers or raw bytes of ",
                           dtype_bytes(dtype), dtype_bytes(dtype) == 1 ? " byte" : " bytes",
                           Hint("leave the flag out"));
  }
  header.dtype = dtype;
}

void NpyReader::widen_to(DType dtype) {
  if (float_dtype(state_->header, name()) != dtype) state_->given = dtype;
}

void NpyReader::change_boxes(Change change) { state_->change = std::move(change); }

void NpyReader::read_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                         void* out) {
  const NpyHeader& header = state_->header;
  bool inside = begin.size() == header.shape.size() && end.size() == header.shape.size();
  for (std::size_t i = 0; inside && i < begin.size(); ++i) {
    inside = 0 <= begin[i] && begin[i] <= end[i] && end[i] <= header.shape[i];
  }
  if (!inside) throw Error(ErrorKind::runtime, name(), ": internal error: box outside array");
  if (header.payload_bytes == 0) return;
  const Box box = make_box(header, begin, end);
  if (box.count == 0) return;
  const std::optional<DType> given = state_->given;
  const std::int64_t wider = given ? dtype_bytes(*given) - header.item_bytes : 0;
  auto* const whole = static_cast<std::byte*>(out);
  std::byte* const bytes = whole + box.count * wider;
  // Elements are read into the end of the box's memory, from where they are widened in place.
  if (seekable() && !needs_whole_payload()) {
    state_->gather(box.axes, box.first, bytes);
  } else {
    if (seekable() && !state_->held) state_->hold_rest();
    state_->read_from_stream(box, bytes);
  }
  const std::size_t unit = swap_unit(header);
  if (unit == 1 && wider == 0 && !state_->change) return;
  state_->convert_s += seconds_of([&] {
    const auto count = static_cast<std::size_t>(box.count * header.item_bytes);
    if (unit > 1) swap_bytes(bytes, count, unit);
    if (given) widen_in_place(float_dtype(header, name()), *given, box.count, whole);
    if (state_->change) state_->change(begin, end, out);
  });
}

double NpyReader::convert_seconds() const { return state_->convert_s; }

void NpyReader::hold() {
  if (!seekable() && !state_->held) state_->hold_rest();
}

void NpyReader::finish() {
  if (!seekable()) state_->finish_stream();
  state_->source->finish();
}

void NpyReader::read_all(void* out) {
  read_box(std::vector<std::int64_t>(header().shape.size(), 0), header().shape, out);
  finish();
}

std::vector<std::int64_t> read_npy_integers(const std::string& path) {
  constexpr std::int64_t kMaxCount = 16;
  NpyReader reader(path);
  const NpyHeader& header = reader.header();
  const bool integer = header.kind == 'i' || header.kind == 'u';
  if (!integer || header.shape.size() != 1 || header.element_count > kMaxCount) {
    bad_input(reader.name(), ": is an array of rank ", header.shape.size(), ", ",
              header.element_count, " elements and dtype '", header.descr,
              "', expected a 1-D integer array of at most ", kMaxCount, " entries");
  }
  std::vector<std::int64_t> values;
  with_integer(header, [&]<typename Integer>(Integer) {
    std::vector<Integer> read(static_cast<std::size_t>(header.element_count));
    reader.read_all(read.data());
    for (const Integer value : read) {
      if (!std::in_range<std::int64_t>(value)) {
        bad_input(reader.name(), ": has ", value, ", expected at most 2^63 - 1");
      }
      values.push_back(static_cast<std::int64_t>(value));
    }
  });
  return values;
}

}  // namespace convgrad
