# Tests of the command-line tool and the fuzz targets; included where both are built.
find_library(CMOCKA_LIBRARY cmocka)
if(CMOCKA_LIBRARY)
  add_executable(test_cli ${CMAKE_CURRENT_LIST_DIR}/test_cli.c)
  target_compile_definitions(test_cli PRIVATE _GNU_SOURCE)
  target_link_libraries(test_cli PRIVATE detgemm_flags PkgConfig::JANSSON ${CMOCKA_LIBRARY})
  add_test(NAME cli COMMAND test_cli $<TARGET_FILE:detgemm> ${CMAKE_CURRENT_LIST_DIR}/vectors)
  set_tests_properties(cli PROPERTIES TIMEOUT 300)
endif()

if(DETGEMM_FUZZ) # clang only
  set(fuzz_flags -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  foreach(target safetensors npy gemm grouped)
    add_executable(fuzz_${target} ${CMAKE_CURRENT_LIST_DIR}/fuzz_${target}.c)
    target_compile_definitions(fuzz_${target} PRIVATE _GNU_SOURCE)
    target_compile_options(fuzz_${target} PRIVATE ${fuzz_flags})
    target_link_libraries(fuzz_${target} PRIVATE detgemm_flags detgemm::static ${fuzz_flags})
  endforeach()
  foreach(target gemm grouped)
    target_sources(fuzz_${target} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/fuzz_arena.c)
  endforeach()
  foreach(target safetensors npy)
    target_sources(fuzz_${target} PRIVATE
      ${PROJECT_SOURCE_DIR}/tools/answer.c ${PROJECT_SOURCE_DIR}/tools/common.c ${PROJECT_SOURCE_DIR}/tools/tensor.c
      ${PROJECT_SOURCE_DIR}/tools/npy.c ${PROJECT_SOURCE_DIR}/tools/safetensors.c)
    target_include_directories(fuzz_${target} PRIVATE ${PROJECT_SOURCE_DIR}/tools)
    target_link_libraries(fuzz_${target} PRIVATE PkgConfig::JANSSON)
  endforeach()
endif()
