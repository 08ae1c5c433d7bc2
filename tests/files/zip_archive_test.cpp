// zip_archive_test.cpp - members of .npz archives, right and wrong ones.

#include <doctest/doctest.h>
#include <unistd.h>
#include <zip.h>

#include <string>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/npy.hpp"
#include "files/npy_bytes.hpp"
#include "files/tensor_source.hpp"
#include "support/temp_dir.hpp"

namespace convgrad {
namespace {

using namespace testing;

struct Entry {
  std::string name, bytes;
  bool deflated = false;
};

// A .npz as libzip writes it; entries of the same name get one byte of theirs changed afterwards.
std::string zip_of(const TempDir& dir, const std::vector<Entry>& entries) {
  const std::string path = dir.file("made.zip");
  ::unlink(path.c_str());
  zip_t* const zip = zip_open(path.c_str(), ZIP_CREATE, nullptr);
  REQUIRE(zip != nullptr);
  for (const Entry& entry : entries) {
    if (entry.name.ends_with('/')) {
      REQUIRE(zip_dir_add(zip, entry.name.c_str(), 0) >= 0);
      continue;
    }
    zip_source_t* const source = zip_source_buffer(zip, entry.bytes.data(), entry.bytes.size(), 0);
    const zip_int64_t index = zip_file_add(zip, entry.name.c_str(), source, 0);
    REQUIRE(index >= 0);
    const zip_int32_t method = entry.deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE;
    REQUIRE(zip_set_file_compression(zip, static_cast<zip_uint64_t>(index), method, 9) == 0);
    REQUIRE(zip_file_set_mtime(zip, static_cast<zip_uint64_t>(index), 1000000000, 0) == 0);
  }
  REQUIRE(zip_close(zip) == 0);
  return read_file(path);
}

std::string replaced_all(std::string text, std::string_view from, std::string_view to) {
  REQUIRE(from.size() == to.size());
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + 1)) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// The field of the first central directory entry at this offset, with another value.
std::string with_entry_field(std::string zip, std::size_t offset, std::string_view value) {
  const std::size_t entry = zip.find("PK\x01\x02");
  REQUIRE(entry != zip.npos);
  return zip.replace(entry + offset, value.size(), value);
}

TEST_CASE("members of any order and dtype, stored in any order, deflated front to back") {
  const TempDir dir;
  for (const int flags : {0, 1, 2, 3}) {
    for (const std::size_t item : {2u, 4u, 8u}) {
      const ArraySpec spec{{3, 2, 4, 3}, item, (flags & 1) != 0, (flags & 2) != 0};
      const std::string path = dir.write(
          "a.npz", zip_of(dir, {{"s.npy", spec_file(spec)}, {"d.npy", spec_file(spec), true}}));
      CAPTURE(flags);
      NpyReader stored(path + ":s"), deflated(path + ":d");
      CHECK(stored.seekable());
      CHECK(stored.needs_whole_payload() == spec.fortran_order);
      CHECK_FALSE(deflated.seekable());
      CHECK(deflated.needs_whole_payload() == spec.fortran_order);
      CHECK(stored.name() == path + ":s");
      CHECK(wrong_boxes(stored, spec) == 0);
      CHECK(is_right_box(deflated, spec, {0, 0, 0, 0}, {2, 2, 4, 3}));
      CHECK(is_right_box(deflated, spec, {2, 1, 0, 0}, {3, 2, 4, 2}));
      stored.finish();
      deflated.finish();
    }
  }
}

TEST_CASE("members larger than any buffer") {
  const TempDir dir;
  const ArraySpec spec{{9, 300, 1000}, 4, true};  // 10.8 MB
  const std::string path = dir.write(
      "a.npz", zip_of(dir, {{"s.npy", spec_file(spec)}, {"d.npy", spec_file(spec), true}}));
  const std::string want = expected_box(spec, {0, 0, 0}, spec.shape);
  CHECK(read_completely(path + ":s") == want);
  CHECK(read_completely(path + ":d") == want);
}

TEST_CASE("empty arrays and scalars") {
  const TempDir dir;
  const ArraySpec none{{0, 5}}, one{{}};
  for (const bool deflated : {false, true}) {
    const std::string path = dir.write("a.npz", zip_of(dir, {{"n.npy", spec_file(none), deflated},
                                                             {"o.npy", spec_file(one), deflated},
                                                             {"e.npy", "", deflated}}));
    CHECK(read_completely(path + ":n").empty());
    CHECK(read_completely(path + ":o") == expected_box(one, {}, {}));
    check_unreadable(path + ":e", "is empty");
  }
}

TEST_CASE("which member a name means") {
  const TempDir dir;
  const auto array = [](std::int64_t n) { return spec_file({{n}}); };
  const std::string path = dir.write("a.npz", zip_of(dir, {{"folder/", ""},
                                                           {"folder/x.npy", array(1)},
                                                           {"x.npy", array(2)},
                                                           {"x", array(3)},
                                                           {"a:b.npy", array(4)},
                                                           {"\xc3\xbc.npy", array(5)},
                                                           {"y.npy.npy", array(6)},
                                                           {".npy", array(7)},
                                                           {"text.txt", "hello"}}));
  const auto length = [&](const std::string& member) {
    return NpyReader(path + ":" + member).header().shape.at(0);
  };
  CHECK(length("folder/x") == 1);
  CHECK(length("folder/x.npy") == 1);
  CHECK(length("x.npy") == 2);
  CHECK(length("x") == 3);  // the exact name wins, as in numpy
  CHECK(length("a:b") == 4);
  CHECK(length("\xc3\xbc") == 5);
  CHECK(length("y.npy") == 6);
  CHECK(length(".npy") == 7);
  check_unreadable(path + ":folder/", "has no array 'folder/'", path);
  check_unreadable(path + ":folder", "has no array 'folder', expected folder/x, x.npy, x, a:b",
                   path);
  check_unreadable(path + ":text.txt", "not a .npy");
  check_unreadable(path + ":", "is an archive, expected one of its arrays", path);
  check_unreadable(path, "is an archive, expected one of its arrays");
  const TensorArchive archive(path);
  CHECK(archive.names() ==
        std::vector<std::string>{"folder/x", "x.npy", "a:b", "\xc3\xbc", "y.npy", ".npy"});
}

TEST_CASE("a name that is not there: the names there are, and a suggestion") {
  const TempDir dir;
  const auto message = [&](const std::vector<Entry>& entries, const std::string& member) {
    const std::string path = dir.write("a.npz", zip_of(dir, entries));
    const auto error = error_of([&] { NpyReader reader(path + ":" + member); });
    REQUIRE(error.has_value());
    CHECK(error->kind() == ErrorKind::input);
    return std::string(error->what()).substr(path.size());
  };
  CHECK(message({{"input.npy", ""}, {"grad.npy", ""}}, "inptu") ==
        ": has no array 'inptu', expected input or grad; did you mean 'input'?");
  CHECK(message({{"input.npy", ""}}, "w") == ": has no array 'w', expected input");
  CHECK(message({{"\xc3\xbc\nb.npy", ""}}, "x") == ": has no array 'x', expected \xc3\xbc\\x0ab");
  std::vector<Entry> many;
  for (int i = 0; i < 1000; ++i) many.push_back({cat("layer", i, ".", std::string(90, 'w')), ""});
  const std::string text = message(many, std::string(300, 'x'));
  CAPTURE(text);
  CHECK(text.size() < 400);
  CHECK(text.ends_with(" or another of its 1000"));
  const std::string none = std::string("PK\x05\x06") + std::string(18, '\0');
  const std::string path = dir.write("a.npz", none);
  check_unreadable(path + ":x", "without any array", path);
  check_unreadable(path, "without any array");
}

TEST_CASE("two members of one name are refused") {
  const TempDir dir;
  const std::string zip = zip_of(dir, {{"x.npy", spec_file({{2}})}, {"z.npy", spec_file({{3}})}});
  const std::string path = dir.write("a.npz", replaced_all(zip, "z.npy", "x.npy"));
  check_unreadable(path + ":x", "has 2 members called 'x.npy', expected one", path);
}

TEST_CASE("a wrong CRC-32 is found, however the member is read") {
  const TempDir dir;
  const ArraySpec spec{{4, 50, 10}};
  for (const bool deflated : {false, true}) {
    const std::string good = zip_of(dir, {{"x.npy", spec_file(spec), deflated}});
    const std::string path = dir.write("a.npz", with_entry_field(good, 16, "crc!")) + ":x";
    CAPTURE(deflated);
    check_error(ErrorKind::input, path, "damaged (CRC error", [&] { read_completely(path); });
    // Nothing but the header; in another order, in part; with a gap before the end; overlapping.
    for (const auto& boxes : std::vector<std::vector<std::pair<int, int>>>{
             {}, {{3, 4}, {0, 1}}, {{0, 1}, {3, 4}}, {{0, 3}, {1, 4}}}) {
      check_error(ErrorKind::input, path, "damaged (CRC error", [&] {
        NpyReader reader(path);
        if (!boxes.empty()) reader.hold();
        for (const auto& [from, to] : boxes) read_box(reader, {from, 0, 0}, {to, 50, 10});
        reader.finish();
      });
    }
  }
  // The same orders of reading with the right one.
  const std::string path = dir.write("a.npz", zip_of(dir, {{"x.npy", spec_file(spec)}})) + ":x";
  NpyReader reader(path);
  CHECK(is_right_box(reader, spec, {3, 0, 0}, {4, 50, 10}));
  CHECK(is_right_box(reader, spec, {0, 0, 0}, {2, 50, 10}));
  CHECK(is_right_box(reader, spec, {1, 0, 0}, {4, 50, 10}));
  reader.finish();
}

TEST_CASE("sizes, methods and flags that cannot be") {
  const TempDir dir;
  const std::string array = spec_file({{100, 10}});
  const std::string stored = zip_of(dir, {{"x.npy", array}});
  const std::string deflated = zip_of(dir, {{"x.npy", array, true}});
  const auto refused = [&](const std::string& zip, std::string_view text) {
    const std::string path = dir.write("a.npz", zip) + ":x";
    check_error(ErrorKind::input, path, text, [&] { read_completely(path); });
  };
  constexpr std::size_t kFlags = 8, kMethod = 10, kCompressed = 20, kSize = 24;
  refused(with_entry_field(stored, kFlags, {"\1", 1}), "is encrypted, expected a plain member");
  for (const char method : {'\1', '\6', '\t', '\14', '\16', 'X', '_'}) {
    CAPTURE(static_cast<int>(method));
    refused(with_entry_field(stored, kMethod, std::string{method, 0}),
            cat("compressed by zip method ", static_cast<int>(method)));
  }
  // More than the archive has, than stored bytes are, than deflate can hold.
  refused(with_entry_field(stored, kCompressed, "\xff\xff\xff\x0f"), "damaged: the archive of");
  refused(with_entry_field(stored, kSize, "\xff\xff\xff\x0f"), "stored ones");
  refused(with_entry_field(stored, kSize, little_endian(array.size() - 4, 4)), "stored ones");
  refused(with_entry_field(deflated, kSize, "\xff\xff\xff\x7f"), "deflated ones");
  // Less or more than the .npy header announces.
  refused(with_entry_field(deflated, kSize, little_endian(array.size() - 4, 4)), "truncated");
  refused(with_entry_field(deflated, kSize, little_endian(array.size() + 4, 4)),
          "followed by other bytes");
  const std::string both = little_endian(array.size() - 4, 4) + little_endian(array.size() - 4, 4);
  refused(with_entry_field(stored, kCompressed, both), "truncated");
  // The header announces what the member's size agrees with, and the deflated data end before.
  const std::string huge = spec_file({{1000, 10}});
  const std::string lying = zip_of(dir, {{"x.npy", huge.substr(0, huge.size() - 4000), true}});
  refused(with_entry_field(lying, kSize, little_endian(huge.size(), 4)),
          "ends after 36000 of 40000 payload bytes");
}

// The archive with a ZIP64 end record that announces count members.
std::string with_zip64_end(const std::string& zip, std::uint64_t count, std::uint64_t extra = 0) {
  const std::size_t end = zip.size() - 22;
  const std::size_t directory = zip.find("PK\x01\x02");
  REQUIRE(zip.substr(end, 4) == "PK\x05\x06");
  std::string record = "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2);
  record += little_endian(45, 2) + little_endian(0, 8) + little_endian(count, 8);
  record += little_endian(count, 8) + little_endian(end - directory + extra, 8);
  record += little_endian(directory, 8);
  std::string locator = "PK\x06\x07" + little_endian(0, 4) + little_endian(end, 8);
  locator += little_endian(1, 4);
  return zip.substr(0, end) + record + locator + "PK\x05\x06" + std::string(4, '\0') +
         std::string(12, '\xff') + std::string(2, '\0');
}

TEST_CASE("ZIP64 end records: true ones are read, others allocate nothing") {
  const TempDir dir;
  const ArraySpec spec{{5, 7}};
  const std::string zip = zip_of(dir, {{"x.npy", spec_file(spec)}});
  const std::string good = dir.write("a.npz", with_zip64_end(zip, 1)) + ":x";
  CHECK(read_completely(good) == expected_box(spec, {0, 0}, spec.shape));
  for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 32,
                                    std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    CAPTURE(count);
    const std::string path = dir.write("b.npz", with_zip64_end(zip, count));
    check_unreadable(path + ":x", cat("announces ", count, " members"), path);
  }
  for (const std::string& bad : {with_zip64_end(zip, 2), with_zip64_end(zip, 0),
                                 with_zip64_end(zip, 1, 1), with_zip64_end(zip, 1, 1u << 30)}) {
    const std::string path = dir.write("b.npz", bad);
    check_unreadable(path + ":x", "damaged zip archive", path);
  }
}

TEST_CASE("every truncation and every changed byte of an archive: the array or an error") {
  const TempDir dir;
  const ArraySpec spec{{5, 7}};
  const std::string array = spec_file(spec), other = spec_file({{4}});
  const std::string want = expected_box(spec, {0, 0}, spec.shape);
  const std::string zips[] = {
      zip_of(dir, {{"x.npy", array}}), zip_of(dir, {{"x.npy", array, true}}),
      zip_of(dir, {{"y.npy", other, true}, {"x.npy", array}, {"z.npy", other}}),
      with_zip64_end(zip_of(dir, {{"x.npy", array, true}, {"y.npy", other}}), 2)};
  for (const std::string& zip : zips) {
    Mutants cut, changed;
    for (std::size_t size = 0; size < zip.size(); ++size) {
      cut.read(dir.write("m.npz", zip.substr(0, size)) + ":x", want);
    }
    CHECK(cut.wrong == 0);
    CHECK(cut.right == 0);
    for (std::size_t at = 0; at < zip.size(); ++at) {
      for (const int change : {1, 128, 255}) {
        std::string bytes = zip;
        bytes[at] = static_cast<char>(bytes[at] ^ change);
        changed.read(dir.write("m.npz", bytes) + ":x", want);
      }
    }
    CHECK(changed.wrong == 0);
    CHECK(changed.right > 0);  // dates, versions, attributes
    CHECK(changed.refused > std::ssize(zip));
  }
}

TEST_CASE("an archive that is cut while it is read") {
  const TempDir dir;
  const ArraySpec spec{{100, 1000}};
  for (const bool deflated : {false, true}) {
    const std::string path =
        dir.write("a.npz", zip_of(dir, {{"x.npy", spec_file(spec), deflated}}));
    NpyReader reader(path + ":x");
    REQUIRE(::truncate(path.c_str(), 8192) == 0);
    check_error(ErrorKind::input, path + ":x", "damaged (", [&] {
      read_all(reader);
      reader.finish();
    });
  }
}

TEST_CASE("how an argument divides into file and member, or dtype and shape") {
  const TempDir dir;
  const auto divided = [](const std::string& argument) {
    const TensorName name = split_tensor_name(argument);
    return cat(name.file, name.member ? " | " + *name.member : "", is_raw(name) ? " raw" : "");
  };
  const std::string a = dir.write("a.npz", "x"), colon = dir.write("b:c.npz", "x");
  CHECK(divided("-") == "-");
  CHECK(divided(a) == a);
  CHECK(divided(a + ":x") == a + " | x");
  CHECK(divided(a + ":x:y") == a + " | x:y");
  CHECK(divided(a + ":") == a + " | ");
  CHECK(divided(colon) == colon);
  CHECK(divided(colon + ":x") == colon + " | x");
  CHECK(divided(dir.path() + ":x") == dir.path() + ":x");  // a folder is no archive
  CHECK(divided(dir.file("none.npy:x")) == dir.file("none.npy:x"));
  CHECK(divided(dir.file("none.npz:x")) == dir.file("none.npz") + " | x");
  CHECK(divided(dir.file("none.safetensors:a:b")) == dir.file("none.safetensors") + " | a:b");
  CHECK(divided(":x") == ":x");
  CHECK(divided("") == "");
  const std::string named = dir.write("a.npz:x", "x");  // the file with exactly that name wins
  CHECK(divided(named) == named);
  CHECK(divided(named + ":y") == named + " | y");  // and the longest file before a colon
  CHECK(divided(dir.file("none.bin:float32[2,3]")) == dir.file("none.bin") + " | float32[2,3] raw");
  CHECK(divided("-:>f2[4]") == "- | >f2[4] raw");
  CHECK(divided(dir.write("y.bin:f4[2]", "12345678")) == dir.file("y.bin:f4[2]"));
  CHECK(divided(dir.file("a.npz:float32[2]")) == dir.file("a.npz") + " | float32[2]");
  for (const char* name : {"none:[2]", "none:f4[2", "none:f4", "none:f4[2][3]", "none:a/b[2]"}) {
    CHECK(divided(dir.file(name)) == dir.file(name));
  }
  CHECK(is_standard_input("-:>f2[4]"));
  CHECK(is_standard_input("-"));
  CHECK_FALSE(is_standard_input("./-"));
}

TEST_CASE("files that only look like archives") {
  const TempDir dir;
  const ArraySpec spec{{2, 3}};
  const std::string npy = dir.write("x.npz", spec_file(spec));  // contents win over the name
  CHECK(read_completely(npy) == expected_box(spec, {0, 0}, spec.shape));
  check_unreadable(npy + ":x", "no such file, and");
  const std::string zip = dir.write("zip.dat", zip_of(dir, {{"x.npy", spec_file(spec)}}));
  CHECK(read_completely(zip + ":x") == expected_box(spec, {0, 0}, spec.shape));
  const std::string empty = dir.write("e.npz", "");
  check_unreadable(empty + ":x", "is empty", empty);
  check_unreadable(empty, "is empty");
  const std::string text = dir.write("t.npz", "this is no archive at all, just some text");
  check_unreadable(text + ":x", "damaged zip archive", text);
  const std::string missing = dir.file("none.npz");
  check_unreadable(missing + ":x", "No such file", missing);
}

}  // namespace
}  // namespace convgrad
