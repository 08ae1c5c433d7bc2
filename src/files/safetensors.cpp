#include "files/safetensors.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

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
const Dtype* find_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kDtypes, name, &Dtype::name);
  return found == std::end(kDtypes) ? nullptr : found;
}

constexpr std::int64_t kSafetensorsLengthBytes = 8;
// Longer headers are refused, as the format's own library does.
constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 64;  // .npy has the same

template <typename... Parts>
[[noreturn]] void refuse_header(std::string_view name, const Parts&... parts) {
  bad_input(name, ": damaged header: ", parts...);
}

// Returns whole numbers up to 2^63 - 1, and none of anything else.
std::optional<std::vector<std::int64_t>> numbers_of(const Json& list) {
  if (!list.is_array() || list.size() > kMaxRank) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Json& number : list) {
    const bool fits =
        number.is_number_unsigned() && std::in_range<std::int64_t>(number.get<std::uint64_t>());
    if (!fits) return std::nullopt;
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

// Other keys of a tensor may hold anything.
SafeTensor tensor_of(const std::string& key, const Json& json, std::string_view name) {
  try {
    const Json& dtype = json.at("dtype");
    const auto shape = numbers_of(json.at("shape")), offsets = numbers_of(json.at("data_offsets"));
    if (dtype.is_string() && shape && offsets && offsets->size() == 2 &&
        offsets->front() <= offsets->back()) {
      return {key, dtype.get<std::string>(), *shape, offsets->front(), offsets->back()};
    }
  } catch (const Json::exception&) {  // no object, or one that lacks a key
  }
  refuse_header(name, "tensor '", printable(key), "' is ", printable(json.dump()),
                ", expected its dtype, shape and data_offsets");
}

// Elements times bytes each must be the payload, where the dtype is known.
void check_size(const SafeTensor& tensor, std::string_view name) {
  const Dtype* const dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) return;
  const auto count = checked_product(tensor.shape);
  const auto bytes = count ? checked_multiply(*count, dtype->bytes) : count;
  if (bytes && *bytes == tensor.end - tensor.begin) return;
  refuse_header(name, "shape and dtype of tensor '", printable(tensor.name), "' need ",
                bytes ? cat(*bytes) : "more than 2^63 - 1", " bytes, but data_offsets give it ",
                tensor.end - tensor.begin);
}

// The payloads must lie side by side from the end of the header to the end of the file.
void check_offsets(const std::vector<SafeTensor>& tensors, std::int64_t payload_bytes,
                   std::string_view name) {
  std::vector<const SafeTensor*> sorted;
  for (const SafeTensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, [](const SafeTensor* t) { return std::pair(t->begin, t->end); });
  std::int64_t end = 0;
  for (const SafeTensor* tensor : sorted) {
    const std::string what = cat("tensor '", printable(tensor->name), "' lies at bytes ",
                                 tensor->begin, " to ", tensor->end);
    if (tensor->end > payload_bytes) {
      refuse_header(name, what, " of ", payload_bytes,
                    "; the file is truncated, copy or write it again");
    }
    if (tensor->begin != end) {
      refuse_header(name, what, tensor->begin < end ? ", over another one" : ", after a hole",
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
  std::vector<SafeTensor> tensors;
  // They are taken one by one: a document of all would be many times as large.
  const auto take = [&](const std::string& key, std::int64_t, const Json& value) {
    if (key != "__metadata__") tensors.push_back(tensor_of(key, value, name));
  };
  try {
    const Json outside = read_json(std::string(json), take);
    if (!outside.is_object()) refuse_header(name, "it is no object of tensors");
  } catch (const JsonError& error) {
    if (error.fault == JsonError::Fault::key_twice) {
      refuse_header(name, "'", printable(error.key), "' comes twice");
    }
    refuse_header(name, "no JSON at byte ", error.byte,
                  ", expected what safetensors' save_file writes");
  }
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
    throw NotNumbers(ErrorKind::input, name, ": dtype '", printable(tensor.dtype),
                     "' is not read, expected F16, BF16, F32, F64 or an F8 of E4M3 or E5M2");
  }
  NpyHeader header;
  header.format = NpyHeader::Format::safetensors;
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
