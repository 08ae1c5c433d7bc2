# cpack: convgrad_*.deb (the program) and libconvgrad-dev_*.deb (library, headers, CMake package).
# dpkg-shlibdeps, from Debian's dpkg-dev, finds out what the program depends on.
set(CONVGRAD_PACKAGE_CONTACT "convgrad <convgrad@localhost>" CACHE STRING
  "Maintainer in the packages' control files: NAME <ADDRESS>")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME convgrad)
set(CPACK_PACKAGE_CONTACT ${CONVGRAD_PACKAGE_CONTACT})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian_layout.cmake)
set(CPACK_COMPONENTS_ALL program development)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
"convgrad computes the gradient of a convolution with respect to its filter,
from .npy files to a .npy file, by TensorFlow's definitions: conv2d, depthwise
conv2d and conv3d in float16, bfloat16, float32 and float64. It verifies and
measures gradients, too.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME convgrad)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libopenblas0)  # loaded, not linked
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "openmpi-bin, python3-matplotlib")  # of --mpi, convgrad.plot
# The module for MPI is loaded where MPI is; it is no reason to install that.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/packaging/without_mpi.cmake)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"The library behind the program convgrad, for C++20: static library, headers
and a CMake package, find_package(convgrad).")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libconvgrad-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libopenblas0, libzip-dev, zlib1g-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS cmake)
include(CPack)
