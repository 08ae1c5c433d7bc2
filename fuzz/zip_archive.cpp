// zip_archive.cpp - whole .npz files: any bytes, and archives whose checksums are right but whose
// fields and members are the fuzzer's.
#include <vector>

#include "convgrad/npy.hpp"
#include "files/tensor_source.hpp"
#include "fuzz.hpp"
#include "memory_file.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 20;  // of a payload that is read

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// A number in little endian, sometimes another one.
std::string field(Choices& choices, std::uint64_t value, int bytes) {
  if (choices.one_in(64)) value = static_cast<std::uint64_t>(choices.word());
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

struct Member {
  std::string name, bytes;
  std::uint64_t offset = 0;
};

// What local header and directory have in common.
std::string common_fields(Choices& choices, const Member& member) {
  return field(choices, 20, 2) + field(choices, 0, 2) + field(choices, 0, 2) +
         field(choices, 0x21, 4) + field(choices, crc32(member.bytes), 4) +
         field(choices, member.bytes.size(), 4) + field(choices, member.bytes.size(), 4) +
         field(choices, member.name.size(), 2) + field(choices, 0, 2);
}

std::string archive(Choices& choices) {
  static constexpr std::array<const char*, 4> kNames = {"x.npy", "x", "folder/", "dy.npy"};
  std::vector<Member> members(static_cast<std::size_t>(choices.between(0, 3)));
  std::string text;
  for (Member& member : members) {
    member.name = choices.one_in(4) ? choices.text(20) : choices.of(kNames);
    member.bytes = choices.text(255);
    member.offset = text.size();
    text += "PK\x03\x04" + common_fields(choices, member) + member.name + member.bytes;
  }
  const std::size_t directory = text.size();
  for (const Member& member : members) {
    text += "PK\x01\x02" + field(choices, 20, 2) + common_fields(choices, member) +
            field(choices, 0, 2) + field(choices, 0, 2) + field(choices, 0, 2) +
            field(choices, 0, 4) + field(choices, member.offset, 4) + member.name;
  }
  const std::size_t size = text.size() - directory;
  return text + "PK\x05\x06" + field(choices, 0, 2) + field(choices, 0, 2) +
         field(choices, members.size(), 2) + field(choices, members.size(), 2) +
         field(choices, size, 4) + field(choices, directory, 4) + field(choices, 0, 2);
}

// Reads an array twice, in one and in two parts, which must be the same.
void read(const std::string& argument) {
  refused(0, "", [&] {
    NpyReader reader(argument);
    const std::vector<std::int64_t>& shape = reader.header().shape;
    if (reader.header().payload_bytes > kMostBytes) return;
    std::vector<char> whole(static_cast<std::size_t>(reader.header().payload_bytes));
    reader.read_all(whole.data());
    if (shape.empty() || shape[0] < 2 || reader.needs_whole_payload()) return;
    NpyReader again(argument);
    std::vector<char> parts(whole.size());
    std::vector<std::int64_t> begin(shape.size(), 0), middle = shape;
    begin[0] = middle[0] = shape[0] / 2;
    again.read_box(std::vector<std::int64_t>(shape.size(), 0), middle, parts.data());
    const auto first = static_cast<std::ptrdiff_t>(
        parts.size() / static_cast<std::size_t>(shape[0]) * static_cast<std::size_t>(begin[0]));
    again.read_box(begin, shape, parts.data() + first);
    again.finish();
    require(parts == whole, "an array in two parts", argument);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryFile file;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] == 'b') {  // built here
    Choices choices(data + 1, size - 1);
    file.set(archive(choices));
  } else {
    file.set(bytes);
  }
  const std::string path = file.path();
  refused(0, "", [&] { NpyReader reader(path); });
  refused(0, "", [&] {
    if (!is_archive(path)) return read(path);
    for (const std::string& name : TensorArchive(path).names()) read(cat(path, ":", name));
  });
  read(path + ":x");
  return 0;
}
