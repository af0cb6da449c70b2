# The GPU host layer against test doubles of the drivers. detgemm_driver_double(PLATFORM LIBRARY)
# makes the double and runs test_gpu_host against it; tests/fake_PLATFORM.h has its names.
find_library(CMOCKA_LIBRARY cmocka)

# The kernels' own source, the same for all doubles. They read rows of numbers as vectors, as on a
# GPU. At -O2 the address sanitizer makes their compilation take minutes.
add_library(native_kernels OBJECT EXCLUDE_FROM_ALL native_kernels.c)
target_compile_definitions(native_kernels PRIVATE _GNU_SOURCE)
target_include_directories(native_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_options(native_kernels PRIVATE -O1 -fno-strict-aliasing -Wno-cast-qual
  -Wno-strict-prototypes -Wno-unknown-pragmas $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
if(NOT CMAKE_CROSSCOMPILING) # it runs here: fused multiply-adds need no call
  target_compile_options(native_kernels PRIVATE $<$<CONFIG:Release>:-O2> $<$<CONFIG:Release>:-march=native>)
endif()
target_link_libraries(native_kernels PRIVATE detgemm_flags)

function(detgemm_driver_double platform library)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/fake_${platform})
  add_library(fake_${platform} SHARED fake_driver.c fake_tool.c ${PROJECT_SOURCE_DIR}/src/reference.c
    ${PROJECT_SOURCE_DIR}/src/order_fma.c ${PROJECT_SOURCE_DIR}/src/order_tc16.c)
  set_target_properties(fake_${platform} PROPERTIES PREFIX "" OUTPUT_NAME ${library} SUFFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${folder})
  target_compile_definitions(fake_${platform} PRIVATE _GNU_SOURCE FAKE_NAMES="fake_${platform}.h")
  target_include_directories(fake_${platform} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(fake_${platform} PRIVATE detgemm_flags Threads::Threads m)

  add_executable(test_gpu_host_${platform} test_gpu_host.c on_cpu.c fake_images.c
    $<TARGET_OBJECTS:native_kernels> $<TARGET_OBJECTS:detgemm_objects>)
  target_compile_definitions(test_gpu_host_${platform} PRIVATE _GNU_SOURCE
    $<TARGET_PROPERTY:detgemm_objects,COMPILE_DEFINITIONS>
    FAKE_NAMES="fake_${platform}.h" FAKE_LIBRARY="${library}" FAKE_DEVICE="${platform}")
  target_include_directories(test_gpu_host_${platform} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(test_gpu_host_${platform} PRIVATE detgemm_flags ${link_libraries}
    ${CMOCKA_LIBRARY})
  add_dependencies(test_gpu_host_${platform} fake_${platform})
  add_test(NAME gpu_host_${platform} COMMAND test_gpu_host_${platform})
  set_tests_properties(gpu_host_${platform} PROPERTIES TIMEOUT 300
    ENVIRONMENT "LD_LIBRARY_PATH=${folder};OCL_ICD_VENDORS=/nonexistent")
endfunction()

set_source_files_properties(fake_driver.c fake_tool.c PROPERTIES
  COMPILE_OPTIONS -Wno-missing-prototypes)
if(CMOCKA_LIBRARY)
  detgemm_driver_double(cuda libcuda.so.1)
  detgemm_driver_double(musa libmusa.so)
  detgemm_driver_double(hip libamdhip64.so.6)
endif()

# The same for OpenCL, whose interface is another.
if(CMOCKA_LIBRARY AND DETGEMM_OPENCL)
  add_library(fake_opencl SHARED fake_opencl.c)
  set_target_properties(fake_opencl PROPERTIES PREFIX "" OUTPUT_NAME libOpenCL.so.1 SUFFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_opencl)
  target_compile_definitions(fake_opencl PRIVATE _GNU_SOURCE)
  target_include_directories(fake_opencl PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(fake_opencl PRIVATE detgemm_flags Threads::Threads)
  add_executable(test_opencl_host test_opencl_host.c on_cpu.c $<TARGET_OBJECTS:detgemm_objects>)
  target_compile_definitions(test_opencl_host PRIVATE _GNU_SOURCE
    $<TARGET_PROPERTY:detgemm_objects,COMPILE_DEFINITIONS>)
  target_include_directories(test_opencl_host PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(test_opencl_host PRIVATE detgemm_flags ${link_libraries} ${CMOCKA_LIBRARY})
  add_dependencies(test_opencl_host fake_opencl)
  add_test(NAME gpu_host_opencl COMMAND test_opencl_host)
  set_tests_properties(gpu_host_opencl PROPERTIES TIMEOUT 300
    ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/fake_opencl")
endif()

# For a simulator; scripts/stages.sh runs it.
add_executable(opencl_kernels opencl_kernels.c $<TARGET_OBJECTS:detgemm_objects>)
target_compile_definitions(opencl_kernels PRIVATE _GNU_SOURCE)
target_include_directories(opencl_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(opencl_kernels PRIVATE detgemm_flags ${link_libraries})

# bench/call_cost.c says what it is.
add_executable(call_cost ${PROJECT_SOURCE_DIR}/bench/call_cost.c fake_images.c
  $<TARGET_OBJECTS:detgemm_objects>)
target_compile_definitions(call_cost PRIVATE _GNU_SOURCE
  $<TARGET_PROPERTY:detgemm_objects,COMPILE_DEFINITIONS>)
target_include_directories(call_cost PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(call_cost PRIVATE detgemm_flags ${link_libraries})

# The tool's own sweep on the doubles, whose portable kernels run natively on this processor.
if(CMOCKA_LIBRARY AND DETGEMM_TOOL)
  get_target_property(tool_sources detgemm SOURCES)
  list(TRANSFORM tool_sources PREPEND ${PROJECT_SOURCE_DIR}/tools/)
  add_executable(detgemm_double verify_double.c fake_images.c ${tool_sources}
    $<TARGET_OBJECTS:native_kernels>)
  target_compile_definitions(detgemm_double PRIVATE
    $<TARGET_PROPERTY:detgemm_objects,COMPILE_DEFINITIONS>)
  target_link_libraries(detgemm_double PRIVATE detgemm_readers PkgConfig::CRYPTO Threads::Threads
    ${CMAKE_DL_LIBS})
  foreach(platform cuda musa hip)
    add_test(NAME verify_${platform}_double COMMAND detgemm_double verify --quick --order fma
      --device ${platform}:0)
    get_target_property(library fake_${platform} OUTPUT_NAME)
    set_tests_properties(verify_${platform}_double PROPERTIES TIMEOUT 600 ENVIRONMENT
      "LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/fake_${platform};FAKE_LIBRARY=${library}")
    add_dependencies(detgemm_double fake_${platform})
  endforeach()
endif()

# The arithmetic in the HIP kernels' machine code.
find_program(PYTHON3 python3)
if(hip_known AND PYTHON3)
  execute_process(COMMAND ${DETGEMM_HIP_CLANG} -print-prog-name=llvm-objdump
    OUTPUT_VARIABLE objdump OUTPUT_STRIP_TRAILING_WHITESPACE)
  add_test(NAME hip_code COMMAND ${PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/device_code.py amdgcn
    ${PROJECT_BINARY_DIR}/hip/fma.bundle ${objdump} ${PROJECT_SOURCE_DIR}/src/gpu/hip/fma.hip
    ${DETGEMM_HIP_CLANG} ${hip_flags})
  set_tests_properties(hip_code PROPERTIES TIMEOUT 300)
endif()

detgemm_test(opencl test_opencl)
target_link_libraries(test_opencl PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)

# What needs a real GPU; skipped with a count where there is none.
detgemm_test(gpu_device test_gpu_device)
detgemm_test(gpu_device_sweep test_gpu_device --sweep)
