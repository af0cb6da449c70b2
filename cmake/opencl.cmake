# Expands the OpenCL kernels to one text and embeds it. Neither an OpenCL driver nor its headers are
# needed to build; libOpenCL is opened at run time.
option(DETGEMM_OPENCL "Build the OpenCL kernels" ON)

if(DETGEMM_OPENCL)
  set(source ${PROJECT_SOURCE_DIR}/src/opencl/fma.cl)
  set(image ${PROJECT_BINARY_DIR}/opencl/fma.cl)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/opencl)
  add_custom_command(OUTPUT ${image}
    COMMAND ${CMAKE_C_COMPILER} -E -P -x c -D__OPENCL_VERSION__=120 -MD -MF ${image}.d -MT ${image}
      -o ${image} ${source}
    DEPENDS ${source} DEPFILE ${image}.d VERBATIM
    COMMENT "Expanding OpenCL kernels fma.cl")
  set(symbol dg_opencl_fma_image)
  set(embedded ${PROJECT_BINARY_DIR}/opencl/fma_image.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/image.c.in ${embedded} @ONLY)
  set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(detgemm_objects PRIVATE ${embedded})
  target_compile_definitions(detgemm_objects PRIVATE DETGEMM_OPENCL_KERNELS)
endif()
