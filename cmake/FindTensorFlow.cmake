# Finds the TensorFlow of the Python interpreter `Python_EXECUTABLE`, without importing it.
#
# Defines the target TensorFlow::TensorFlow (headers, ABI flags, libraries) and
#   TensorFlow_VERSION   such as 2.21.0
#   TensorFlow_ROOT_DIR  the folder of the Python package
#
# The finder itself is tf_ext/ops/_installed.py, so that building and loading can never disagree about which TensorFlow
# is meant. In a checkout it lies beside this folder, in an installed package one folder up (tf_ext/ops/_source/cmake).

find_package(Python 3.11 COMPONENTS Interpreter REQUIRED)

find_file(TensorFlow_FINDER _installed.py NO_CACHE NO_DEFAULT_PATH
  PATHS "${CMAKE_CURRENT_LIST_DIR}/../tf_ext/ops" "${CMAKE_CURRENT_LIST_DIR}/../..")
if(NOT TensorFlow_FINDER)
  message(FATAL_ERROR "tf_ext/ops/_installed.py was expected beside ${CMAKE_CURRENT_LIST_DIR}: the source tree is incomplete.")
endif()

# -P: the folder of the script must not become importable, `tf_ext/ops` has modules with common names.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -P "${TensorFlow_FINDER}"
  OUTPUT_VARIABLE _tensorflow_json
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)

if(NOT _tensorflow_json STREQUAL "null")
  string(JSON TensorFlow_ROOT_DIR GET "${_tensorflow_json}" root)
  string(JSON TensorFlow_VERSION GET "${_tensorflow_json}" version)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TensorFlow
  REQUIRED_VARS TensorFlow_ROOT_DIR
  VERSION_VAR TensorFlow_VERSION
  REASON_FAILURE_MESSAGE
    "${Python_EXECUTABLE} has no TensorFlow, whose headers the operator library needs. Install one \
(pip install 'tensorflow-cpu>=2.21,<2.22'), or build without these operators (-DTF_EXT_OPS=OFF).")

if(TensorFlow_FOUND AND NOT TARGET TensorFlow::TensorFlow)
  add_library(TensorFlow::TensorFlow INTERFACE IMPORTED)
  target_include_directories(TensorFlow::TensorFlow SYSTEM INTERFACE "${TensorFlow_ROOT_DIR}/include")
  # What TensorFlow itself was built with; Eigen's alignment decides the layout of tensors' buffers.
  target_compile_definitions(TensorFlow::TensorFlow INTERFACE _GLIBCXX_USE_CXX11_ABI=1 EIGEN_MAX_ALIGN_BYTES=64)
  target_compile_features(TensorFlow::TensorFlow INTERFACE cxx_std_17)
  target_link_libraries(TensorFlow::TensorFlow INTERFACE
    "${TensorFlow_ROOT_DIR}/libtensorflow_cc.so.2"
    "${TensorFlow_ROOT_DIR}/libtensorflow_framework.so.2")
endif()
