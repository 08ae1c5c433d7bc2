#include "files/safetensors.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "files/json.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

struct Dtype {
  std::string_view name;
  std::int64_t bytes;
  char kind;  // as in NpyHeader
  std::optional<DType> dtype = {};
};
constexpr Dtype kDtypes[] = {
    {"F16", 2, 'f', DType::f16},
    {"BF16", 2, 'V', DType::bf16},
    {"F32", 4, 'f', DType::f32},
    {"F64", 8, 'f', DType::f64},
    {"BOOL", 1, 'b'},
    {"I8", 1, 'i'},
    {"U8", 1, 'u'},
    {"I16", 2, 'i'},
    {"U16", 2, 'u'},
    {"I32", 4, 'i'},
    {"U32", 4, 'u'},
    {"I64", 8, 'i'},
    {"U64", 8, 'u'},
    {"C64", 8, 'c'},
    {"F8_E4M3", 1, 'f', DType::e4m3fn},
    {"F8_E5M2", 1, 'f', DType::e5m2},
    {"F8_E4M3FNUZ", 1, 'f', DType::e4m3fnuz},
    {"F8_E5M2FNUZ", 1, 'f', DType::e5m2fnuz},
};
// These are in the format too, and are named.
constexpr std::pair<std::string_view, std::string_view> kOtherDtypes[] = {
    {"F8_E8M0", "8-bit powers of two, the scales of blocks"},
    {"F4", "4-bit floats"},
    {"F6_E2M3", "6-bit floats"},
    {"F6_E3M2", "6-bit floats"}};
std::string_view words_of_other(std::string_view dtype) {
  for (const auto& [name, words] : kOtherDtypes) {
    if (name == dtype) return words;
  }
  return "unknown";
}
const Dtype* find_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kDtypes, name, &Dtype::name);
  return found == std::end(kDtypes) ? nullptr : found;
}

constexpr std::int64_t kSafetensorsLengthBytes = 8;
// Longer headers are refused, as the format's own library does.
constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 64;  // .npy has the same

// Takes the tensors out of a header, one by one: a document of all would be many times as large.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view name) : name_(name) {}

  std::vector<SafeTensor> read(std::string_view json) {
    try {
      const Json outside = read_json(
          std::string(json), [this](const std::string& key, std::int64_t, const Json& value) {
            key == "__metadata__" ? check_metadata(value) : add_tensor(key, value);
          });
      if (!outside.is_object()) {
        refuse("it is ", kind_of(outside), ", expected an object of tensors");
      }
    } catch (const JsonError& error) {
      refuse_json(error);
    }
    return std::move(tensors_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    bad_input(name_, ": damaged header: ", parts...);
  }

  [[noreturn]] void refuse_json(const JsonError& error) const {
    using enum JsonError::Fault;
    if (error.fault == too_deep) refuse("nested too deeply at byte ", error.byte);
    if (error.fault == too_many) refuse("too many values at byte ", error.byte);
    if (error.fault != key_twice) {
      refuse("no JSON at byte ", error.byte, ", expected what safetensors' save_file writes");
    }
    const std::string key = cat("'", printable(error.keys.back()), "'");
    if (error.keys.size() == 1) refuse("the name ", key, " comes twice");
    refuse(key, " of tensor '", printable(error.keys.front()), "' comes twice");
  }

  static std::string_view kind_of(const Json& value) {
    switch (value.type()) {
      case Json::value_t::null:
        return "null";
      case Json::value_t::boolean:
        return "a boolean";
      case Json::value_t::string:
        return "a string";
      case Json::value_t::array:
        return "a list";
      case Json::value_t::object:
        return "an object";
      case Json::value_t::number_integer:
        return "a negative number";
      case Json::value_t::number_float:
        return "a fraction or too large";
      default:
        return "a number";
    }
  }

  // It holds strings alone; nothing here uses them.
  void check_metadata(const Json& metadata) const {
    if (metadata.is_null()) return;
    if (!metadata.is_object()) refuse("__metadata__ is ", kind_of(metadata));
    for (const auto& [key, value] : metadata.items()) {
      if (!value.is_string()) {
        refuse("'", printable(key), "' of __metadata__ is ", kind_of(value));
      }
    }
  }

  // Other keys of a tensor may hold anything.
  void add_tensor(const std::string& name, const Json& json) {
    const std::string quoted = cat("'", printable(name), "'");
    if (!json.is_object()) refuse(quoted, " is ", kind_of(json));
    SafeTensor tensor{name, {}, {}};
    int found = 0;
    for (const auto& [key, value] : json.items()) {
      const std::string where = cat("'", key, "' of tensor ", quoted);
      if (key == "dtype") {
        if (!value.is_string()) refuse(where, " is ", kind_of(value));
        tensor.dtype = value.get<std::string>();
      } else if (key == "shape") {
        tensor.shape = numbers_of(value, where);
      } else if (key == "data_offsets") {
        const std::vector<std::int64_t> offsets = numbers_of(value, where);
        if (offsets.size() != 2 || offsets[0] > offsets[1]) {
          refuse(where, ": expected its begin and its end");
        }
        tensor.begin = offsets[0];
        tensor.end = offsets[1];
      } else {
        continue;
      }
      ++found;
    }
    if (found < 3) refuse("tensor ", quoted, " lacks some of dtype, shape and data_offsets");
    tensors_.push_back(std::move(tensor));
  }

  std::vector<std::int64_t> numbers_of(const Json& list, const std::string& where) const {
    if (!list.is_array()) refuse(where, " is ", kind_of(list));
    if (list.size() > kMaxRank) refuse(where, " has more than ", kMaxRank, " entries");
    std::vector<std::int64_t> numbers;
    for (const Json& number : list) {
      if (!number.is_number_unsigned()) refuse(where, " is ", kind_of(number));
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (number.get<std::uint64_t>() > kMost) {
        refuse(where, " holds ", number, ", expected at most 2^63 - 1");
      }
      numbers.push_back(number.get<std::int64_t>());
    }
    return numbers;
  }

  std::string_view name_;
  std::vector<SafeTensor> tensors_;
};

// Elements times bytes each must be the payload, where the dtype is known.
void check_size(const SafeTensor& tensor, std::string_view name) {
  const Dtype* const dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) return;
  const auto count = checked_product(tensor.shape);
  const auto bytes = count ? checked_multiply(*count, dtype->bytes) : count;
  if (bytes && *bytes == tensor.end - tensor.begin) return;
  bad_input(name, ": damaged header: shape and dtype of tensor '", printable(tensor.name),
            "' need ", bytes ? cat(*bytes) : "more than 2^63 - 1",
            " bytes, but data_offsets give it ", tensor.end - tensor.begin);
}

// The payloads must lie side by side from the end of the header to the end of the file.
void check_offsets(const std::vector<SafeTensor>& tensors, std::int64_t payload_bytes,
                   std::string_view name) {
  std::vector<const SafeTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const SafeTensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, [](const SafeTensor* t) { return std::pair(t->begin, t->end); });
  std::int64_t end = 0;
  for (const SafeTensor* tensor : sorted) {
    const std::string what = cat(name, ": damaged header: tensor '", printable(tensor->name),
                                 "' lies at bytes ", tensor->begin, " to ", tensor->end);
    if (tensor->end > payload_bytes) {
      bad_input(what, " of ", payload_bytes, "; the file is truncated, copy or write it again");
    }
    if (tensor->begin != end) {
      bad_input(what, tensor->begin < end ? ", over another one" : ", after a hole",
                "; expected it to begin at ", end);
    }
    end = tensor->end;
  }
  if (end == payload_bytes) return;
  bad_input(name, ": has ", payload_bytes, " bytes after its header, but its tensors end at ", end,
            "; it is followed by other bytes");
}

// Returns the header's length, or one more than the most if it is longer.
std::int64_t header_bytes(std::span<const std::byte> start) {
  constexpr std::uint64_t kMost = kMaxSafetensorsHeaderBytes;
  return static_cast<std::int64_t>(
      std::min(little_endian(start.first<kSafetensorsLengthBytes>()), kMost + 1));
}

}  // namespace

std::vector<SafeTensor> parse_safetensors_header(std::string_view json, std::int64_t payload_bytes,
                                                 std::string_view name) {
  std::vector<SafeTensor> tensors = HeaderReader(name).read(json);
  for (const SafeTensor& tensor : tensors) check_size(tensor, name);
  check_offsets(tensors, payload_bytes, name);
  return tensors;
}

bool looks_like_safetensors(std::span<const std::byte> start, std::int64_t file_bytes) {
  if (start.size() < 9 || start[8] != std::byte{'{'}) return false;
  return header_bytes(start) <=
         std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsLengthBytes);
}

Safetensors read_safetensors(FileSource& file) {
  std::byte start[kSafetensorsLengthBytes];
  const std::int64_t got = file.read(start, kSafetensorsLengthBytes, 0);
  if (got < kSafetensorsLengthBytes) {
    file.refuse("ends after ", got, " bytes, expected a .safetensors file; it is truncated");
  }
  const std::int64_t length = header_bytes(start);
  if (length > kMaxSafetensorsHeaderBytes) {
    file.refuse("has a header of more than ", kMaxSafetensorsHeaderBytes,
                " bytes, expected a .safetensors file; it is damaged");
  }
  const std::int64_t offset = kSafetensorsLengthBytes + length;
  if (offset > file.size()) {
    file.refuse("has ", file.size(), " bytes, but its header needs ", offset,
                "; it is truncated, copy or write it again");
  }
  std::string json(static_cast<std::size_t>(length), '\0');
  auto* const bytes = reinterpret_cast<std::byte*>(json.data());
  if (file.read(bytes, length, kSafetensorsLengthBytes) != length) {
    file.refuse("shrank while its header was read");
  }
  if (!json.starts_with('{')) file.refuse("damaged header: it does not begin with '{'");
  return {parse_safetensors_header(json, file.size() - offset, file.name()), offset};
}

std::string_view safetensors_dtype(DType dtype) {
  return std::ranges::find(kDtypes, dtype, &Dtype::dtype)->name;
}

NpyHeader npy_header_of(const SafeTensor& tensor, std::int64_t data_offset, std::string_view name) {
  const Dtype* const dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) {
    throw NotNumbers(ErrorKind::input, name, ": dtype '", printable(tensor.dtype), "' is ",
                     words_of_other(tensor.dtype), ", expected F16, BF16, F32, F64 or an F8 of ",
                     "E4M3 or E5M2");
  }
  NpyHeader header;
  header.major = header.minor = 0;
  header.descr = tensor.dtype;
  header.kind = dtype->kind;
  header.item_bytes = dtype->bytes;
  header.dtype = dtype->dtype;
  header.shape = tensor.shape;
  header.data_offset = data_offset + tensor.begin;
  header.payload_bytes = tensor.end - tensor.begin;
  header.element_count = header.payload_bytes / dtype->bytes;
  return header;
}

}  // namespace convgrad
