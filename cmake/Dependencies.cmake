# Everything comes from installed packages (Debian 12 has all of it); nothing is downloaded.
find_package(Threads REQUIRED)
find_package(OpenBLAS REQUIRED)  # its package file sets variables only
find_package(xtensor REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)
find_path(NETTLE_INCLUDE_DIR nettle/sha2.h REQUIRED)  # has no CMake package file
find_library(NETTLE_LIBRARY nettle REQUIRED)

add_library(convgrad_nettle INTERFACE)
target_include_directories(convgrad_nettle SYSTEM INTERFACE ${NETTLE_INCLUDE_DIR})
target_link_libraries(convgrad_nettle INTERFACE ${NETTLE_LIBRARY})

add_library(convgrad_openblas INTERFACE)
target_include_directories(convgrad_openblas SYSTEM INTERFACE
  $<BUILD_INTERFACE:${OpenBLAS_INCLUDE_DIRS}>)
target_link_libraries(convgrad_openblas INTERFACE ${OpenBLAS_LIBRARIES})

# Debian's package file of libzip wants its command-line tools too.
find_path(CONVGRAD_LIBZIP_INCLUDE_DIR zip.h)
find_library(CONVGRAD_LIBZIP_LIBRARY zip)
if(NOT CONVGRAD_LIBZIP_INCLUDE_DIR OR NOT CONVGRAD_LIBZIP_LIBRARY)
  message(FATAL_ERROR "libzip was not found (Debian: libzip-dev)")
endif()
mark_as_advanced(CONVGRAD_LIBZIP_INCLUDE_DIR CONVGRAD_LIBZIP_LIBRARY)
add_library(convgrad_libzip INTERFACE)
target_include_directories(convgrad_libzip SYSTEM INTERFACE
  $<BUILD_INTERFACE:${CONVGRAD_LIBZIP_INCLUDE_DIR}>)
target_link_libraries(convgrad_libzip INTERFACE ${CONVGRAD_LIBZIP_LIBRARY})

set(CONVGRAD_HAS_CUDA OFF)
if(NOT CONVGRAD_CUDA STREQUAL "OFF")
  if(CONVGRAD_CUDA STREQUAL "ON")
    find_package(CUDAToolkit REQUIRED)
  else()
    find_package(CUDAToolkit QUIET)
  endif()
  if(TARGET CUDA::cudart_static)
    set(CONVGRAD_HAS_CUDA ON)
  elseif(CONVGRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CONVGRAD_CUDA=ON, but the CUDA Toolkit has no static runtime library")
  endif()
endif()

message(STATUS "convgrad: OpenBLAS ${OpenBLAS_VERSION} (${OpenBLAS_LIBRARIES})")
if(CONVGRAD_HAS_CUDA)
  message(STATUS "convgrad: CUDA Toolkit ${CUDAToolkit_VERSION}")
else()
  message(STATUS "convgrad: no CUDA Toolkit (CONVGRAD_CUDA=${CONVGRAD_CUDA})")
endif()
