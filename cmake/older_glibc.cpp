// older_glibc.cpp - what the libraries of GCC 12 take of glibc 2.35 and 2.36, where Debian 12
// compiled them for these: with CONVGRAD_PORTABLE they are linked in, find this here, and
// glibc 2.34 will do.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

// Fills in what the unwinder reads, if the address is in this object.
int look_into(dl_phdr_info* object, std::size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  bool is_inside = false;
  void* eh_frame = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    const std::uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && search.address - begin < header.p_memsz) is_inside = true;
    if (header.p_type == PT_GNU_EH_FRAME) eh_frame = reinterpret_cast<void*>(begin);
  }
  if (!is_inside || eh_frame == nullptr) return 0;
  search.found->dlfo_eh_frame = eh_frame;
  return 1;
}

}  // namespace

extern "C" {

// How libgcc's unwinder finds the tables of an address (glibc 2.35).
int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search = {reinterpret_cast<std::uintptr_t>(address), found};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

// What libstdc++'s std::random_device takes (glibc 2.36).
std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) std::abort();
  return number;
}

}  // extern "C"
