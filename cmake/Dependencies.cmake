# Everything comes from installed packages (Debian 12 has all of it); nothing is downloaded.
find_package(Threads REQUIRED)
find_package(OpenBLAS REQUIRED)  # its package file sets variables only
find_package(xtensor REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(convgrad_openblas INTERFACE)
target_include_directories(convgrad_openblas SYSTEM INTERFACE
  $<BUILD_INTERFACE:${OpenBLAS_INCLUDE_DIRS}>)
target_link_libraries(convgrad_openblas INTERFACE ${OpenBLAS_LIBRARIES})

# SHA-256, with the processor's instructions. Nettle has no CMake package.
find_path(CONVGRAD_NETTLE_INCLUDE nettle/sha2.h REQUIRED)
find_library(CONVGRAD_NETTLE_LIBRARY nettle REQUIRED)
mark_as_advanced(CONVGRAD_NETTLE_INCLUDE CONVGRAD_NETTLE_LIBRARY)
add_library(convgrad_nettle INTERFACE)
target_include_directories(convgrad_nettle SYSTEM INTERFACE ${CONVGRAD_NETTLE_INCLUDE})
target_link_libraries(convgrad_nettle INTERFACE ${CONVGRAD_NETTLE_LIBRARY})

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
