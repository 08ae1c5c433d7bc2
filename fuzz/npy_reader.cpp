// npy_reader.cpp - boxes of arrays of any shape, order and element, from files and from pipes,
// against the same boxes picked element by element.
#include <fcntl.h>

#include <vector>

#include "convgrad/npy.hpp"
#include "fuzz.hpp"
#include "memory_file.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;

namespace {

using Extents = std::vector<std::int64_t>;

struct Array {
  Extents shape;
  std::string descr, payload;
  std::int64_t item = 4;
  bool fortran = false, swapped = false;

  std::int64_t count() const {
    std::int64_t result = 1;
    for (const std::int64_t extent : shape) result *= extent;
    return result;
  }
  // Where an element is in the file, in elements.
  std::int64_t position(const Extents& at) const {
    std::int64_t result = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::size_t axis = fortran ? shape.size() - 1 - i : i;
      result = result * shape[axis] + at[axis];
    }
    return result;
  }
  std::string element(const Extents& at) const {
    std::string bytes(payload, static_cast<std::size_t>(position(at) * item),
                      static_cast<std::size_t>(item));
    if (swapped) std::reverse(bytes.begin(), bytes.end());
    return bytes;
  }
};

Array choose_array(Choices& choices) {
  struct Type {
    const char* descr;
    std::int64_t bytes;
    bool big;
  };
  static constexpr std::array<Type, 9> kTypes = {{{"<f4", 4, false},
                                                  {">f4", 4, true},
                                                  {"<f2", 2, false},
                                                  {">f8", 8, true},
                                                  {"<f8", 8, false},
                                                  {">V2", 2, true},
                                                  {"|V2", 2, false},
                                                  {"|u1", 1, false},
                                                  {">i8", 8, true}}};
  Array array;
  const Type& type = choices.of(kTypes);
  array.descr = type.descr;
  array.item = type.bytes;
  array.swapped = type.big;
  array.fortran = choices.one_in(2);
  for (std::int64_t rank = choices.between(0, 5); rank > 0; --rank) {
    array.shape.push_back(choices.between(0, choices.one_in(8) ? 70 : 5));
    if (array.count() > 20'000) array.shape.back() = 1;
  }
  // Every element says where it is: its number, and the fuzzer's bytes behind that.
  array.payload.resize(static_cast<std::size_t>(array.count() * array.item));
  for (std::size_t i = 0; i < array.payload.size(); ++i) {
    const auto item = static_cast<std::size_t>(array.item);
    array.payload[i] = static_cast<char>((i / item) >> (8 * (i % item % 4)));
  }
  return array;
}

std::string file_of(const Array& array, Choices& choices) {
  std::string shape = "(";
  for (const std::int64_t extent : array.shape) shape += cat(extent, ",");
  const std::string dict = cat(
      "{'descr':'", array.descr, "','fortran_order':", array.fortran ? "True" : "False",
      ",'shape':", shape, ")}", std::string(static_cast<std::size_t>(choices.byte() % 70), ' '));
  const bool old = choices.one_in(2);
  std::string text = "\x93NUMPY";
  text += {static_cast<char>(old ? 1 : 2), '\0'};
  for (int i = 0; i < (old ? 2 : 4); ++i) text += static_cast<char>(dict.size() >> (8 * i) & 0xff);
  return text + dict + array.payload;
}

void check_box(NpyReader& reader, const Array& array, const Extents& begin, const Extents& end) {
  std::string want;
  bool empty = false;
  for (std::size_t i = 0; i < begin.size(); ++i) empty = empty || begin[i] == end[i];
  for (Extents at = begin; !empty;) {
    want += array.element(at);
    std::size_t axis = at.size();
    while (axis > 0 && ++at[axis - 1] == end[axis - 1]) {
      at[axis - 1] = begin[axis - 1];
      --axis;
    }
    if (axis == 0) break;
  }
  std::vector<char> got(want.size());  // exactly as large: the sanitizer sees a byte too many
  reader.read_box(begin, end, got.data());
  require(std::string_view(got.data(), got.size()) == want, "a box", array.descr);
}

// Any boxes from a file; from a pipe, leading parts that follow each other.
void check_boxes(const std::string& argument, const Array& array, Choices& choices) {
  NpyReader reader(argument);
  require(reader.header().shape == array.shape, "the shape");
  const bool any = reader.seekable();
  if (choices.one_in(4)) reader.hold();
  std::int64_t first = 0;
  for (std::int64_t boxes = choices.between(1, 6); boxes > 0; --boxes) {
    Extents begin(array.shape.size(), 0), end = array.shape;
    for (std::size_t i = 0; i < end.size(); ++i) {
      if (i > 0 && !any) break;
      begin[i] = any ? choices.between(0, end[i]) : first;
      end[i] = choices.between(begin[i], end[i]);
      if (i == 0) first = end[i];
    }
    if (!any && array.shape.empty() && boxes > 1) continue;
    check_box(reader, array, begin, end);
  }
  reader.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  Choices choices(data, size);
  const bool piped = choices.one_in(2);
  const Array array = choose_array(choices);
  std::string text = file_of(array, choices);
  const std::int64_t wrong = choices.between(0, 15);  // mostly right
  if (wrong == 15) text += 'x';
  if (wrong == 14) text.pop_back();
  const auto check = [&](const std::string& argument) {
    const bool failed = refused(static_cast<int>(ErrorKind::input), argument,
                                [&] { check_boxes(argument, array, choices); });
    require(failed == (wrong >= 14), "whether a file is refused");
  };
  if (!piped || text.size() > 60'000) {
    file.set(text);
    check(file.path());
    return 0;
  }
  std::array<int, 2> ends{};
  require(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe2");
  require(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()), "write");
  ::close(ends[1]);
  check(cat("/proc/self/fd/", ends[0]));
  ::close(ends[0]);
  return 0;
}
