#include "engine/machine.hpp"

#include <sched.h>
#include <sys/syscall.h>
#ifdef __x86_64__
#include <cpuid.h>
#else
#include <sys/auxv.h>
#include <sys/utsname.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "convgrad/error.hpp"
#include "files/byte_source.hpp"

namespace convgrad {
namespace {

// Reads the beginning of a file of the system, which has more in it than is looked for; "" if there
// is none. One that is there and cannot be read is an error: other kernels would be chosen without
// it.
std::string system_file(const char* path) {
  if (access(path, R_OK) != 0 && (errno == ENOENT || errno == EACCES)) return "";
  FileSource file(path);
  std::string text(std::size_t{1} << 14, '\0');  // a processor of /proc/cpuinfo has some 3 KiB
  const std::int64_t size =
      file.read(reinterpret_cast<std::byte*>(text.data()), std::ssize(text), 0);
  text.resize(static_cast<std::size_t>(size));
  return text;
}

// Returns the value of "key : value" of the first processor in /proc/cpuinfo.
std::string first_value(const std::string& cpuinfo, const std::string& key) {
  TextReader file(cpuinfo);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

std::int64_t usable_memory() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  TextReader group(system_file("/sys/fs/cgroup/memory.max"));  // "max" or a number
  std::int64_t limit = 0;
  if (group >> limit && limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

#ifdef __x86_64__

std::string processor_name(const std::string& cpuinfo) {
  return first_value(cpuinfo, "model name");
}

// Linux keeps AMX's 8 KiB of tile registers from a process until it asks for them; all threads
// that it starts afterwards may use them.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Linux 6.1 does not list amx_fp16 in /proc/cpuinfo, so the processor is asked itself.
bool has_amx_fp16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 21 & 1) != 0;
}

std::vector<std::string> instruction_sets(const std::string& cpuinfo) {
  std::vector<std::string> sets;
  TextReader flags(first_value(cpuinfo, "flags"));
  for (std::string flag; flags >> flag;) {
    if (std::ranges::count(known_instruction_sets(), flag) > 0) sets.push_back(flag);
  }
  const auto has = [&](const char* set) { return std::ranges::count(sets, set) > 0; };
  if (has("amx_tile") && !has("amx_fp16") && has_amx_fp16()) sets.emplace_back("amx_fp16");
  const auto is_amx = [](const std::string& set) { return set.starts_with("amx"); };
  if (std::ranges::any_of(sets, is_amx) && !may_use_tiles()) std::erase_if(sets, is_amx);
  return sets;
}

#else

// Elsewhere Linux has no names of processors, only numbers at most.
std::string processor_name(const std::string& cpuinfo) {
  utsname system = {};
  std::string name = uname(&system) == 0 ? system.machine : "";
  for (const char* key : {"CPU implementer", "CPU part"}) {
    const std::string number = first_value(cpuinfo, key);
    if (!number.empty()) name += cat(", ", key, " ", number);
  }
  return name;
}

// Asks for what the kernel tells each process: an emulator leaves /proc/cpuinfo as it is outside.
std::vector<std::string> instruction_sets(const std::string&) {
#ifdef __aarch64__
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0) return {"neon"};
#endif
  return {};
}

#endif

}  // namespace

std::vector<std::string> known_instruction_sets() {
  return {"sse2",        "avx",      "f16c",     "fma",      "avx2",
          "avx512f",     "avx512bw", "avx512dq", "avx512vl", "avx512_bf16",
          "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"};
}

std::string lacks(const Machine& machine, std::initializer_list<const char*> sets) {
  const std::vector<std::string>& has = machine.instruction_sets;
  for (const char* set : sets) {
    if (std::ranges::count(has, set) == 0) return cat("the processor has no ", set);
  }
  return "";
}

const Machine& this_machine() {
  static const Machine machine = [] {
    const std::string cpuinfo = system_file("/proc/cpuinfo");
    return Machine{processor_name(cpuinfo), usable_threads(), usable_memory(),
                   instruction_sets(cpuinfo)};
  }();
  return machine;
}

}  // namespace convgrad
