// load_module.hpp - convgrad's modules: shared objects that are loaded when what they do is asked
// for, and that a build or an installation may be without.
#pragma once

#include <string>

namespace convgrad {

struct LoadedModule {
  const void* offers = nullptr;  // what the module's symbol returned; stays loaded for good
  std::string why_none;          // a clause of one line, without a module
};

// The module called file (convgrad_cuda.so) and what its one symbol, a function without arguments,
// returns a pointer to. Looked for in the folder that the environment's CONVGRAD_MODULES names,
// beside the program, where an installation has it as seen from the program, and where the library
// was to be installed. flags are dlopen's; is_ours tells whether this build can use what the module
// offers: the next folder's turn, if not.
LoadedModule load_module(const char* file, const char* symbol, int flags,
                         bool (*is_ours)(const void* offers));

// Whether there is a file of this name in one of those folders; nothing is loaded.
bool has_module(const char* file);

}  // namespace convgrad
