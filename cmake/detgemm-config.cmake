# find_package(detgemm): detgemm::shared, detgemm::static, and detgemm::detgemm for either.
include(${CMAKE_CURRENT_LIST_DIR}/detgemm-targets.cmake)
if(NOT TARGET detgemm::detgemm)
  add_library(detgemm::detgemm ALIAS detgemm::shared)
endif()
