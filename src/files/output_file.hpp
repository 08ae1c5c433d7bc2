// output_file.hpp - a file that appears complete or not at all.
//
// The bytes go to a temporary file in the target's folder, then fsync, rename, fsync of the folder.
// A link's target is replaced, not the link. Devices and FIFOs are written to, never renamed over.
// "-" is standard output; /dev/stdout and /dev/fd/N are redirections and written through as well.
// The mode of a new file follows the umask; a replaced file's mode is kept. A write-protected file
// is not replaced, even where its folder would allow it. An array in an archive (FILE.npz:NAME) is
// refused: ArrayFile writes those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "convgrad/array_file.hpp"

namespace convgrad {

// Throws the Error that OutputFile would throw for what can be seen before computing: the folder
// does not exist or cannot be written to, the target is a folder, or exists with no_clobber.
void check_output(const std::string& path, const OutputOptions& options = {});

class OutputFile {
 public:
  explicit OutputFile(std::string path, const OutputOptions& options = {});
  ~OutputFile();  // without commit(): the temporary is removed, the target stays as it was
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Throws Error(runtime) with the system's reason (disk full, quota, closed pipe) and the path.
  void write(const void* bytes, std::size_t count);
  // Replaces bytes that have been written already. Devices and the like cannot do that.
  void overwrite(std::int64_t offset, const void* bytes, std::size_t count);
  // Makes the file visible. After it returns, the bytes are on the disk under their name.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The function below covers so many OutputFiles at a time.
inline constexpr int kCoveredOutputFiles = 160;

// Removes the temporaries of this process. Async-signal-safe: for the handler of a signal that ends
// the process. A thread that wants another temporary waits for ever, so none is left when the
// handler then ends the process.
void end_temporaries_in_signal_handler() noexcept;

}  // namespace convgrad
