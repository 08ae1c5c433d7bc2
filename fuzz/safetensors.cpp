// safetensors.cpp - the parser of .safetensors headers: a length as text, then the JSON.
#include "files/safetensors.hpp"

#include <set>

#include "fuzz.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;

namespace {

constexpr std::string_view kName = "f.safetensors";
constexpr int kInput = static_cast<int>(ErrorKind::input);

// The format's own rules, on what was taken for right.
void check(const std::vector<SafeTensor>& tensors, std::int64_t payload_bytes) {
  std::set<std::string> names;
  std::set<std::pair<std::int64_t, std::int64_t>> spans;
  std::int64_t covered = 0;
  for (const SafeTensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "a name that comes twice", tensor.name);
    require(0 <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= payload_bytes,
            "a payload outside the file");
    covered += tensor.end - tensor.begin;
    spans.emplace(tensor.begin, tensor.end);
  }
  require(covered == payload_bytes, "payloads that do not cover the file");
  std::int64_t end = 0;
  for (const auto& [begin, stop] : spans) {
    require(begin == end, "a hole or an overlap");
    end = stop;
  }
}

void check_header(const SafeTensor& tensor) {
  refused(kInput, kName, [&] {
    const NpyHeader header = npy_header_of(tensor, 100, kName);
    require(header.payload_bytes == header.element_count * header.item_bytes, "payload_bytes");
    std::int64_t count = 1;
    for (const std::int64_t extent : header.shape) {
      require(extent >= 0, "an extent below 0");
      if (extent == 0) count = 0;
    }
    for (const std::int64_t extent : header.shape) {
      if (count != 0) count *= extent;  // checked by the parser, else the sanitizer says so
    }
    require(header.element_count == count, "element_count");
    float_dtype(header, kName);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::int64_t payload_bytes = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9' && payload_bytes < 1'000'000'000'000) {
    payload_bytes = payload_bytes * 10 + (text[0] - '0');
    text.remove_prefix(1);
  }
  refused(kInput, kName, [&] {
    const std::vector<SafeTensor> tensors = parse_safetensors_header(text, payload_bytes, kName);
    check(tensors, payload_bytes);
    for (const SafeTensor& tensor : tensors) check_header(tensor);
  });
  return 0;
}
