# Expands the OpenCL kernels to two texts, for processors and for all other devices, and embeds them.
# Neither an OpenCL driver nor its headers are needed to build; libOpenCL is opened at run time.
option(DETGEMM_OPENCL "Build the OpenCL kernels" ON)

# detgemm_opencl_text(NAME FLAG...): fma.cl expanded with these flags, embedded as dg_opencl_NAME_text.
function(detgemm_opencl_text name)
  set(source ${PROJECT_SOURCE_DIR}/src/opencl/fma.cl)
  set(image ${PROJECT_BINARY_DIR}/opencl/${name}.cl)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/opencl)
  add_custom_command(OUTPUT ${image}
    COMMAND ${CMAKE_C_COMPILER} -E -P -x c -D__OPENCL_VERSION__=120 ${ARGN} -MD -MF ${image}.d -MT ${image}
      -o ${image} ${source}
    DEPENDS ${source} DEPFILE ${image}.d VERBATIM
    COMMENT "Expanding OpenCL kernels fma.cl for ${name}")
  set(symbol dg_opencl_${name}_text)
  set(embedded ${PROJECT_BINARY_DIR}/opencl/${name}_text.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/image.c.in ${embedded} @ONLY)
  set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(detgemm_objects PRIVATE ${embedded})
endfunction()

if(DETGEMM_OPENCL)
  detgemm_opencl_text(gpu)
  detgemm_opencl_text(processor -DDG_FOR_PROCESSORS)
  target_compile_definitions(detgemm_objects PRIVATE DETGEMM_OPENCL_KERNELS)
endif()
