# Installs the libraries, the header, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)

# What a program that links the static library must link too, in plain flags, so that its build
# needs to find no package.
set(static_link_flags -lm -lpthread)
if(CMAKE_DL_LIBS)
  list(APPEND static_link_flags -l${CMAKE_DL_LIBS})
endif()
if(OpenMP_C_FOUND AND OpenMP_C_FLAGS STREQUAL "-fopenmp")
  list(APPEND static_link_flags -fopenmp) # gcc's; clang's library knows it too
elseif(OpenMP_C_FOUND)
  list(APPEND static_link_flags ${OpenMP_C_LIBRARIES})
endif()
target_link_libraries(detgemm_static INTERFACE $<INSTALL_INTERFACE:${static_link_flags}>)
list(JOIN static_link_flags " " static_link_flags)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/detgemm)
install(TARGETS detgemm_shared detgemm_static EXPORT detgemm
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/detgemm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT detgemm NAMESPACE detgemm:: FILE detgemm-targets.cmake DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/detgemm-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/detgemm-config.cmake ${PROJECT_BINARY_DIR}/detgemm-config-version.cmake
  DESTINATION ${package_dir})

# The .pc file finds its prefix from its own place, so that the tree can be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}") # then the file cannot move with the prefix
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(PREPEND pc_prefix "\${pcfiledir}/")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(pc_${dir} ${CMAKE_INSTALL_${dir}})
  if(NOT IS_ABSOLUTE "${pc_${dir}}")
    string(PREPEND pc_${dir} "\${prefix}/")
  endif()
endforeach()
configure_file(cmake/detgemm.pc.in ${PROJECT_BINARY_DIR}/detgemm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/detgemm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
