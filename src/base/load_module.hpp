// load_module.hpp - convgrad's modules: shared objects that are loaded when they are needed. A
// build or an installation may lack them.
#pragma once

#include <string>

namespace convgrad {

struct LoadedModule {
  const void* offers = nullptr;  // what the module's symbol returned; stays loaded for good
  std::string why_none;          // a clause of one line, without a module
};

// Loads the module called file (convgrad_cuda.so) and calls its one symbol, a function without
// arguments that returns a pointer. The module is looked for in the folder that the environment's
// CONVGRAD_MODULES names, beside the program, where an installation has it as seen from the
// program, and where the library was to be installed. flags are dlopen's; is_ours tells whether
// this build can use what the module offers; if not, the next folder is tried.
LoadedModule load_module(const char* file, const char* symbol, int flags,
                         bool (*is_ours)(const void* offers));

}  // namespace convgrad
