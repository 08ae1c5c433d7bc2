// npy_header.cpp - reads and writes the header of a .npy file: magic, version, length, dictionary.
// That of a raw file is made from the dtype and the shape in its name.

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "convgrad/npy.hpp"
#include "files/array.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kVersionBytes = 8;  // magic, major, minor

unsigned byte_at(std::span<const std::byte> bytes, std::size_t index) {
  return std::to_integer<unsigned>(bytes[index]);
}

constexpr std::string_view kConverted =
    "a .npy file that was converted as text (copy it as binary; *.npy binary in .gitattributes)";

constexpr std::string_view kPowerShell =
    "text in UTF-16, as > writes it in Windows PowerShell (have the file written by its program)";

// These are other formats, and what stands in for an array that was not fetched.
constexpr std::pair<std::string_view, std::string_view> kStarts[] = {
    {"PK\x03\x04", "a zip archive (save it to a file and name one of its arrays, FILE.npz:NAME)"},
    {"\x1f\x8b", "compressed with gzip (pipe it through gunzip)"},
    {"\x28\xb5\x2f\xfd", "compressed with zstd (pipe it through zstdcat)"},
    {"\xfd\x37zXZ", "compressed with xz (pipe it through xzcat)"},
    {"BZh", "compressed with bzip2 (pipe it through bzcat)"},
    {"version ", "a Git LFS pointer (fetch the file with git lfs pull)"},
    {"/annex/o", "a git-annex pointer (fetch the file with git annex get)"},
    {"<", "HTML or XML, such as a page in place of a download (fetch the file again)"},
    {"{\"", "JSON, such as an error in place of a download (fetch the file again)"},
    {"\xc2\x93NUMPY", kConverted},
    {"\xef\xbf\xbdNUMP", kConverted},  // what is no UTF-8 was replaced
    {"\xff\xfe", kPowerShell},
    {"\xfe\xff", kPowerShell},
    {"k05VTVBZ", "a .npy file in base64 (pipe it through base64 -d)"},
    {"\x89HDF", "an HDF5 file (save the data set with numpy.save)"},
    {"\x80\x02\x8a\x0al\xfc", kTorchFile},  // a pickle of its magic number comes first
    {"\x80", "a Python pickle (save the array with numpy.save)"},
};

constexpr std::pair<char, std::string_view> kKinds[] = {
    {'f', "float"},
    {'i', "int"},
    {'u', "uint"},
    {'c', "complex"},
    {'b', "bool"},
    {'V', "raw bytes (void)"},
    {'S', "strings"},
    {'U', "strings"},
    {'M', "dates (datetime64)"},
    {'m', "time differences (timedelta64)"},
    {'O', "Python objects (pickled objects are never loaded)"},
};

bool is_one_of(std::string_view letters, char c) { return letters.find(c) != letters.npos; }

std::string description(const NpyHeader& header) {
  for (const auto& [kind, words] : kKinds) {
    if (kind != header.kind) continue;
    if (is_one_of("fiuc", kind)) return cat(words, header.item_bytes * 8);
    if (kind == 'V') return cat(words, ", ", header.item_bytes, " per element");
    return std::string(words);
  }
  return "a structured type";
}

// Without a flag it advises what every command takes.
std::string advice(const NpyHeader& header, std::string_view flag) {
  if (is_one_of("iu", header.kind) && header.item_bytes == 2) {
    return cat("convert with x.astype('float32'); if it is bfloat16, ",
               flag.empty() ? "save x.view('V2')" : "say so with ", flag);
  }
  if (is_one_of("iuV", header.kind) && header.item_bytes == 1) {
    const std::string other = "convert with x.view(ml_dtypes.float8_e4m3fn).astype('float32')";
    return cat(header.kind != 'V' ? "convert integers with x.astype('float32'); " : "",
               "if these are 8-bit floats, ",
               flag.empty() ? other : cat("say which with ", flag, ", such as float8_e4m3fn"));
  }
  if (header.kind == 'c') return "save x.real or x.imag";
  if (header.kind == 'R') return "save one field, x['name']";
  if (header.kind == 'V') return "bfloat16 is saved as '<V2'";
  if (header.kind == 'O') return "save a dict's arrays as numpy.savez(file, **x)";
  return "convert with x.astype('float32')";
}

// Says what the elements are, and what to do with such a file. flag is float_dtype()'s.
[[noreturn]] void refuse_dtype(const NpyHeader& header, std::string_view name,
                               std::string_view flag = {}) {
  throw NotNumbers(ErrorKind::input, name, ": dtype '", printable(header.descr), "' is ",
                   description(header), ", expected float16, bfloat16, float32, float64 or an ",
                   "8-bit float (", advice(header, flag), ")");
}

void set_float(NpyHeader& header, DType dtype) {
  header.dtype = dtype;
  header.kind = dtype == DType::bf16 ? 'V' : 'f';
  header.item_bytes = dtype_bytes(dtype);
}

// Begins the names of ml_dtypes' other types, whose elements take a byte each.
constexpr std::string_view kOtherNames[] = {"float8_", "float6_", "float4_", "int4",
                                            "int2",    "uint4",   "uint2"};

// Sets kind, item_bytes and big_endian from descr, which of ml_dtypes' types may be the name.
void parse_dtype(NpyHeader& header, std::string_view name) {
  const auto* const named = std::ranges::find(kStoredDTypes, header.descr, dtype_name);
  if (named != std::end(kStoredDTypes)) return set_float(header, *named);
  std::string_view text = header.descr;
  for (const std::string_view start : kOtherNames) {
    if (text.starts_with(start)) text = "V1";
  }
  header.big_endian = text.starts_with('>');
  if (text.find_first_of("<>|=") == 0) text.remove_prefix(1);
  if (text == "e") text = "f2";  // numpy's letters of float16, float32 and float64
  if (text == "f") text = "f4";
  if (text == "d") text = "f8";
  header.kind = text.empty() ? '\0' : text[0];
  const std::string_view size = text.substr(text.empty() ? 0 : 1);
  const char* const end = size.data() + size.size();
  unsigned bytes = 0;  // stays 0 for more than it holds, which no writer has
  const bool has_size = std::from_chars(size.data(), end, bytes).ptr == end && bytes > 0;
  header.item_bytes = bytes;
  const bool is_read = header.kind == 'S' || (header.kind == 'b' && bytes == 1) ||
                       (is_one_of("fiuV", header.kind) && bytes <= 8 && std::has_single_bit(bytes));
  if (has_size && is_read) return;  // files of parts have a text, S
  if (is_one_of(has_size ? "fiucVUMmO" : "MmO", header.kind)) refuse_dtype(header, name);
  bad_input(name, ": damaged header: descr is '", printable(header.descr),
            "', which is no dtype, expected one such as '<f4'");
}

constexpr std::size_t kMaxAxes = 64;  // numpy 2's limit
constexpr std::string_view kTuple = "a tuple such as (3,) or (2, 3)";

// Reads the dictionary as programs write it. What Python would also take for it (escapes, comments,
// hexadecimal numbers, sums of strings) is refused.
class DictParser {
 public:
  DictParser(std::string_view text, NpyHeader& header, std::string_view name)
      : text_(text), header_(header), name_(name) {}

  void parse() {
    if (!accept("{")) fail("'{'");
    while (!accept("}")) {
      read_entry();
      if (!accept(",") && !next_is("}")) fail("',' or '}'");
    }
    // numpy pads the dictionary with spaces and a newline, which this skips.
    next_is("");
    if (!rest().empty()) fail("nothing after the dictionary");
    for (const std::string_view key : {"descr", "fortran_order", "shape"}) {
      if (!seen_.contains(key)) refuse_key("no key", key);
    }
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  [[noreturn]] void fail(std::string_view expected) const {
    std::string found = "it ends too early";
    if (!rest().empty()) found = cat("found \"", printable(rest(), 30), "\"");
    bad_input(name_, ": damaged header: ", found, " at character ", at_, ", expected ", expected);
  }

  [[noreturn]] void refuse_key(std::string_view what, std::string_view key) const {
    bad_input(name_, ": damaged header: ", what, " '", printable(key),
              "', expected the keys descr, fortran_order and shape");
  }

  bool next_is(std::string_view word) {
    at_ = std::min(text_.find_first_not_of(" \t\n\r\f", at_), text_.size());
    return rest().starts_with(word);
  }

  bool accept(std::string_view word) {
    const bool found = next_is(word);
    if (found) at_ += word.size();
    return found;
  }

  void read_entry() {
    const std::string_view key = string();
    if (!seen_.insert(key).second) refuse_key("two keys", key);
    if (!accept(":")) fail("':'");
    if (key == "descr") {
      // A structured dtype is a list in Python; R stands for it here.
      header_.kind = next_is("[") ? 'R' : 'f';
      header_.descr = header_.kind == 'R' ? rest() : string();
      if (header_.kind == 'R') refuse_dtype(header_, name_);
    } else if (key == "fortran_order") {
      header_.fortran_order = accept("True");
      if (!header_.fortran_order && !accept("False")) fail("True or False");
    } else if (key == "shape") {
      read_shape();
    } else {
      refuse_key("unknown key", key);
    }
  }

  std::string_view string() {
    const bool quoted = next_is("'") || next_is("\"");
    const std::size_t end = quoted ? text_.find(text_[at_], at_ + 1) : text_.npos;
    if (end == text_.npos) fail("a string in quotes");
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }

  void read_shape() {
    if (!accept("(")) fail(kTuple);
    while (!accept(")")) {
      if (header_.shape.size() == kMaxAxes) fail(cat("at most ", kMaxAxes, " axes"));
      header_.shape.push_back(extent());
      // (3) is a number in Python, so one axis needs its comma.
      if (!accept(",") && (header_.shape.size() == 1 || !next_is(")"))) fail(kTuple);
    }
  }

  // Leading zeros make a number octal in Python 2, and none in Python 3. Python 2 writes 2L.
  std::int64_t extent() {
    const char* const begin = rest().data();
    std::int64_t value = -1;
    const char* const end = std::from_chars(begin, begin + rest().size(), value).ptr;
    if (value < 0 || (end > begin + 1 && (*begin == '0' || *begin == '-'))) {
      fail("integers from 0 to 2^63 - 1");
    }
    at_ += static_cast<std::size_t>(end - begin);
    if (header_.major < 3 && rest().starts_with('L')) ++at_;
    return value;
  }

  std::string_view text_;
  NpyHeader& header_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::set<std::string_view> seen_;
};

void check_header_is_there(std::span<const std::byte> bytes, std::int64_t wanted,
                           std::string_view name) {
  if (std::ssize(bytes) >= wanted) return;
  bad_input(name, ": ends after ", bytes.size(), " bytes, within the .npy header; it is truncated");
}

// Finds from the first kVersionBytes where the dictionary starts: 10 (format 1.0) or 12 (2.0, 3.0).
std::int64_t dictionary_offset(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.empty()) bad_input(name, ": is empty, expected a .npy file");
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view magic = start.substr(0, kMagic.size());
  if (!kMagic.starts_with(magic)) {
    refuse_other_format(start, name);
    bad_input(name, ": starts with \"", printable(magic),
              "\", so it is not a .npy file (expected one from ",
              "numpy.save; for elements alone add dtype and shape, FILE:float32[8,56,56,64])");
  }
  check_header_is_there(bytes, kVersionBytes, name);
  const unsigned major = byte_at(bytes, 6);
  const unsigned minor = byte_at(bytes, 7);
  if (major < 1 || major > 3 || minor != 0) {
    bad_input(name, ": is .npy format ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  }
  return major == 1 ? 10 : 12;
}

// Finds from the first dictionary_offset() bytes where the dictionary ends and the payload starts.
std::int64_t payload_offset(std::span<const std::byte> bytes, std::string_view name) {
  const std::int64_t begin = dictionary_offset(bytes, name);
  check_header_is_there(bytes, begin, name);
  const auto length = static_cast<std::int64_t>(
      little_endian(bytes.first(static_cast<std::size_t>(begin)).subspan(kVersionBytes)));
  if (length > kMaxNpyHeaderBytes) {
    bad_input(name, ": has a header of ", length, " bytes, expected at most ", kMaxNpyHeaderBytes,
              "; the file is damaged, or a structured array");
  }
  return begin + length;
}

// Sets element_count and payload_bytes. A zero anywhere makes an empty array, as in numpy.
void count_elements(NpyHeader& header, std::string_view name) {
  const std::optional<std::int64_t> count = checked_product(header.shape);
  const auto bytes = count ? checked_multiply(*count, header.item_bytes) : count;
  if (!bytes || !checked_add(*bytes, header.data_offset)) {
    std::string shape;
    for (const std::int64_t extent : header.shape) shape += cat(shape.empty() ? "" : ", ", extent);
    bad_input(name, ": shape (", printable(shape, 100), ") with ", header.item_bytes,
              " bytes per element is more than 2^63 - 1 bytes",
              Hint(header.format == NpyHeader::Format::raw ? "correct the shape in the name"
                                                           : "the header is damaged"));
  }
  header.element_count = *count;
  header.payload_bytes = *bytes;
}

// Takes numpy's names of integers and booleans too, which can be compared and looked at, but not
// computed with.
void set_dtype(NpyHeader& header, std::string_view name, const std::string& argument) {
  if (const auto dtype = stored_dtype_from_name(name)) return set_float(header, *dtype);
  std::vector<std::string> names = {"float16", "bfloat16", "float32", "float64"};
  const auto takes = [&](const std::string& known, char kind, std::int64_t bytes) {
    names.push_back(known);
    header.kind = kind;
    header.item_bytes = bytes;
    return name == known || name == cat(kind, bytes);
  };
  if (takes("bool", 'b', 1)) return;
  for (const std::int64_t bytes : {1, 2, 4, 8}) {
    if (takes(cat("int", 8 * bytes), 'i', bytes) || takes(cat("uint", 8 * bytes), 'u', bytes))
      return;
  }
  misuse(argument, ": '", name, "' is no dtype, expected FILE:DTYPE[EXTENTS]",
         " such as x.bin:float32[8,56,56,64]", did_you_mean(std::string(name), names));
}

// Reads "8,56,56,64" or "8x56x56x64", with blanks; "" is an array of one element without axes.
std::vector<std::int64_t> extents_of(std::string_view list, const std::string& argument) {
  std::vector<std::int64_t> shape;
  const bool any = list.find_first_not_of(' ') != list.npos;
  for (std::size_t begin = 0; any && begin <= list.size();) {
    const std::size_t comma = std::min(list.find_first_of(",x", begin), list.size());
    std::string_view word = list.substr(begin, comma - begin);
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word = word.substr(0, word.find_last_not_of(' ') + 1);
    const std::optional<std::int64_t> extent = parse_whole(word);
    if (!extent) {
      misuse(argument, ": [", list, "] is no shape, expected whole numbers ",
             "from 0 to 2^63 - 1 with commas between them: [8,56,56,64]");
    }
    shape.push_back(*extent);
    begin = comma + 1;
  }
  return shape;
}

}  // namespace

void refuse_other_format(std::string_view start, std::string_view name) {
  for (const auto& [prefix, what] : kStarts) {
    if (!start.starts_with(prefix)) continue;
    bad_input(name, ": starts with \"", printable(start.substr(0, kMagic.size())), "\", so it is ",
              what);
  }
}

NpyHeader parse_npy_header(std::span<const std::byte> bytes, std::string_view name) {
  NpyHeader header;
  header.data_offset = payload_offset(bytes, name);
  const auto begin = static_cast<std::size_t>(dictionary_offset(bytes, name));
  const auto end = static_cast<std::size_t>(header.data_offset);
  check_header_is_there(bytes, header.data_offset, name);
  if (byte_at(bytes, end - 1) == '\r') {
    bad_input(name, ": has a header that ends with \\r, so it is ", kConverted);
  }
  header.major = static_cast<int>(byte_at(bytes, 6));
  DictParser({reinterpret_cast<const char*>(bytes.data()) + begin, end - begin}, header, name)
      .parse();
  parse_dtype(header, name);
  count_elements(header, name);
  return header;
}

NpyHeader read_npy_header(ByteSource& source) {
  std::vector<std::byte> bytes;
  const auto extend = [&](std::int64_t size) {
    const auto before = bytes.size();
    bytes.resize(static_cast<std::size_t>(size));
    const auto offset = static_cast<std::int64_t>(before);
    const auto got = source.read(bytes.data() + before, size - offset, offset);
    bytes.resize(before + static_cast<std::size_t>(got));
  };
  extend(kVersionBytes);
  extend(dictionary_offset(bytes, source.name()));
  extend(payload_offset(bytes, source.name()));
  return parse_npy_header(bytes, source.name());
}

DType float_dtype(const NpyHeader& header, std::string_view name, std::string_view flag) {
  if (header.dtype) return *header.dtype;
  if (header.kind == 'f' && header.item_bytes == 1) return DType::e5m2;  // ml_dtypes' '<f1'
  if (header.kind == 'V' && header.item_bytes == 2) return DType::bf16;
  if (header.kind == 'f' && header.item_bytes == 2) return DType::f16;
  if (header.kind == 'f' && header.item_bytes == 4) return DType::f32;
  if (header.kind == 'f' && header.item_bytes == 8) return DType::f64;
  refuse_dtype(header, name, flag);
}

std::string format_name(const NpyHeader& header) {
  if (header.format == NpyHeader::Format::safetensors) return "safetensors";
  return header.format == NpyHeader::Format::raw ? "raw" : cat(header.major, ".0");
}

std::string npy_header_text(DType dtype, std::span<const std::int64_t> shape) {
  constexpr std::array<std::string_view, 8> kDescr = {"<f2", "<V2", "<f4", "<f8",
                                                      "|V1", "|V1", "|V1", "|V1"};
  return npy_header_text(kDescr[static_cast<std::size_t>(dtype)], shape);
}

std::string npy_header_text(std::string_view descr, std::span<const std::int64_t> shape) {
  constexpr std::size_t kGrowthDigits = 21;  // room for the first axis to grow, numpy >= 1.23
  constexpr std::size_t kAlignment = 64;
  std::string dict =
      cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape_text(shape), ", }");
  if (!shape.empty()) dict.append(kGrowthDigits - cat(shape[0]).size(), ' ');
  const std::size_t used = kMagic.size() + 4 + dict.size() + 1;  // version, length, newline
  dict.append(kAlignment - used % kAlignment, ' ');
  dict += '\n';
  const std::size_t length = dict.size();
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return text + dict;
}

bool looks_like_raw(std::string_view text) {
  const std::size_t bracket = std::min(text.find_first_of("[("), text.size());
  // A folder's name may have brackets, but a shape has no slash.
  return bracket > 0 && bracket < text.size() &&
         text.back() == (text[bracket] == '[' ? ']' : ')') &&
         text.find_first_of("/])") == text.size() - 1;
}

NpyHeader raw_header(std::string_view text, const std::string& argument) {
  NpyHeader header;
  header.format = NpyHeader::Format::raw;
  const std::size_t bracket = text.find_first_of("[(");
  std::string_view name = text.substr(0, text.find_last_not_of(' ', bracket - 1) + 1);
  header.descr = name;
  header.big_endian = name.starts_with('>');
  if (name.find_first_of("<>|=") == 0) name.remove_prefix(1);
  set_dtype(header, name, argument);
  std::string_view list = text.substr(bracket + 1, text.size() - bracket - 2);
  if (text[bracket] == '(' && list.ends_with(',')) list.remove_suffix(1);  // of Python's (8,)
  header.shape = extents_of(list, argument);
  count_elements(header, argument);
  return header;
}

}  // namespace convgrad
