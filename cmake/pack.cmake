# SPDX-License-Identifier: Apache-2.0
# Debian packages by `cpack`: libkvkiln (runtime, no LLVM), libkvkiln-dev, kvkiln (generator and command line).
# Dependencies are written down here, and tests/install/test_deb.py holds them against what the files need:
# dpkg-shlibdeps is not on every machine that builds.
if(KVKILN_STATIC OR NOT KVKILN_GENERATOR OR KVKILN_SANITIZE)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL runtime dev generator)
set(CPACK_PACKAGE_NAME kvkiln)
set(CPACK_PACKAGE_VENDOR "kvkiln")
set(CPACK_PACKAGE_CONTACT "the kvkiln developers <kvkiln@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libkvkiln)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Quantised KV caches by generated kernels: the runtime
Loads kernels from packs and from a cache, and runs them on NVIDIA and AMD GPUs and on
x86-64. Contains no compiler: that is in the package kvkiln.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.34)")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "kvkiln (= ${PROJECT_VERSION})")
file(WRITE ${KVKILN_GENERATED}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${KVKILN_GENERATED}/triggers)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libkvkiln-dev)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Quantised KV caches by generated kernels: header, archive, CMake and pkg-config
What a program is compiled with that uses libkvkiln.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libkvkiln (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "kvkiln (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_GENERATOR_PACKAGE_NAME kvkiln)
set(CPACK_COMPONENT_GENERATOR_DESCRIPTION "Quantised KV caches by generated kernels: generator and command line
Compiles cache formats to kernels for NVIDIA and AMD GPUs and x86-64, ahead of time (packs)
or when a program that uses libkvkiln first needs them.")
set(CPACK_DEBIAN_GENERATOR_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_GENERATOR_PACKAGE_DEPENDS
  "libkvkiln (= ${PROJECT_VERSION}), libc6 (>= 2.34), libllvm22 (>= 1:22.1), libjansson4 (>= 2.3)")
include(CPack)
