// zip_archive.cpp - reads the members of a zip archive through libzip.
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <string_view>
#include <unordered_map>

#include "base/messages.hpp"
#include "files/tensor_source.hpp"

namespace convgrad {
namespace {

// Offers a file as a source of libzip; zip_source_function(3) defines the commands. libzip knows of
// a failed read only that there was one, and takes some for the end of the archive; the exception
// is kept here. libzip's own source of a file reads through stdio, which stops where a read is
// interrupted. The object must not move, must outlive the archive, and the file must outlive it.
class ZipInput {
 public:
  explicit ZipInput(FileSource& file) : file_(file) { zip_error_init(&error_); }
  ~ZipInput() { zip_error_fini(&error_); }
  ZipInput(const ZipInput&) = delete;
  ZipInput& operator=(const ZipInput&) = delete;

  FileSource& file() const { return file_; }
  // Throws what a read threw, if one did.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  // libzip is C: nothing may be thrown through it.
  static zip_int64_t on_command(void* self, void* data, zip_uint64_t length,
                                zip_source_cmd_t command) {
    auto& input = *static_cast<ZipInput*>(self);
    try {
      return input.handle(data, length, command);
    } catch (...) {
      input.failure_ = std::current_exception();
      zip_error_set(&input.error_, ZIP_ER_READ, EIO);
      return -1;
    }
  }

 private:
  zip_int64_t handle(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        position_ = 0;
        return 0;
      case ZIP_SOURCE_READ:
        return read(data, length);
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t position = zip_source_seek_compute_offset(
            static_cast<zip_uint64_t>(position_), static_cast<zip_uint64_t>(file_.size()), data,
            length, &error_);
        if (position >= 0) position_ = position;
        return position >= 0 ? 0 : -1;
      }
      case ZIP_SOURCE_TELL:
        return position_;
      case ZIP_SOURCE_STAT:
        return stat(data, length);
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:  // belongs to whoever made it
        return 0;
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_SEEKABLE;
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  zip_int64_t read(void* data, zip_uint64_t length) {
    constexpr zip_uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    const auto count = static_cast<std::int64_t>(std::min(length, kMost));
    const std::int64_t got = file_.read(static_cast<std::byte*>(data), count, position_);
    position_ += got;
    return got;
  }

  zip_int64_t stat(void* data, zip_uint64_t length) {
    if (length < sizeof(zip_stat_t)) return -1;
    auto* const status = static_cast<zip_stat_t*>(data);
    zip_stat_init(status);
    status->size = static_cast<zip_uint64_t>(file_.size());
    status->valid = ZIP_STAT_SIZE;
    return sizeof(zip_stat_t);
  }

  FileSource& file_;
  std::int64_t position_ = 0;
  zip_error_t error_;
  std::exception_ptr failure_;
};

struct Close {
  void operator()(zip_t* zip) const { zip_discard(zip); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Zip = std::unique_ptr<zip_t, Close>;
using ZipFile = std::unique_ptr<zip_file_t, Close>;

// The kind says whether the archive is at fault or the machine. Before libzip's call errno was 0,
// as it takes missing memory for "Not a zip archive" in some places.
[[noreturn]] void refuse(const ZipInput& input, const std::string& name, std::string_view what,
                         zip_error_t* error) {
  constexpr int kZlibMemory = -4;  // Z_MEM_ERROR
  const bool memory = errno == ENOMEM || (zip_error_system_type(error) == ZIP_ET_ZLIB &&
                                          zip_error_code_system(error) == kZlibMemory);
  input.rethrow();
  if (memory) throw std::bad_alloc();
  const int system = zip_error_system_type(error) == ZIP_ET_SYS ? zip_error_code_system(error) : 0;
  const bool machine =
      zip_error_code_zip(error) == ZIP_ER_MEMORY || kind_of_failure(system) == ErrorKind::runtime;
  throw Error(machine ? ErrorKind::runtime : ErrorKind::input, name, ": ", what, " (",
              zip_error_strerror(error), ")", machine ? Hint() : Hint("copy or write it again"));
}

// libzip 1.7 takes memory for as many entries as a ZIP64 end record announces before it looks at
// the first of them, so a damaged record could ask for any amount.
void check_announced_entries(FileSource& file) {
  constexpr std::int64_t kLocator = 20, kEnd = 22, kEnd64 = 56, kEntry = 46;  // shortest
  constexpr std::int64_t kSearched = kLocator + kEnd + 0xffff;  // where libzip looks for it
  const std::int64_t size = std::min(file.size(), kSearched);
  std::vector<std::byte> tail(static_cast<std::size_t>(size));
  tail.resize(static_cast<std::size_t>(file.read(tail.data(), size, file.size() - size)));
  const std::string_view text(reinterpret_cast<const char*>(tail.data()), tail.size());
  constexpr std::string_view kLocatorMagic = "PK\x06\x07", kEnd64Magic = "PK\x06\x06";
  for (std::size_t at = text.find(kLocatorMagic); at != text.npos;
       at = text.find(kLocatorMagic, at + 1)) {
    if (text.size() - at < static_cast<std::size_t>(kLocator)) return;
    const std::uint64_t offset = little_endian({tail.data() + at + 8, 8});
    if (offset > static_cast<std::uint64_t>(file.size())) continue;  // libzip refuses it
    std::byte record[kEnd64] = {};
    file.read(record, kEnd64, static_cast<std::int64_t>(offset));
    if (std::memcmp(record, kEnd64Magic.data(), kEnd64Magic.size()) != 0) continue;
    const std::uint64_t entries = little_endian({record + 24, 8});
    if (entries <= static_cast<std::uint64_t>(file.size() / kEntry)) continue;
    file.refuse("damaged zip archive: it announces ", entries, " members in ", file.size(),
                " bytes", Hint("copy or write it again"));
  }
}

Zip open_zip(ZipInput& input) {
  check_announced_entries(input.file());
  constexpr std::string_view kWhat = "damaged zip archive, expected one from numpy.savez";
  zip_error_t error;
  zip_error_init(&error);
  const std::unique_ptr<zip_error_t, void (*)(zip_error_t*)> text(&error, zip_error_fini);
  errno = 0;
  zip_source_t* const source = zip_source_function_create(ZipInput::on_command, &input, &error);
  if (source == nullptr) refuse(input, input.file().name(), kWhat, &error);
  Zip zip(zip_open_from_source(source, ZIP_RDONLY, &error));
  if (!zip) {
    const int saved_errno = errno;
    zip_source_free(source);
    errno = saved_errno;
    refuse(input, input.file().name(), kWhat, &error);
  }
  return zip;
}

constexpr std::string_view kSuffix = ".npy";

// Returns names by index; they are empty for folders and entries without a name.
std::vector<std::string> entry_names(zip_t* zip) {
  std::vector<std::string> names;
  const zip_int64_t count = zip_get_num_entries(zip, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(zip, static_cast<zip_uint64_t>(i), 0);
    names.emplace_back(name == nullptr ? "" : name);
    if (names.back().ends_with('/')) names.back().clear();
  }
  return names;
}

// Leaves .npy out where the rest names the same member.
std::vector<std::string> array_names(const std::vector<std::string>& entries, bool npy_only) {
  std::vector<std::string> sorted = entries, names;
  std::ranges::sort(sorted);
  for (const std::string& entry : entries) {
    const bool npy = entry.ends_with(kSuffix);
    const std::string key = npy ? entry.substr(0, entry.size() - kSuffix.size()) : entry;
    const bool taken = key.empty() || (npy && std::ranges::binary_search(sorted, key));
    if (!entry.empty() && (npy || !npy_only)) names.push_back(taken ? entry : key);
  }
  return names;
}

// Returns what the central directory says about a member and refuses what cannot be true.
zip_stat_t checked_stat(zip_t* zip, zip_uint64_t index, std::int64_t archive_bytes,
                        const std::string& name) {
  constexpr std::uint64_t kMaxDeflateRatio = 1032;  // a match of 258 bytes takes 2 bits at least
  zip_stat_t stat;
  zip_stat_init(&stat);
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  const bool known = zip_stat_index(zip, index, 0, &stat) == 0 && (stat.valid & kNeeded) == kNeeded;
  const auto refuse_member = [&](const auto&... parts) { bad_input(name, ": ", parts...); };
  if (!known) refuse_member("damaged: no sizes in the archive", Hint("copy or write it again"));
  if (stat.encryption_method != ZIP_EM_NONE) {
    refuse_member("is encrypted, expected a plain member", Hint("write it with numpy.savez"));
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    refuse_member("is compressed by zip method ", stat.comp_method, ", expected stored or deflated",
                  Hint("write it with numpy.savez or savez_compressed"));
  }
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const bool fits =
      stat.comp_size <= static_cast<zip_uint64_t>(archive_bytes) && stat.size <= kMost;
  const bool likely =
      stored ? stat.size == stat.comp_size : stat.size / kMaxDeflateRatio <= stat.comp_size;
  if (!fits || !likely) {
    refuse_member("damaged: the archive of ", archive_bytes, " bytes announces ", stat.size,
                  " bytes in ", stat.comp_size, stored ? " stored" : " deflated", " ones",
                  Hint("copy or write it again"));
  }
  return stat;
}

}  // namespace

struct ZipArchive {
  explicit ZipArchive(std::unique_ptr<FileSource> opened)
      : file(std::move(opened)),
        input(*file),
        zip(open_zip(input)),
        entries(entry_names(zip.get())) {
    for (std::size_t i = 0; i < entries.size(); ++i) places.emplace(entries[i], i);
  }

  zip_uint64_t find(const std::string& member) const {
    // numpy.load looks for the exact name first, too.
    for (const std::string& wanted : {member, cat(member, kSuffix)}) {
      const auto [first, last] = places.equal_range(wanted);
      if (first == last || member.empty()) continue;
      const auto count = std::distance(first, last);
      if (count > 1) {
        file->refuse("has ", count, " members called '", wanted, "', expected one",
                     Hint("write it again"));
      }
      return first->second;
    }
    refuse_missing_array(file->name(), member, array_names(entries, false));
  }

  std::unique_ptr<FileSource> file;
  ZipInput input;
  Zip zip;
  std::vector<std::string> entries;
  std::unordered_multimap<std::string, zip_uint64_t> places;
};

namespace {

class ZipMember final : public ByteSource {
 public:
  ZipMember(std::shared_ptr<ZipArchive> archive, const std::string& member, std::string name)
      : ByteSource(std::move(name)), archive_(std::move(archive)), index_(archive_->find(member)) {
    const zip_stat_t stat =
        checked_stat(archive_->zip.get(), index_, archive_->file->size(), this->name());
    size_ = static_cast<std::int64_t>(stat.size);
    stored_ = stat.comp_method == ZIP_CM_STORE;
    open();
  }

  std::int64_t size() const override { return size_; }
  bool seekable() const override { return stored_; }

  std::int64_t read(std::byte* out, std::int64_t count, std::int64_t offset) override {
    if (offset != position_) {
      in_order_ = false;
      errno = 0;
      if (zip_fseek(file_.get(), std::min(offset, size_), SEEK_SET) != 0) fail();
      position_ = std::min(offset, size_);
    }
    std::int64_t done = 0;
    while (done < count) {
      errno = 0;
      const zip_int64_t got =
          zip_fread(file_.get(), out + done, static_cast<zip_uint64_t>(count - done));
      if (got < 0) fail();
      if (got == 0) break;
      done += got;
    }
    position_ += done;
    return done;
  }

  // libzip compares the CRC-32 when it meets the end, if it has seen every byte once and in order.
  // A deflated member has met its end by now.
  void finish() override {
    if (!stored_) return;
    if (!in_order_) open();
    std::vector<std::byte> bytes(std::size_t{256} << 10);
    while (read(bytes.data(), std::ssize(bytes), position_) > 0) {
    }
  }

 private:
  void open() {
    errno = 0;
    zip_t* const zip = archive_->zip.get();
    file_.reset(zip_fopen_index(zip, index_, 0));
    if (!file_) convgrad::refuse(archive_->input, name(), "damaged", zip_get_error(zip));
    position_ = 0;
    in_order_ = true;
  }
  [[noreturn]] void fail() {
    convgrad::refuse(archive_->input, name(), "damaged", zip_file_get_error(file_.get()));
  }

  std::shared_ptr<ZipArchive> archive_;
  zip_uint64_t index_;
  std::int64_t size_ = 0;
  bool stored_ = false;
  ZipFile file_;  // goes before the archive
  std::int64_t position_ = 0;
  bool in_order_ = true;  // every read so far began where the one before it ended
};

}  // namespace

std::shared_ptr<ZipArchive> open_zip_archive(std::unique_ptr<FileSource> file) {
  return std::make_shared<ZipArchive>(std::move(file));
}

std::vector<std::string> zip_array_names(const ZipArchive& archive, bool npy_only) {
  return array_names(archive.entries, npy_only);
}

std::unique_ptr<ByteSource> open_zip_member(std::shared_ptr<ZipArchive> archive,
                                            const std::string& member, const std::string& name) {
  return std::make_unique<ZipMember>(std::move(archive), member, name);
}

}  // namespace convgrad
