# Compiles the CUDA kernels with nvcc and embeds them. No device or driver is needed for that, and
# the library needs none to build or to run; libcuda is opened at run time.
set(DETGEMM_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where nvcc is), ON or OFF")
set_property(CACHE DETGEMM_CUDA PROPERTY STRINGS AUTO ON OFF)

set(cuda_wanted ${DETGEMM_CUDA})
if("$ENV{FORCE_CUDA}" STREQUAL "1")
  set(cuda_wanted ON)
endif()

# name, then the targets as nvcc's -gencode wants them
set(cuda_fma_targets arch=compute_80,code=sm_80 arch=compute_90,code=sm_90
  arch=compute_80,code=compute_80)
set(cuda_tc16_targets arch=compute_90a,code=sm_90a)

function(detgemm_find_nvcc)
  find_program(DETGEMM_NVCC nvcc
    HINTS "$ENV{CUDACXX}" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" "${CUDAToolkit_ROOT}/bin"
    PATHS /usr/local/cuda/bin DOC "NVIDIA's CUDA compiler")
  set(problem "")
  if(NOT DETGEMM_NVCC)
    set(problem "nvcc was not found")
  else()
    execute_process(COMMAND ${DETGEMM_NVCC} --version OUTPUT_VARIABLE text ERROR_VARIABLE text
      RESULT_VARIABLE status)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${text}")
    if(NOT status EQUAL 0)
      set(problem "${DETGEMM_NVCC} does not run")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12.0)
      set(problem "${DETGEMM_NVCC} is of CUDA ${CMAKE_MATCH_1}; 12.0 or later is needed")
    endif()
  endif()
  set(cuda_version "${CMAKE_MATCH_1}" PARENT_SCOPE)
  set(cuda_problem "${problem}" PARENT_SCOPE)
endfunction()

# src/gpu/cuda/<name>.cu becomes a fat binary and an object file with the symbol dg_cuda_<name>_image.
function(detgemm_cuda_image name targets)
  set(source ${PROJECT_SOURCE_DIR}/src/gpu/cuda/${name}.cu)
  set(image ${PROJECT_BINARY_DIR}/cuda/${name}.fatbin)
  set(gencode "")
  foreach(target IN LISTS targets)
    list(APPEND gencode -gencode ${target})
  endforeach()
  add_custom_command(OUTPUT ${image}
    COMMAND ${DETGEMM_NVCC} --fatbin -std=c++17 -O3 -fmad=false -Werror=all-warnings ${gencode}
      -I ${PROJECT_SOURCE_DIR}/include -MD -MF ${image}.d -o ${image} ${source}
    DEPENDS ${source} DEPFILE ${image}.d VERBATIM
    COMMENT "Compiling CUDA kernels ${name}.cu")
  set(symbol dg_cuda_${name}_image)
  set(embedded ${PROJECT_BINARY_DIR}/cuda/${name}_image.c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/image.c.in ${embedded} @ONLY)
  set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS ${image})
  target_sources(detgemm_objects PRIVATE ${embedded})
endfunction()

if(cuda_wanted)
  detgemm_find_nvcc()
  if(NOT cuda_problem)
    message(STATUS "CUDA kernels: with ${DETGEMM_NVCC} of CUDA ${cuda_version}")
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda)
    target_compile_definitions(detgemm_objects PRIVATE DETGEMM_CUDA_KERNELS)
    # One line per .cu file; src/gpu/cuda/cuda.h lists them too.
    detgemm_cuda_image(fma "${cuda_fma_targets}")
    detgemm_cuda_image(fma_grouped "${cuda_fma_targets}")
    detgemm_cuda_image(tc16_any "${cuda_tc16_targets}")
    detgemm_cuda_image(tc16_copy "${cuda_tc16_targets}")
    detgemm_cuda_image(tc16_stream "${cuda_tc16_targets}")
    detgemm_cuda_image(tc16_wgmma "${cuda_tc16_targets}")
  elseif(cuda_wanted STREQUAL "AUTO")
    message(STATUS "CUDA kernels: none, ${cuda_problem}")
  else()
    message(FATAL_ERROR "CUDA kernels: ${cuda_problem}. Install the CUDA toolkit 12.0 or later (the "
      "package cuda-nvcc of NVIDIA's repository is enough), add its bin folder to PATH or set "
      "CUDA_HOME; or configure with -DDETGEMM_CUDA=OFF and without FORCE_CUDA=1.")
  endif()
endif()
