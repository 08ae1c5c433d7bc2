# Two parts: program (with manual and completions) and development (library, headers and a package
# file for find_package(convgrad)). cmake --install takes both.
include(CMakePackageConfigHelpers)
set(CONVGRAD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/convgrad)

install(TARGETS convgrad_program COMPONENT program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(CONVGRAD_HAS_MPI)
  install(TARGETS convgrad_mpi COMPONENT program LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/convgrad)
endif()
if(CONVGRAD_HAS_CUDA)
  install(TARGETS convgrad_cuda COMPONENT program LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/convgrad)
endif()
install(FILES README.md LICENSE CHANGELOG.md COMPONENT program DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs COMPONENT program DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json")
install(DIRECTORY bench/layers/ COMPONENT program DESTINATION ${CMAKE_INSTALL_DATADIR}/convgrad/suites)
# PYTHONPATH=<prefix>/share/convgrad python3 -m convgrad.plot
install(DIRECTORY python/convgrad COMPONENT program DESTINATION ${CMAKE_INSTALL_DATADIR}/convgrad
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE)

install(TARGETS convgrad convgrad_libzip EXPORT convgradTargets COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/convgrad COMPONENT development DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT convgradTargets NAMESPACE convgrad:: COMPONENT development
  DESTINATION ${CONVGRAD_PACKAGE_DIR})
configure_package_config_file(cmake/convgradConfig.cmake.in convgradConfig.cmake
  INSTALL_DESTINATION ${CONVGRAD_PACKAGE_DIR})
write_basic_package_version_file(convgradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convgradConfig.cmake
              ${PROJECT_BINARY_DIR}/convgradConfigVersion.cmake
  COMPONENT development DESTINATION ${CONVGRAD_PACKAGE_DIR})
install(FILES LICENSE CHANGELOG.md COMPONENT development
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libconvgrad-dev)
install(DIRECTORY examples/ COMPONENT development
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libconvgrad-dev/examples)
