# Compiles the HIP kernels with clang into one offload bundle and embeds it. Plain clang with the
# AMDGPU target, its bundler and lld are enough: the kernels use its builtins and no ROCm headers or
# device libraries. libamdhip64 is opened at run time. FORCE_HIP=1 and PYTORCH_ROCM_ARCH are honoured.
set(DETGEMM_HIP AUTO CACHE STRING "Build the HIP kernels: AUTO (where clang can), ON or OFF")
set_property(CACHE DETGEMM_HIP PROPERTY STRINGS AUTO ON OFF)
set(hip_archs "gfx90a;gfx942;gfx1030;gfx1100")
if(NOT "$ENV{PYTORCH_ROCM_ARCH}" STREQUAL "")
  string(REPLACE " " ";" hip_archs "$ENV{PYTORCH_ROCM_ARCH}")
endif()
set(DETGEMM_HIP_ARCHS "${hip_archs}" CACHE STRING
  "Architectures of the HIP kernels; those the compiler does not know are left out")

set(hip_wanted ${DETGEMM_HIP})
if("$ENV{FORCE_HIP}" STREQUAL "1")
  set(hip_wanted ON)
endif()

set(hip_flags -x hip --cuda-device-only -nogpulib -nogpuinc -std=c++17 -O3 -ffp-contract=off)

# The architectures for which the compiler makes an image of a small kernel.
function(detgemm_hip_archs)
  set(known "")
  set(probe ${PROJECT_BINARY_DIR}/hip/probe.hip)
  file(WRITE ${probe} "extern \"C\" __attribute__((global)) void f(float *x) { *x = 1; }\n")
  foreach(arch IN LISTS DETGEMM_HIP_ARCHS)
    execute_process(COMMAND ${DETGEMM_HIP_CLANG} ${hip_flags} --offload-arch=${arch}
      -c -o ${probe}.o ${probe} RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      list(APPEND known ${arch})
    endif()
  endforeach()
  set(hip_known "${known}" PARENT_SCOPE)
endfunction()

if(hip_wanted)
  find_program(DETGEMM_HIP_CLANG
    NAMES clang++ clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14
    HINTS "$ENV{ROCM_PATH}/llvm/bin" PATHS /opt/rocm/llvm/bin DOC "clang with the AMDGPU target")
  set(hip_known "")
  if(DETGEMM_HIP_CLANG)
    detgemm_hip_archs()
  endif()
  if(hip_known)
    message(STATUS "HIP kernels: with ${DETGEMM_HIP_CLANG} for ${hip_known}")
    set(hip_targets "")
    foreach(arch IN LISTS hip_known)
      list(APPEND hip_targets --offload-arch=${arch})
    endforeach()
    detgemm_device_image(hip fma.hip ${DETGEMM_HIP_CLANG} ${hip_flags} ${hip_targets} -c)
  elseif(hip_wanted STREQUAL "AUTO")
    message(STATUS "HIP kernels: none, no clang with the AMDGPU target and lld was found")
  else()
    message(FATAL_ERROR "HIP kernels: no clang that compiles for any of ${DETGEMM_HIP_ARCHS} was found. "
      "Install clang 14 or later, its clang-offload-bundler (clang-tools) and lld, or ROCm and set ROCM_PATH, or configure with "
      "-DDETGEMM_HIP=OFF and without FORCE_HIP=1.")
  endif()
endif()
