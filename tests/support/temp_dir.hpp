// temp_dir.hpp - a folder for one test, and the files in it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace convgrad::testing {

// The folder is made with the object and removed with it.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "convgrad-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = std::filesystem::canonical(name).string();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Writes bytes to the file of that name and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string path = file(name);
    // ext4 waits for the disk when a file is written over, not when it is a new one.
    std::filesystem::remove(path);
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream.close();
    if (!stream.good()) throw std::runtime_error("cannot write " + path);
    return path;
  }

  // Returns the names in the folder, sorted, hidden ones too.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      result.push_back(entry.path().filename().string());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream.good()) throw std::runtime_error("cannot read " + path);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return std::move(bytes).str();
}

}  // namespace convgrad::testing
