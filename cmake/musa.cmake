# Compiles the MUSA kernels with mcc into one offload bundle and embeds it. No device or driver is
# needed for that; libmusa is opened at run time. Users of the platform know these variables:
# MUSA_HOME, MUSA_PATH, TORCH_MUSA_ARCH_LIST ("21;22;31") and FORCE_MUSA=1.
set(DETGEMM_MUSA AUTO CACHE STRING "Build the MUSA kernels: AUTO (where mcc is), ON or OFF")
set_property(CACHE DETGEMM_MUSA PROPERTY STRINGS AUTO ON OFF)
set(musa_archs "21;22;31")
if(NOT "$ENV{TORCH_MUSA_ARCH_LIST}" STREQUAL "")
  string(REPLACE " " ";" musa_archs "$ENV{TORCH_MUSA_ARCH_LIST}")
endif()
set(DETGEMM_MUSA_ARCHS "${musa_archs}" CACHE STRING "Architectures of the MUSA kernels, as 21;22;31")

set(musa_wanted ${DETGEMM_MUSA})
if("$ENV{FORCE_MUSA}" STREQUAL "1")
  set(musa_wanted ON)
endif()

if(musa_wanted)
  find_program(DETGEMM_MCC mcc
    HINTS "$ENV{MUSA_HOME}/bin" "$ENV{MUSA_PATH}/bin" PATHS /usr/local/musa/bin
    DOC "Moore Threads' MUSA compiler")
  if(DETGEMM_MCC AND NOT DETGEMM_MUSA_ARCHS)
    message(FATAL_ERROR "DETGEMM_MUSA_ARCHS is empty; set it to a list such as \"21;22;31\"")
  endif()
  set(musa_flags "")
  foreach(arch IN LISTS DETGEMM_MUSA_ARCHS)
    if(NOT arch MATCHES "^[2-9][0-9]$")
      message(FATAL_ERROR "MUSA architecture \"${arch}\" is not two digits such as 31; set "
        "DETGEMM_MUSA_ARCHS or TORCH_MUSA_ARCH_LIST to a list such as \"21;22;31\"")
    endif()
    list(APPEND musa_flags --offload-arch=mp_${arch})
  endforeach()
  if(DETGEMM_MCC)
    message(STATUS "MUSA kernels: with ${DETGEMM_MCC} for mp_${DETGEMM_MUSA_ARCHS}")
    detgemm_device_image(musa fma.mu
      ${DETGEMM_MCC} -x musa -mtgpu --cuda-device-only ${musa_flags} -std=c++17 -O3
      -ffp-contract=off)
  elseif(musa_wanted STREQUAL "AUTO")
    message(STATUS "MUSA kernels: none, mcc was not found")
  else()
    message(FATAL_ERROR "MUSA kernels: mcc was not found. Install the MUSA SDK and set MUSA_HOME to its "
      "folder, or configure with -DDETGEMM_MUSA=OFF and without FORCE_MUSA=1.")
  endif()
endif()
