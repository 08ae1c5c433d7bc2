# convgrad_options: what every target of this project is compiled with.
add_library(convgrad_options INTERFACE)
# What nvcc makes of a .cu file is not pedantic.
target_compile_options(convgrad_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wpedantic>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>)
# What is compiled for: x86_64, aarch64 or another kind of processor.
string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" CONVGRAD_PROCESSOR)
string(REGEX REPLACE "^amd64$" x86_64 CONVGRAD_PROCESSOR "${CONVGRAD_PROCESSOR}")
string(REGEX REPLACE "^arm64$" aarch64 CONVGRAD_PROCESSOR "${CONVGRAD_PROCESSOR}")
if(NOT CONVGRAD_PROCESSOR STREQUAL "x86_64")
  # Every x86-64 processor multiplies and adds in two steps; where every processor has multiply-adds,
  # the compiler would take them anywhere, and generated tensors and portable kernels' results
  # would be other bits than those of x86-64.
  target_compile_options(convgrad_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
endif()
if(CONVGRAD_WERROR)
  target_compile_options(convgrad_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(CONVGRAD_SANITIZE)
  # The sanitizers' checks make GCC 12 take members of libstdc++'s std::regex for uninitialised.
  target_compile_options(convgrad_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
    -fsanitize=${CONVGRAD_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>;
    $<$<CXX_COMPILER_ID:Clang>:-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/not_sanitized.txt>>)
  target_link_options(convgrad_options INTERFACE -fsanitize=${CONVGRAD_SANITIZE})
endif()
if(CONVGRAD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "CONVGRAD_FUZZ=ON, but the compiler is ${CMAKE_CXX_COMPILER_ID}, expected clang: use the preset fuzz")
  endif()
  # But for targets that no fuzzer runs.
  target_compile_options(convgrad_options INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:CONVGRAD_UNTRACED>>>:-fsanitize=fuzzer-no-link>)
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Release keeps assert() off and optimises fully; no fast-math anywhere.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")

# The presets compile several sources as one (CMAKE_UNITY_BUILD): a build from nothing takes a fifth
# less. -DCMAKE_UNITY_BUILD=OFF suits those who edit one source again and again.
if(CMAKE_UNITY_BUILD)  # GCC takes the sources for headers, in which that would be a mistake
  target_compile_options(convgrad_options INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

# Links the libraries of GCC into a program or a module that is installed where they may be older or missing.
function(convgrad_portable target)
  if(CONVGRAD_PORTABLE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/older_glibc.cpp)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
  endif()
endfunction()

# Programs that scripts/gpu/stage copies: they find their libraries in lib/ beside them. By RPATH,
# which counts for the libraries of libraries too, not RUNPATH; an installation has neither.
function(convgrad_stageable target)
  if(CONVGRAD_HAS_CUDA)
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/lib")
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endif()
endfunction()

# Read once for all sources of a target, where they take a third of the time to compile one, and
# once for all targets of a folder. Not for those of other options, which precompiled headers must
# share. convgrad_precompile(TARGET [OTHER] [HEADERS...]): of TARGET, or with OTHER, a target.
function(convgrad_precompile target)
  if(ARGC GREATER 1 AND TARGET ${ARGV1} AND NOT target STREQUAL ARGV1)
    target_precompile_headers(${target} REUSE_FROM ${ARGV1})
  else()
    set(more ${ARGN})
    list(FILTER more INCLUDE REGEX "^<")
    target_precompile_headers(${target} PRIVATE <algorithm> <array> <bit> <cmath> <cstring>
      <functional> <limits> <map> <optional> <random> <span> <sstream> <string> <vector> ${more})
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  list(FILTER sources EXCLUDE REGEX "^[$]")
  list(TRANSFORM sources PREPEND ${folder}/)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
    if(options)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target}
        PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
