#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed tree: what is in it, that it may be moved, that programs build against it with CMake and with pkg-config,
and what is refused by name. TAP on stdout."""
import atexit
import os
import re
import shutil
import tempfile

from installed import BUILD, NINJA, ROOT, commands, files_of, install, main, read, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
PREFIX = f"{TEMP}/moved/deep/kvkiln"
KVKILN = f"{PREFIX}/bin/kvkiln"
CACHE = {"KVKILN_CACHE_DIR": f"{TEMP}/cache"}
PKG = {"PKG_CONFIG_PATH": f"{PREFIX}/lib/pkgconfig"}
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]


def installs_and_moves():
    install(f"{TEMP}/first")
    os.makedirs(os.path.dirname(PREFIX))
    os.rename(f"{TEMP}/first", PREFIX)


def tree_is_whole():
    v, major = version(), version().split(".")[0]
    expected = {"bin/kvkiln", "include/kvkiln.h", f"lib/libkvkiln.so.{v}", f"lib/libkvkiln.so.{major}", "lib/libkvkiln.so",
                "lib/libkvkiln.a", "lib/libkvkiln-gen.so", "lib/pkgconfig/kvkiln.pc"}
    expected |= {f"lib/cmake/kvkiln/kvkiln{x}.cmake" for x in ("Config", "ConfigVersion", "Pack")}
    expected |= {f"share/kvkiln/specs/{f}" for f in os.listdir(f"{ROOT}/specs") if f.endswith(".lua")}
    expected |= {f"share/kvkiln/data/{f}" for f in os.listdir(f"{ROOT}/tests/data")}
    expected |= {f"share/man/man1/kvkiln-{c}.1" for c in commands(KVKILN)} | {"share/man/man1/kvkiln.1"}
    found = {f for f in files_of(PREFIX) if not f.startswith("share/doc/")}
    expected = {f for f in expected if not f.startswith("share/kvkiln/specs/tuned")}
    assert expected <= found, sorted(expected - found)
    stray = {f for f in found - expected if not f.startswith("share/kvkiln/")}
    assert not stray, sorted(stray)
    examples = f"{PREFIX}/share/doc/libkvkiln-dev/examples"
    assert files_of(examples) == files_of(f"{ROOT}/examples"), files_of(examples)
    assert os.readlink(f"{PREFIX}/lib/libkvkiln.so") == f"libkvkiln.so.{major}"


def nothing_names_its_place():
    for name in files_of(PREFIX):
        with open(f"{PREFIX}/{name}", "rb") as file:
            text = file.read()
        for place in (ROOT, BUILD, f"{TEMP}/first"):
            assert place.encode() not in text, f"{name} names {place}"
    for name in ("bin/kvkiln", "lib/libkvkiln.so", "lib/libkvkiln-gen.so"):
        paths = re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", run("readelf", "-dW", f"{PREFIX}/{name}").stdout)
        assert all(p.startswith("$ORIGIN") for path in paths for p in path.split(":")), (name, paths)


def only_kvk_is_exported():
    soname = re.findall(r"SONAME.*\[(.*)\]", run("readelf", "-dW", f"{PREFIX}/lib/libkvkiln.so").stdout)
    assert soname == [f"libkvkiln.so.{version().split('.')[0]}"], soname
    declared = set(re.findall(r"KVK_API [^;(]*?\b(kvk_\w+)\(", read(f"{PREFIX}/include/kvkiln.h")))
    for name, dynamic in (("libkvkiln.so", ["-D"]), ("libkvkiln.a", ["-g"])):
        lines = run("nm", *dynamic, "--defined-only", "--format=posix", f"{PREFIX}/lib/{name}").stdout.splitlines()
        symbols = {line.split()[0] for line in lines if len(line.split()) > 1}
        assert symbols == declared | {"kvk_register_generator"}, (name, symbols ^ declared)
    lines = run("nm", "-D", "--defined-only", "--format=posix", f"{PREFIX}/lib/libkvkiln-gen.so").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["kvk_generator"], lines


def versions_agree():
    v = version()
    assert run(KVKILN, "--version").stdout == f"kvkiln {v}\n"
    assert run("pkg-config", "--modversion", "kvkiln", **PKG).stdout == f"{v}\n"
    assert f'"kvkiln {v}"' in read(f"{PREFIX}/share/man/man1/kvkiln.1")
    assert f'PACKAGE_VERSION "{v}"' in read(f"{PREFIX}/lib/cmake/kvkiln/kvkilnConfigVersion.cmake")
    assert f"## {v}" in read(f"{ROOT}/CHANGELOG.md")


def moved_tree_finds_its_parts():
    shutil.copy(f"{PREFIX}/share/kvkiln/specs/turboquant_k8v4.lua", f"{PREFIX}/share/kvkiln/specs/zz_beside.lua")
    assert "196" in run(KVKILN, "presets", "zz_beside").stdout
    os.remove(f"{PREFIX}/share/kvkiln/specs/zz_beside.lua")
    made = run(KVKILN, "build", "turboquant_k8v4", "-t", "x86-64-v3,sm_90a", "-k", "store", "-l", "aos", "-e", "object,ll",
               "-o", f"{TEMP}/kernels").stdout
    assert made.endswith("2 kernels, 4 files, 0 failed\n"), made
    os.symlink(KVKILN, f"{TEMP}/linked")  # as in /usr/local/bin
    assert "196" in run(f"{TEMP}/linked", "presets", "turboquant_k8v4", cwd="/").stdout


def neighbours_are_not_read():
    """An installed executable takes nothing from folders above its prefix, as one in out/bin does."""
    os.makedirs(f"{TEMP}/moved/deep/specs", exist_ok=True)
    shutil.copy(f"{ROOT}/specs/turboquant_k8v4.lua", f"{TEMP}/moved/deep/specs/zz_neighbour.lua")
    assert "zz_neighbour" in run(KVKILN, "presets", "zz_neighbour", code=2).stderr
    os.rename(f"{PREFIX}/share/kvkiln", f"{TEMP}/gone")  # the executable without its presets, as ./dev static makes it
    try:
        assert "zz_neighbour" in run(KVKILN, "presets", "zz_neighbour", code=2).stderr
        assert "196" in run(KVKILN, "presets", "turboquant_k8v4").stdout
    finally:
        os.rename(f"{TEMP}/gone", f"{PREFIX}/share/kvkiln")


def configure(source, build, *options, code=0):
    return run("cmake", *NINJA, "-S", f"{PREFIX}/share/doc/libkvkiln-dev/examples/{source}", "-B", f"{TEMP}/{build}", f"-DCMAKE_PREFIX_PATH={PREFIX}",
               "-DCMAKE_BUILD_TYPE=Release", *options, code=code)


def expect_pass(program, *args, **env):
    out = run(program, *args, **CACHE, **env).stdout
    assert out.splitlines()[-1].startswith("PASS"), out
    return out


def engine_builds_with_find_package():
    configure("engine", "engine")
    run("cmake", "--build", f"{TEMP}/engine", "--parallel", "2")
    out = expect_pass(f"{TEMP}/engine/engine", "host")
    assert "7 requests" in out and "2.61 times" in out, out
    needed = run("readelf", "-dW", f"{TEMP}/engine/engine_static").stdout
    assert "libkvkiln.so" not in needed
    expect_pass(f"{TEMP}/engine/engine_static", "host")  # its kernels are in the cache by now


def engine_builds_with_pkg_config():
    flags = run("pkg-config", "--cflags", "--libs", "kvkiln", **PKG).stdout.split()
    private = run("pkg-config", "--static", "--libs", "kvkiln", **PKG).stdout.split()
    assert {"-lm", "-ldl", "-pthread"} <= set(private) and "-lm" not in flags, (flags, private)
    sources = [f"{ROOT}/examples/engine/{n}.c" for n in ("engine", "graph")]
    run("gcc", *FLAGS, "-O2", *sources, *flags, f"-Wl,-rpath,{PREFIX}/lib", "-lm", "-o", f"{TEMP}/by_pkg_config")
    expect_pass(f"{TEMP}/by_pkg_config", "host", "turboquant_4bit_nc")
    archive = ["-l:libkvkiln.a" if x == "-lkvkiln" else x for x in private]
    run("gcc", *FLAGS, "-O2", *sources, f"-I{PREFIX}/include", *archive, "-o", f"{TEMP}/by_pkg_config_static")
    expect_pass(f"{TEMP}/by_pkg_config_static", "host", "nvfp4", KVKILN_GENERATOR=f"{PREFIX}/lib/libkvkiln-gen.so")


def lines_of_the_page_build_and_run():
    program = read(f"{ROOT}/examples/minimal/minimal.c")
    lines = program.split("/* docs/embedding.md: begin */\n")[1].split("/* docs/embedding.md: end */\n")[0]
    assert f"```c\n{lines}```" in read(f"{ROOT}/docs/embedding.md"), "docs/embedding.md shows other lines than examples/minimal"
    statements = [x for x in lines.splitlines() if x.startswith("    ") and not x.startswith("     ")]
    assert len(statements) <= 15 + 2, len(statements)  # and two that hand on an error
    flags = run("pkg-config", "--cflags", "--libs", "kvkiln", **PKG).stdout.split()
    run("gcc", *FLAGS, f"{ROOT}/examples/minimal/minimal.c", *flags, f"-Wl,-rpath,{PREFIX}/lib", "-o", f"{TEMP}/minimal")
    expect_pass(f"{TEMP}/minimal")


def libraries_may_lie_elsewhere():
    """As distributions have them: the runtime alone, configured and not built."""
    for folder, up in (("lib/x86_64-linux-gnu", "../../.."), ("lib64", "../..")):
        build = f"{TEMP}/elsewhere"
        run("cmake", *NINJA, "-S", ROOT, "-B", build, "-DKVKILN_GENERATOR=OFF", "-DKVKILN_TESTS=OFF",
            f"-DKVKILN_EMBEDDED={BUILD}/generated/embedded_texts.c", f"-DCMAKE_INSTALL_LIBDIR={folder}", cwd=TEMP)
        pc = read(f"{build}/generated/kvkiln.pc")
        assert f"prefix=${{pcfiledir}}/{up}\n" in pc and f"libdir=${{prefix}}/{folder}\n" in pc, pc
        assert f"${{CMAKE_INSTALL_PREFIX}}/{folder}/cmake/kvkiln" in read(f"{build}/cmake_install.cmake")


def other_versions_are_refused():
    with open(f"{TEMP}/CMakeLists.txt", "w", encoding="ascii") as file:
        file.write("cmake_minimum_required(VERSION 3.25)\nproject(t LANGUAGES C)\nfind_package(kvkiln ${WANTED})\n"
                   "message(STATUS \"found=${kvkiln_FOUND} generator=${kvkiln_generator_FOUND}\")\n")

    def found(wanted):
        text = run("cmake", *NINJA, "-S", TEMP, "-B", f"{TEMP}/wanted", f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DWANTED={wanted}").stdout
        return re.search(r"found=(\w+) generator=(\w*)", text).groups()

    major, minor, _ = (int(x) for x in version().split("."))
    assert found(f"{major}.{minor}") == ("1", "TRUE") and found("COMPONENTS;generator") == ("1", "TRUE")
    for wanted in (f"{major}.{minor + 1}", f"{major + 1}.0", f"{major}.{minor}.99", "COMPONENTS;nonsense"):
        assert found(wanted)[0] == "0", wanted
    for gone, wanted, answer in (("lib/libkvkiln-gen.so", "COMPONENTS;generator", "0"), ("lib/libkvkiln-gen.so", "", "1"),
                                 ("bin/kvkiln", "COMPONENTS;generator", "0"), ("lib/libkvkiln.a", "", "0")):
        os.rename(f"{PREFIX}/{gone}", f"{TEMP}/gone")
        try:
            assert found(wanted)[0] == answer, (gone, wanted)
        finally:
            os.rename(f"{TEMP}/gone", f"{PREFIX}/{gone}")


def foreign_generators_are_refused_by_name():
    """Beside the runtime lies a generator of another interface, of another build, or no generator."""
    ours = f"{PREFIX}/lib/libkvkiln-gen.so"
    os.rename(ours, f"{TEMP}/ours")
    build = re.search(r'"(.*)"', read(f"{BUILD}/generated/build_id.h")).group(1)
    interface = re.search(r"KVK_GEN_API_VERSION = (\d+)", read(f"{ROOT}/runtime/gen_api.h")).group(1)
    cases = [("struct api { unsigned version; const char *id; };"
              f"const struct api *kvk_generator(void); const struct api *kvk_generator(void) {{ static const struct api a = {x};"
              " return &a; }", texts)
             for x, texts in (("{77, \"other\"}", ["interface version 77", f"needs {interface}"]),
                              (f"{{{interface}, \"0123456789abcdef llvm 22.9\"}}", ["0123456789abcdef llvm 22.9", build]))]
    cases.append(("int kvk_nothing; ", ["kvk_generator"]))
    try:
        for source, texts in cases:
            with open(f"{TEMP}/gen.c", "w", encoding="ascii") as file:
                file.write(source)
            run("gcc", "-shared", "-fPIC", f"{TEMP}/gen.c", "-o", ours)
            for program in ([f"{TEMP}/engine/engine", "host", "mxfp4"], [KVKILN, "presets"]):
                done = run(*program, code=None, **CACHE)
                assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done
                missing = [t for t in [*texts, "libkvkiln-gen.so"] if t not in done.stderr]
                assert not missing, (missing, done.stderr)
            expect_pass(f"{TEMP}/engine/engine", "host")  # from the cache: no generator is asked
            os.remove(ours)
        done = run(f"{TEMP}/engine/engine", "host", "mxfp4", code=1, **CACHE)
        assert "KVK_E_GENERATOR" in done.stderr and "libkvkiln-gen.so" in done.stderr, done.stderr
    finally:
        os.rename(f"{TEMP}/ours", ours)


def ahead_of_time():
    """A project that makes packs in its own build: linked in and as a file; then nothing compiles, and no generator is there."""
    shutil.copytree(f"{ROOT}/examples/ahead", f"{TEMP}/ahead_source")
    build, spec = f"{TEMP}/ahead", f"{TEMP}/ahead_source/mine.lua"
    run("cmake", *NINJA, "-S", f"{TEMP}/ahead_source", "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}")
    run("cmake", "--build", build, "--parallel", "2")
    run("cmake", "--install", build, "--prefix", f"{TEMP}/ahead_installed")
    program, file = f"{build}/ahead", f"{TEMP}/ahead_installed/share/ahead/more_kernels.kvkpack"
    assert files_of(f"{TEMP}/ahead_installed") == ["bin/ahead", "share/ahead/more_kernels.kvkpack"]
    os.rename(f"{PREFIX}/lib/libkvkiln-gen.so", f"{TEMP}/gone")
    try:
        out = expect_pass(program, "host")
        assert "decode.turboquant_k8v4.aos.d128.g4.bf16.p16 from a pack" in out and "KVK_E_MISS" in out, out
        out = expect_pass(program, "host", "mine", file)
        assert "decode.mine.aos" in out and "ahead_kernels" in out and "more_kernels.kvkpack" in out, out
        done = run(program, "host", "mine", f"{TEMP}/no.kvkpack", code=1)
        assert "no.kvkpack" in done.stderr, done.stderr
    finally:
        os.rename(f"{TEMP}/gone", f"{PREFIX}/lib/libkvkiln-gen.so")
    with open(file, "rb") as f:
        before = f.read()
    assert "Kernels of" not in run("cmake", "--build", build).stdout  # made once
    with open(spec, encoding="ascii") as f:
        text = f.read()
    with open(spec, "w", encoding="ascii") as f:
        f.write(text.replace("bits = 3", "bits = 4"))
    made = run("cmake", "--build", build).stdout
    assert "Kernels of more_kernels" in made and "Kernels of ahead_kernels" not in made, made
    with open(f"{build}/more_kernels.kvkpack", "rb") as f:
        assert f.read() != before


def wrong_packs_are_refused():
    def project(call, code):
        os.makedirs(f"{TEMP}/wrong", exist_ok=True)
        with open(f"{TEMP}/wrong/CMakeLists.txt", "w", encoding="ascii") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(t LANGUAGES C)\n"
                       f"find_package(kvkiln REQUIRED)\nkvkiln_add_pack({call} DESTINATION share)\n")
        done = run("cmake", *NINJA, "-S", f"{TEMP}/wrong", "-B", f"{TEMP}/wrong/build", f"-DCMAKE_PREFIX_PATH={PREFIX}", code=code)
        return " ".join(done.stderr.split())

    def refused(call, *texts):
        said = project(call, 1)
        missing = [t for t in texts if t not in said]
        assert not missing, (call, missing, said)
    refused("p TARGETS sm_90a", "SPECS and TARGETS are needed")
    refused("p KIND store SPECS fp16 TARGETS sm_90a", "not understood: KIND;store")
    refused("my-pack SPECS fp16 TARGETS sm_90a", "C symbol")
    project("p SPECS fp16 TARGETS sm_1 KINDS store", 0)  # what a list may hold is the command's to say
    done = run("cmake", "--build", f"{TEMP}/wrong/build", code=None)
    assert done.returncode and "--target: 'sm_1': accepted" in done.stdout + done.stderr, done
    os.rename(KVKILN, f"{TEMP}/gone")
    try:
        refused("p SPECS fp16 TARGETS sm_90a", "generator is not installed")
        with open(KVKILN, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho kvkiln 9.9.9\n")
        os.chmod(KVKILN, 0o755)
        refused("p SPECS fp16 TARGETS sm_90a", "is version 9.9.9,", f"runtime here is {version()}")
    finally:
        os.rename(f"{TEMP}/gone", KVKILN)


def manual_has_every_option():
    for command in commands(KVKILN):
        page = read(f"{PREFIX}/share/man/man1/kvkiln-{command}.1")
        text = page.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
        assert page.startswith('.\\"') and f'.TH "KVKILN\\-{command.upper()}" 1' in page
        shown = run(KVKILN, command, "--help").stdout
        for kind in re.findall(r"[a-z]+", " ".join(re.findall(r"^  ([a-z]+(?:, [a-z]+)*)  +[a-z]", shown, re.M))):
            shown += run(KVKILN, command, kind, "--help", code=None).stdout
        for line in shown.splitlines():
            assert line in text, (command, line)
        assert not [x for x in text.splitlines() if x.startswith("'")], command
    main_page = read(f"{PREFIX}/share/man/man1/kvkiln.1")
    assert all(f"kvkiln\\-{c} (1)" in main_page for c in commands(KVKILN))


main([installs_and_moves, tree_is_whole, nothing_names_its_place, only_kvk_is_exported, versions_agree,
      moved_tree_finds_its_parts, neighbours_are_not_read, engine_builds_with_find_package, engine_builds_with_pkg_config,
      lines_of_the_page_build_and_run, libraries_may_lie_elsewhere, other_versions_are_refused, foreign_generators_are_refused_by_name,
      ahead_of_time, wrong_packs_are_refused,
      manual_has_every_option])
