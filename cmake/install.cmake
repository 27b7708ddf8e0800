# What `cmake --install` puts in place, and the package that find_package(gemmule) finds.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gemmule)
install(TARGETS gemmule EXPORT gemmule-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gemmule DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT gemmule-targets NAMESPACE gemmule:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gemmule-config.cmake.in
  ${PROJECT_BINARY_DIR}/gemmule-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gemmule-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gemmule-config.cmake ${PROJECT_BINARY_DIR}/gemmule-config-version.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
