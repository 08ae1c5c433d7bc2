# Library, headers, program and a package file for find_package(convgrad).
include(CMakePackageConfigHelpers)

install(TARGETS convgrad convgrad_openblas convgrad_libzip EXPORT convgradTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS convgrad_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/convgrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT convgradTargets NAMESPACE convgrad::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convgrad)
configure_package_config_file(cmake/convgradConfig.cmake.in convgradConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convgrad)
write_basic_package_version_file(convgradConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convgradConfig.cmake
              ${PROJECT_BINARY_DIR}/convgradConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convgrad)
