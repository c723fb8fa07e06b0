# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# MLIR/LLVM 22 as Debian ships it: one shared library each.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/llvm-22)
find_package(MLIR REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

add_library(kiln_mlir INTERFACE)
target_include_directories(kiln_mlir SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_link_libraries(kiln_mlir INTERFACE MLIR LLVM)
target_link_libraries(kiln_mlir INTERFACE kiln_options)
