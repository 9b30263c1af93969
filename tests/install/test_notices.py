#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Licence texts of other works that are linked in: in the installed tree, and beside the one executable. What is linked in is
read from the build's own link lines, static or not, so that a library that joins them without its text fails here. TAP."""
import atexit
import os
import re
import shutil
import tempfile

from installed import BUILD, ROOT, install, main, read, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
STATIC = f"{TEMP}/static"


def linked(build, target, product):
    """Archives that end in a product of a target: those of its own command, and of the archives that the build made for it."""
    commands = run("ninja", "-C", build, "-t", "commands", target).stdout.splitlines()
    todo = [c for c in commands if re.search(rf" -o \S*/{re.escape(product)}( |$)", c)]
    assert todo, (target, product)
    found = set()
    for command in todo:
        words, static = command.split(), False
        folders = [w[2:] for w in words if w.startswith("-L")]
        for word in words:
            static = {"-Wl,-Bstatic": True, "-Wl,-Bdynamic": False}.get(word, static)
            if word.startswith("-l"):
                found.add(archive(word[2:], folders, static))
            elif word.endswith(".a") and word.startswith("/") and not word.startswith(build):
                found.add(os.path.realpath(word))
            elif word.endswith(".a"):  # of this build: what it is made of
                todo += [c for c in commands if c not in todo and re.search(rf"{re.escape(word)}( |$)", c) and "/" in word]
    return {package(a) for a in found if a} - {"libc6-dev"}  # libdl.a and others of libc are empty


def archive(name, folders, static):
    """Where -lNAME is an archive, or None: a shared library comes first, unless -Bstatic."""
    for folder in folders:
        if not static and os.path.exists(f"{folder}/lib{name}.so"):
            return None
        if os.path.exists(f"{folder}/lib{name}.a"):
            return os.path.realpath(f"{folder}/lib{name}.a")
    for end in (".a",) if static else (".so", ".a"):
        path = run("gcc", f"-print-file-name=lib{name}{end}").stdout.strip()
        if path.startswith("/"):
            return os.path.realpath(path) if end == ".a" else None
    assert not static, f"lib{name}.a is not on this machine"
    return None


def package(path):
    return re.match(r"[^:,]+", run("dpkg-query", "-S", path).stdout).group(0)


def expect_texts(copyright, packages):
    """The file has the whole text of each package, of xxHash (a header that is compiled in), and our own."""
    packages = packages | {"libxxhash-dev"}
    text = read(copyright)
    missing = [p for p in packages if read(f"/usr/share/doc/{p}/copyright") not in text]
    assert not missing and read(f"{ROOT}/LICENSE") in text, (copyright, missing)
    named = set(re.findall(r"^---- .* \(package ([\w.+-]+)\) ----$", text, re.M))
    assert named == packages, (copyright, named ^ packages)
    assert "no licence text" not in text


def installed_tree_has_the_texts():
    install(f"{TEMP}/tree")
    doc = f"{TEMP}/tree/share/doc"
    runtime, archived = linked(BUILD, "kvkiln", f"libkvkiln.so.{version()}"), linked(BUILD, "ar/libkvkiln.a", "kvkiln.o")
    assert runtime == archived == {"libzstd-dev"}, (runtime, archived)
    expect_texts(f"{doc}/libkvkiln/copyright", runtime)
    expect_texts(f"{doc}/libkvkiln-dev/copyright", archived)
    generator = linked(BUILD, "kvkiln-gen", "libkvkiln-gen.so") | linked(BUILD, "kvkiln-cli", "kvkiln")
    assert generator == {"liblua5.4-dev", "libzstd-dev"}, generator
    expect_texts(f"{doc}/kvkiln/copyright", generator)


def one_executable_has_the_texts():
    """Its link line and its file, as they are after the configuration: nothing is linked here."""
    run("cmake", "-S", ROOT, "--preset", "static", "-G", "Ninja", "-B", STATIC, "-DKVKILN_TESTS=OFF")
    inside = linked(STATIC, "kvkiln-cli", "kvkiln")
    assert inside == {"libzstd-dev", "liblua5.4-dev", "llvm-22-dev", "libjansson-dev", "zlib1g-dev", "libstdc++-12-dev"}, inside
    expect_texts(f"{STATIC}/generated/copyright-generator", inside)


def missing_texts_are_said():
    """A library of no package: the configuration says so, and the file does."""
    with open(f"{TEMP}/t.cmake", "w", encoding="ascii") as file:
        file.write(f'cmake_minimum_required(VERSION 3.25)\nset(CMAKE_SOURCE_DIR "{ROOT}")\nset(KVKILN_GENERATED "{TEMP}")\nset(KVKILN_ZSTD_ARCHIVE "{TEMP}/libzstd.a")\n'
                   f'set(KVKILN_XXHASH_H /usr/include/xxhash.h)\ninclude("{ROOT}/cmake/notices.cmake")\n')
    done = run("cmake", "-P", f"{TEMP}/t.cmake")
    assert "zstd" in done.stderr and "lacks its licence" in " ".join(done.stderr.split()), done.stderr
    text = read(f"{TEMP}/copyright-runtime")
    assert "no licence text of zstd" in text and "package libxxhash-dev" in text, text[-3000:]


if not shutil.which("dpkg-query") or not shutil.which("ninja"):
    print("1..0 # skip: licence texts come from Debian's packages, link lines from ninja")
    raise SystemExit(77)
main([installed_tree_has_the_texts, one_executable_has_the_texts, missing_texts_are_said])
