# SPDX-License-Identifier: Apache-2.0
# Link line of the one-file executable: LLVM's archives for three targets, only libc and libm dynamic (so that the
# drivers can be opened by dlopen, which a fully static executable cannot do).

find_program(KVKILN_LLD ld.lld-22 REQUIRED)
# -fuse-ld=lld runs "ld.lld", which may be an older one: -B points at a folder with a link to 22's
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/ld)
file(CREATE_LINK ${KVKILN_LLD} ${CMAKE_BINARY_DIR}/ld/ld.lld SYMBOLIC)

config_words(llvm_dir --libdir)
config_words(llvm_libs --link-static --libs nvptx amdgpu x86 passes irreader linker bitwriter)
list(FILTER llvm_libs EXCLUDE REGEX "Polly") # named by llvm-config, not packaged
target_link_libraries(dep_llvm INTERFACE -L${llvm_dir} ${llvm_libs}
  -Wl,-Bstatic -lz -lzstd -lstdc++ -Wl,-Bdynamic -static-libgcc rt)
set(KVKILN_STATIC_LINK -no-pie -fuse-ld=lld -B${CMAKE_BINARY_DIR}/ld
  -Wl,--gc-sections,--icf=all,-O2,--strip-all,--build-id=none)
