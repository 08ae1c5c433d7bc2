# Everything comes from installed packages (Debian 12 has all of it); nothing is downloaded.
find_package(Threads REQUIRED)
find_package(OpenBLAS REQUIRED)  # its package file sets variables only
find_package(xtensor REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(NETTLE_INCLUDE_DIR nettle/sha2.h REQUIRED)  # has no CMake package file
find_library(NETTLE_LIBRARY nettle REQUIRED)

add_library(convgrad_nettle INTERFACE)
target_include_directories(convgrad_nettle SYSTEM INTERFACE ${NETTLE_INCLUDE_DIR})
target_link_libraries(convgrad_nettle INTERFACE ${NETTLE_LIBRARY})

# Loaded when it is needed (src/cpu/blas.cpp): by the name under which programs are linked to it.
execute_process(COMMAND ${CMAKE_READELF} -d ${OpenBLAS_LIBRARIES}
  OUTPUT_VARIABLE CONVGRAD_OPENBLAS_NAME ERROR_QUIET)
if(NOT CONVGRAD_OPENBLAS_NAME MATCHES "SONAME[^[]*\\[([^]]+)\\]")
  message(FATAL_ERROR "${OpenBLAS_LIBRARIES} is not a shared library (Debian: libopenblas-dev)")
endif()
set(CONVGRAD_OPENBLAS_NAME ${CMAKE_MATCH_1})

# Debian's package file of libzip wants its command-line tools too. libzip comes with zlib, whose
# CRC-32 is used.
find_path(CONVGRAD_LIBZIP_INCLUDE_DIR zip.h)
find_library(CONVGRAD_LIBZIP_LIBRARY zip)
find_path(CONVGRAD_ZLIB_INCLUDE_DIR zlib.h)
find_library(CONVGRAD_ZLIB_LIBRARY z)
if(NOT CONVGRAD_LIBZIP_INCLUDE_DIR OR NOT CONVGRAD_LIBZIP_LIBRARY OR NOT CONVGRAD_ZLIB_INCLUDE_DIR
    OR NOT CONVGRAD_ZLIB_LIBRARY)
  message(FATAL_ERROR "libzip or zlib was not found (Debian: libzip-dev)")
endif()
mark_as_advanced(CONVGRAD_LIBZIP_INCLUDE_DIR CONVGRAD_LIBZIP_LIBRARY CONVGRAD_ZLIB_INCLUDE_DIR
  CONVGRAD_ZLIB_LIBRARY)
add_library(convgrad_libzip INTERFACE)
target_include_directories(convgrad_libzip SYSTEM INTERFACE
  $<BUILD_INTERFACE:${CONVGRAD_LIBZIP_INCLUDE_DIR}>
  $<BUILD_INTERFACE:${CONVGRAD_ZLIB_INCLUDE_DIR}>)
target_link_libraries(convgrad_libzip INTERFACE ${CONVGRAD_LIBZIP_LIBRARY} ${CONVGRAD_ZLIB_LIBRARY})

if(CONVGRAD_BUILD_TESTS)
  find_package(rapidcheck QUIET)
  if(NOT rapidcheck_FOUND)
    message(FATAL_ERROR "The tests need rapidcheck (Debian: librapidcheck-dev); "
      "-DCONVGRAD_BUILD_TESTS=OFF builds without them")
  endif()
  # Its headers have warnings that this project takes for errors.
  set_target_properties(rapidcheck PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
    "$<TARGET_PROPERTY:rapidcheck,INTERFACE_INCLUDE_DIRECTORIES>")
endif()

set(CONVGRAD_HAS_CUDA OFF)
if(NOT CONVGRAD_CUDA STREQUAL "OFF")
  if(CONVGRAD_CUDA STREQUAL "ON")
    find_package(CUDAToolkit REQUIRED)
  else()
    find_package(CUDAToolkit QUIET)
  endif()
  if(TARGET CUDA::cudart_static)
    # SASS for each architecture, and PTX of 80 for those that are newer. No source asks for more
    # than 80, so it is compiled once for 80, 86 and 89, which CMAKE_CUDA_ARCHITECTURES cannot say.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES OFF)
    endif()
    set(CONVGRAD_CUDA_CODE)
    set(CONVGRAD_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CONVGRAD_CUDA_CODE --generate-code=arch=compute_75,code=[sm_75]
        --generate-code=arch=compute_80,code=[compute_80,sm_80,sm_86,sm_89]
        --generate-code=arch=compute_90a,code=[sm_90a])
      set(CONVGRAD_CUDA_ARCHITECTURES 75 80 86 89 90a)
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      set(CONVGRAD_HAS_CUDA ON)
    endif()
  endif()
  if(CONVGRAD_CUDA STREQUAL "ON" AND NOT CONVGRAD_HAS_CUDA)
    message(FATAL_ERROR "CONVGRAD_CUDA=ON, but the CUDA Toolkit has no nvcc or no static runtime library")
  endif()
endif()

set(CONVGRAD_HAS_MPI OFF)
if(NOT CONVGRAD_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is used
  if(CONVGRAD_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  set(CONVGRAD_HAS_MPI ${MPI_CXX_FOUND})
endif()

message(STATUS "convgrad: OpenBLAS ${OpenBLAS_VERSION} (${OpenBLAS_LIBRARIES})")
if(CONVGRAD_HAS_CUDA)
  list(TRANSFORM CONVGRAD_CUDA_ARCHITECTURES REPLACE "-.*" "")
  list(JOIN CONVGRAD_CUDA_ARCHITECTURES " " CONVGRAD_CUDA_ARCHITECTURES)
  message(STATUS "convgrad: CUDA Toolkit ${CUDAToolkit_VERSION} for ${CONVGRAD_CUDA_ARCHITECTURES}")
else()
  message(STATUS "convgrad: no CUDA Toolkit (CONVGRAD_CUDA=${CONVGRAD_CUDA})")
endif()
if(CONVGRAD_HAS_MPI)
  find_file(CONVGRAD_MPI_HEADER mpi.h PATHS ${MPI_CXX_INCLUDE_DIRS} NO_DEFAULT_PATH)
  mark_as_advanced(CONVGRAD_MPI_HEADER)
  file(STRINGS ${CONVGRAD_MPI_HEADER} numbers
    REGEX "define OMPI_(MAJOR|MINOR|RELEASE)_VERSION +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" numbers "${numbers}")
  list(JOIN numbers "." CONVGRAD_MPI_VERSION)  # for --version
  string(PREPEND CONVGRAD_MPI_VERSION "Open MPI ")
  message(STATUS "convgrad: ${CONVGRAD_MPI_VERSION} (${MPI_CXX_LIBRARIES})")
else()
  message(STATUS "convgrad: no MPI (CONVGRAD_MPI=${CONVGRAD_MPI})")
endif()
