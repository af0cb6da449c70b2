# detgemm_device_image(PLATFORM SOURCE COMMAND...): src/gpu/PLATFORM/SOURCE becomes one device image
# by COMMAND ... -o IMAGE SOURCE, embedded as dg_PLATFORM_fma_image.
function(detgemm_device_image platform file)
  set(source ${PROJECT_SOURCE_DIR}/src/gpu/${platform}/${file})
  set(image ${PROJECT_BINARY_DIR}/${platform}/fma.bundle)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${platform})
  file(GLOB parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/gpu/*.inc
    ${PROJECT_SOURCE_DIR}/src/gpu/portable.h ${PROJECT_SOURCE_DIR}/src/gpu/fma_tiles.h
    ${PROJECT_SOURCE_DIR}/src/gpu/tuning.h ${PROJECT_SOURCE_DIR}/src/problem.h)
  add_custom_command(OUTPUT ${image} COMMAND ${ARGN} -o ${image} ${source}
    DEPENDS ${source} ${parts} VERBATIM COMMENT "Compiling ${platform} kernels ${file}")
  set(symbol dg_${platform}_fma_image)
  set(embedded ${PROJECT_BINARY_DIR}/${platform}/fma_image.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/image.c.in ${embedded} @ONLY)
  set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(detgemm_objects PRIVATE ${embedded})
  string(TOUPPER ${platform} PLATFORM)
  target_compile_definitions(detgemm_objects PRIVATE DETGEMM_${PLATFORM}_KERNELS)
endfunction()
