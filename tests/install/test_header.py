#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The header that is installed: one file, for C and C++, whose stable part stands alone. TAP on stdout."""
import atexit
import os
import re
import shutil
import tempfile

from installed import ROOT, Skip, install, main, read, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
PREFIX = f"{TEMP}/tree"
LINK = [f"-L{PREFIX}/lib", f"-Wl,-rpath,{PREFIX}/lib", "-lkvkiln"]
FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
# Services of part 2 that the examples need in the place of an engine's own memory; nothing else of it.
SERVICES = {"kvk_alloc", "kvk_free", "kvk_upload", "kvk_download", "kvk_fill", "kvk_device_copy", "kvk_synchronize", "kvk_time"}


def write(name, text):
    with open(f"{TEMP}/{name}", "w", encoding="ascii") as file:
        file.write(text)
    return f"{TEMP}/{name}"


def header_is_one_file():
    install(PREFIX)
    header = read(f"{PREFIX}/include/kvkiln.h")
    assert '#include "' not in header and header.index("Part 1") < header.index("Part 2")
    for row in re.findall(r"^STATUS\((\w+), (\d+),", read(f"{ROOT}/runtime/status.def"), re.M):
        assert "KVK_%s = %s," % row in header, row
    number = sum(int(n) * k for n, k in zip(version().split("."), (10000, 100, 1)))
    source = write("header.c", '#include <kvkiln.h>\n#include <string.h>\nint main(void) { return strcmp(kvk_version(), "%s") || '
                   "KVK_VERSION != %d; }\n" % (version(), number))
    for standard in ("-std=c11", "-std=c99", "-std=gnu17"):
        run("gcc", *FLAGS, standard, source, f"-I{PREFIX}/include", *LINK, "-o", f"{TEMP}/header")
        run(f"{TEMP}/header")


def stable_part_stands_alone():
    """Part 1 alone is a header; the examples need nothing of part 2 but device memory."""
    header = read(f"{PREFIX}/include/kvkiln.h")
    end = header.rindex("#ifdef __cplusplus\n}")
    os.makedirs(f"{TEMP}/part1")
    write("part1/kvkiln.h", header[:header.index("/*\n** ---- Part 2")] + header[end:])
    run("gcc", "-std=c11", *FLAGS, "-fsyntax-only", f"-I{TEMP}/part1", write("alone.c", '#include <kvkiln.h>\nint unused;\n'))
    for name in ("minimal/minimal.c", "engine/engine.c", "engine/graph.c"):
        done = run("gcc", "-std=c11", "-Wall", "-fsyntax-only", f"-I{TEMP}/part1", f"{ROOT}/examples/{name}", code=None)
        said = re.findall(r"implicit declaration of function .(kvk_\w+)", done.stderr)
        assert done.returncode == 0 and set(said) <= SERVICES, (name, done.stderr)


def all_is_in_one_part_of_two():
    """Every function of the library is declared once."""
    one, two = read(f"{PREFIX}/include/kvkiln.h").split("---- Part 2")
    first, second = (set(re.findall(r"KVK_API [^;(]*?\b(kvk_\w+)\(", part)) for part in (one, two))
    lines = run("nm", "-D", "--defined-only", "--format=posix", f"{PREFIX}/lib/libkvkiln.so").stdout.splitlines()
    assert not first & second and SERVICES <= second
    assert {line.split()[0] for line in lines} == first | second | {"kvk_register_generator"}
    assert {"kvk_open", "kvk_prepare", "kvk_layout", "kvk_workspace_bytes", "kvk_store", "kvk_decode", "kvk_unified", "kvk_dequant",
            "kvk_close", "kvk_version", "kvk_status_name"} <= first


def programs_in_cplusplus_use_it():
    compilers = [c for c in ("g++", "clang++") if shutil.which(c)]
    if not compilers:
        raise Skip("neither g++ nor clang++ is here")
    source = write("program.cc", """#include <kvkiln.h>
int main()
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_model model = KVK_INIT(kvk_model);
    kvk_context *ctx = NULL;
    kvk_error err;
    options.device = "host";
    if (options.size != sizeof options || model.size != sizeof model || model.spec || kvk_open(&options, &ctx, &err))
        return 1;
    const kvk_kernels *kernels;
    model.spec = "no such preset";
    model.kv_heads = model.query_heads = 1, model.head_size = 64;
    const int status = kvk_prepare(ctx, &model, &kernels, &err);
    kvk_close(ctx);
    return status == KVK_E_SPEC ? 0 : 2;
}
""")
    for compiler in compilers:
        for standard in ("-std=c++11", "-std=c++17", "-std=c++20"):
            run(compiler, *FLAGS, standard, "-c", source, f"-I{PREFIX}/include", "-o", f"{TEMP}/program.o")
        run("gcc", f"{TEMP}/program.o", *LINK, "-o", f"{TEMP}/program")  # needs nothing of C++'s library
        run(f"{TEMP}/program")


main([header_is_one_file, stable_part_stands_alone, all_is_in_one_part_of_two, programs_in_cplusplus_use_it])
