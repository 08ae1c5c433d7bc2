// npz_writer.cpp - see npz_writer.hpp. Format: APPNOTE.TXT of PKWARE, 4.3 and 4.5.3.
//
// All sizes and offsets are in ZIP64 fields, which every reader of large archives knows, so that
// there is one form only. The time is that of the format's beginning: equal sums give equal files.
#include "files/npz_writer.hpp"

#include <zlib.h>

namespace convgrad {
namespace {

constexpr std::uint32_t kInZip64 = 0xffffffff;
constexpr std::uint16_t kVersion = 45;     // readers of this version know ZIP64
constexpr std::uint16_t kFirstDay = 0x21;  // 1980-01-01
constexpr std::uint16_t kUnixMade = 3 << 8;
constexpr std::uint32_t kFileMode = 0100644u << 16;

// Appends little-endian fields one after the other.
class Record {
 public:
  template <typename Number>
  Record& add(Number value) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
    return *this;
  }
  Record& add(const std::string& text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;

// Adds the fields that local and central headers share, from the version to the name's length.
void add_common(Record& record, std::uint32_t crc, const std::string& name) {
  record.add(kVersion).add(U16{0}).add(U16{0}).add(U16{0}).add(kFirstDay).add(crc);
  record.add(kInZip64).add(kInZip64).add(static_cast<U16>(name.size()));
}

}  // namespace

void NpzWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes.data(), bytes.size());
  written_ += bytes.size();
}

void NpzWriter::begin(const std::string& name, std::uint64_t bytes) {
  end();
  members_.push_back({name + ".npy", 0, bytes, written_});
  const Member& member = members_.back();
  Record local;
  local.add(U32{0x04034b50});
  add_common(local, member.crc, member.name);
  // The extra field has 20 bytes: its id 1 (ZIP64), its length, both sizes.
  local.add(U16{20}).add(member.name);
  local.add(U16{1}).add(U16{16}).add(member.bytes).add(member.bytes);
  write(local.bytes());
}

void NpzWriter::append(std::span<const std::byte> piece) {
  if (piece.empty()) return;  // zlib takes a null pointer for the beginning
  U32& crc = members_.back().crc;
  crc =
      static_cast<U32>(::crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
  write(piece);
}

// Puts the last array's check sum where it belongs.
void NpzWriter::end() {
  if (members_.empty()) return;
  constexpr std::uint64_t kCrcPlace = 14;  // in the local header
  const Member& member = members_.back();
  Record crc;
  crc.add(member.crc);
  file_.overwrite(static_cast<std::int64_t>(member.offset + kCrcPlace), crc.bytes().data(),
                  crc.bytes().size());
}

void NpzWriter::finish() {
  end();
  const U64 start = written_, count = members_.size();
  for (const Member& member : members_) {
    Record central;
    central.add(U32{0x02014b50}).add(static_cast<U16>(kUnixMade | kVersion));
    add_common(central, member.crc, member.name);
    // The extra field has the sizes and the offset: 28 bytes.
    central.add(U16{28}).add(U16{0}).add(U16{0}).add(U16{0}).add(kFileMode).add(kInZip64);
    central.add(member.name).add(U16{1}).add(U16{24});
    central.add(member.bytes).add(member.bytes).add(member.offset);
    write(central.bytes());
  }
  const U64 end = written_;
  Record last;
  // ZIP64's end record says how long it is after this field, and its locator where it begins. The
  // old end record, which comes last, refers to ZIP64's for size and offset.
  last.add(U32{0x06064b50}).add(U64{44}).add(kVersion).add(kVersion).add(U32{0}).add(U32{0});
  last.add(count).add(count).add(end - start).add(start);
  last.add(U32{0x07064b50}).add(U32{0}).add(end).add(U32{1});
  last.add(U32{0x06054b50}).add(U16{0}).add(U16{0});
  last.add(static_cast<U16>(count)).add(static_cast<U16>(count)).add(kInZip64).add(kInZip64);
  last.add(U16{0});
  write(last.bytes());
}

}  // namespace convgrad
