#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ./dev static made: an executable that needs nothing but libc, gives the bytes that the installed generator gives, and
comes with the licence texts of what is inside. Not part of ./dev test, which links no LLVM; .ci/run runs it. TAP."""
import atexit
import glob
import os
import re
import shutil
import tarfile
import tempfile

from installed import ROOT, Skip, commands, main, read, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
MADE = f"{ROOT}/out/bin-static"
ALONE = f"{TEMP}/some/root"
KVKILN = f"{ALONE}/kvkiln"
CACHE = {"KVKILN_CACHE_DIR": f"{TEMP}/cache"}
LISTS = ["--target", "sm_80,sm_90a,gfx942,gfx1201,x86-64-v3", "--layout", "aos", "--pack-format", "ptx", "--gqa", "4"]


def needed(program):
    text = run("readelf", "-dlW", program).stdout
    return set(re.findall(r"NEEDED.*\[(.*)\]", text)) | {os.path.basename(re.search(r"interpreter: (.*)\]", text).group(1))}


def nothing_but_libc_is_needed():
    os.makedirs(ALONE)
    shutil.copy(f"{MADE}/kvkiln", KVKILN)
    assert needed(KVKILN) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, needed(KVKILN)
    size = os.path.getsize(KVKILN)
    print(f"# {size / 1e6:.1f} MB")
    assert size < 80e6, size


def it_runs_alone():
    """In a root that has the loader, libc and libm and not one more file: no /proc, no /tmp, no presets."""
    if os.geteuid() != 0:
        raise Skip("chroot is for root")
    for name in needed(KVKILN):
        path = f"/lib64/{name}" if name.startswith("ld-") else run("gcc", f"-print-file-name={name}").stdout.strip()
        where = f"{ALONE}/lib64" if name.startswith("ld-") else f"{ALONE}/lib/x86_64-linux-gnu"
        os.makedirs(where, exist_ok=True)
        shutil.copy(os.path.realpath(path), f"{where}/{name}")
    inside = ("chroot", ALONE, "/kvkiln")
    assert run(*inside, "--version").stdout == f"kvkiln {version()}\n"
    for command in commands(f"{MADE}/kvkiln"):
        assert run(*inside, command, "--help").stdout.startswith(f"Usage: kvkiln {command}")
    assert "turboquant_4bit_nc" in run(*inside, "presets").stdout
    out = run(*inside, "build", "turboquant_4bit_nc", "-t", "sm_90a,gfx942", "-l", "aos", "-e", "ptx,hsaco", "-o", "/made").stdout
    assert out.endswith("12 kernels, 12 files, 0 failed\n"), out
    assert len(os.listdir(f"{ALONE}/made")) == 12


def packs_equal_those_of_the_installed_generator():
    """Whatever lies near the executable."""
    os.makedirs(f"{TEMP}/specs/tuned")
    with open(f"{TEMP}/specs/tuned/x86-64-v3.lua", "w", encoding="ascii") as file:
        file.write('return { { kind = "decode", gqa = 4, plan = { warps = 1 } } }\n')
    with open(f"{TEMP}/specs/fp16.lua", "w", encoding="ascii") as file:
        file.write('return preset "fp8_e4m3" {}\n')
    for number, program in enumerate((KVKILN, f"{ROOT}/out/bin/kvkiln")):
        run(program, "build", "turboquant_4bit_nc", "fp16", *LISTS, "--pack", f"{TEMP}/{number}.kvkpack")
    done = run(KVKILN, "pack", "diff", f"{TEMP}/0.kvkpack", f"{TEMP}/1.kvkpack", code=None)
    with open(f"{TEMP}/0.kvkpack", "rb") as first, open(f"{TEMP}/1.kvkpack", "rb") as second:
        assert first.read() == second.read() and not done.stdout, done.stdout[:2000]


def kernels_are_right():
    sample = sorted(glob.glob(f"{ROOT}/tests/data/*k8v4*d64*"))[0]
    out = run(KVKILN, "check", "--device", "host", sample, **CACHE).stdout
    assert " PASS" in out and "FAIL" not in out, out


def archive_has_the_texts():
    with tarfile.open(f"{ROOT}/out/gpu/kvkiln.tar.xz") as archive:
        names = archive.getnames()
        assert {"kvkiln", "copyright", "num", "engine"} <= set(names), names
        text = archive.extractfile("copyright").read().decode()
        archive.extract("engine", TEMP)
    assert text == read(f"{MADE}/copyright")
    for name in ("zstd", "xxHash", "Lua", "LLVM", "jansson", "zlib", "libstdc++"):
        assert f"---- {name}, of which parts are inside (package " in text, name
    for words in ("LLVM Exceptions", "Petri Lehtinen", "Yann Collet", "Lua.org", "Jean-loup Gailly"):
        assert words in text, words


def engine_needs_no_generator():
    target = re.search(r"^host .*, target ([^,]*),", run(KVKILN, "doctor", **CACHE).stdout, re.M).group(1)
    run(KVKILN, "build", "turboquant_k8v4", "--target", target, "--kind", "store,decode,dequant", "--layout", "aos", "--pack",
        f"{TEMP}/engine.kvkpack")
    out = run(f"{TEMP}/engine", "host", KVKILN_PACKS=f"{TEMP}/engine.kvkpack", KVKILN_CACHE_DIR="").stdout
    assert out.splitlines()[-1].startswith("PASS"), out


main([nothing_but_libc_is_needed, it_runs_alone, packs_equal_those_of_the_installed_generator, kernels_are_right,
      archive_has_the_texts, engine_needs_no_generator])
