#include "files/safetensors.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/integers.hpp"
#include "base/messages.hpp"
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

constexpr std::size_t kMaxRank = 64;  // .npy has the same

// Takes the header event by event, as a document of it would hide names that come twice, and be
// many times as large.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view name) : name_(name) {}
  std::vector<SafeTensor> tensors;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    bad_input(name_, ": damaged header: ", parts...);
  }

  bool null() override { return (depth_ == kFile && is_metadata_) || value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_float(double, const std::string&) override {
    return value("a fraction or too large");
  }
  bool number_integer(std::int64_t) override { return value("a negative number"); }
  bool binary(nlohmann::json::binary_t&) override { return value("binary"); }

  bool number_unsigned(std::uint64_t number) override {
    if (depth_ != kList || is_ignored_) return value("a number");
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(where(), " holds ", number, ", expected at most 2^63 - 1");
    }
    numbers_.push_back(static_cast<std::int64_t>(number));
    if (numbers_.size() > kMaxRank) refuse(where(), " has more than ", kMaxRank, " entries");
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == kTensor && is_metadata_) return true;
    if (depth_ != kTensor || key_ != "dtype") return value("a string");
    tensors.back().dtype = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ > kFile) value("an object");
    if (depth_++ <= kFile) seen_.clear();
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == kFile) {
      is_metadata_ = text == "__metadata__";
      if (!is_metadata_) tensors.emplace_back().name = text;
      if (!names_.insert(text).second) refuse("the name '", printable(text), "' comes twice");
    } else if (depth_ == kTensor) {
      key_ = text;
      is_ignored_ = !is_metadata_ && text != "dtype" && text != "shape" && text != "data_offsets";
      if (!is_metadata_ && !is_ignored_ && !seen_.insert(text).second)
        refuse(where(), " comes twice");
    }
    return true;
  }
  bool end_object() override {
    if (depth_ == kTensor && !is_metadata_ && seen_.size() < 3) {
      refuse("tensor '", printable(tensors.back().name),
             "' lacks some of dtype, shape and data_offsets");
    }
    --depth_;
    is_ignored_ = is_ignored_ && depth_ > kTensor;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != kTensor || key_ == "dtype" || is_metadata_) value("a list");
    ++depth_;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    --depth_;
    if (is_ignored_) return true;
    if (key_ == "shape") {
      tensors.back().shape = numbers_;
    } else if (numbers_.size() == 2 && numbers_[0] <= numbers_[1]) {
      tensors.back().begin = numbers_[0];
      tensors.back().end = numbers_[1];
    } else {
      refuse(where(), ": expected its begin and its end");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse("no JSON at byte ", position, ", expected what safetensors' save_file writes");
  }

 private:
  enum Depth { kFile = 1, kTensor = 2, kList = 3 };

  std::string where() const {
    std::string name = is_metadata_      ? "__metadata__"
                       : tensors.empty() ? ""
                                         : cat("'", printable(tensors.back().name), "'");
    if (depth_ < kTensor) return name;
    return cat("'", printable(key_), "' of ", is_metadata_ ? "" : "tensor ", name);
  }
  // Refuses a value where none of its kind may be.
  bool value(std::string_view what) {
    if (is_ignored_) return true;
    if (depth_ == 0) refuse("it is ", what, ", expected an object of tensors");
    refuse(where(), " is ", what);
  }

  std::string_view name_;
  int depth_ = 0;
  bool is_metadata_ = false;  // of strings alone; a tensor's other keys may hold anything
  bool is_ignored_ = false;   // within such a key
  std::string key_;           // of the tensor
  std::set<std::string> names_, seen_;
  std::vector<std::int64_t> numbers_;
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
  HeaderReader reader(name);
  if (const auto nul = json.find('\0'); nul != json.npos) {  // the parser would stop there
    reader.refuse("no JSON at byte ", nul + 1, ", a zero");
  }
  // A second text after the object is an error; white space is padding.
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  for (const SafeTensor& tensor : reader.tensors) check_size(tensor, name);
  check_offsets(reader.tensors, payload_bytes, name);
  return std::move(reader.tensors);
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
