#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs and the cache by the command line: equal bytes, exit codes, a host without a generator, linking. TAP on stdout."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

LIB = os.path.abspath(f"{os.path.dirname(KVKILN)}/../lib")
KINDS = ["store", "decode", "unified", "dequant", "merge", "copy"]
BARE = {"KVKILN_GENERATOR": "/nowhere/libkvkiln-gen.so", "KVKILN_CACHE_DIR": ""}


def kvkiln(*args, env=None, code=0):
    done = subprocess.run([KVKILN, *args], capture_output=True, text=True, timeout=600, cwd=TEMP,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}: {done.stdout[-300:]}{done.stderr[-600:]}"
    return done


def read(name):
    with open(f"{TEMP}/{name}", "rb") as file:
        return file.read()


def build(pack, *args, code=0):
    return kvkiln("build", *args, "--layout", "aos", "--pack", pack, code=code)


def spoiled(name, at, to):
    data = bytearray(read(name))
    data[at] ^= 1
    with open(f"{TEMP}/{to}", "wb") as file:
        file.write(data)
    return to


def same_input_gives_the_same_bytes():
    build("a.kvkpack", "fp16", "turboquant_k8v4", "--target", "x86-64-v3,sm_90a", "--kind", "store,dequant", "-j", "1",
          "--pack-format", "ptx")
    build("b.kvkpack", "turboquant_k8v4", "fp16", "--target", "sm_90a,x86-64-v3", "--kind", "dequant,store", "-j", "4",
          "--pack-format", "ptx")
    assert read("a.kvkpack") == read("b.kvkpack")
    kvkiln("pack", "diff", "a.kvkpack", "b.kvkpack")
    assert not os.path.exists(f"{TEMP}/out"), "loose files without --emit"


def merge_of_parts_is_the_whole():
    for n, spec in enumerate(("fp16", "turboquant_k8v4")):
        for m, target in enumerate(("sm_90a", "x86-64-v3")):
            build(f"part{n}{m}.kvkpack", spec, "--target", target, "--kind", "store,dequant", "--pack-format", "ptx")
    parts = [f"part{n}{m}.kvkpack" for n, m in ((1, 1), (0, 0), (1, 0), (0, 1))]
    kvkiln("pack", "merge", "-o", "new/whole.kvkpack", *parts, parts[0])
    assert read("new/whole.kvkpack") == read("a.kvkpack")


def list_shows_every_kernel():
    result = json.loads(kvkiln("pack", "list", "--json", "a.kvkpack").stdout)
    rows = result["packs"][0]["rows"]
    assert result["packs"][0]["this_build"] and "llvm 22" in result["packs"][0]["generator"]
    assert sorted((r["name"].split(".")[0], r["format"]) for r in rows if r["format"] != "spec") == \
        sorted((k, f) for k in ("store", "dequant") for f in ("ptx", "host") for _ in range(2))
    assert {r["name"] for r in rows if r["format"] == "spec"} == {"fp16", "turboquant_k8v4"}
    assert all(r["signature"].startswith("kvk1:") for r in rows if r["format"] != "spec")
    text = kvkiln("pack", "list", "a.kvkpack").stdout
    assert all(r["name"] in text for r in rows)


def failures_are_named_and_do_not_stop_the_rest():
    done = build("some.kvkpack", "fp16", "no_such_spec", "--target", "x86-64-v3", "--kind", "copy", code=2)
    assert "no_such_spec" in done.stderr
    assert "copy.fp16" in kvkiln("pack", "list", "some.kvkpack").stdout
    for bad in (("--pack-format", "elf"), ("--pack-format", "cubin,"), ("--pack-format", "")):
        kvkiln("build", "fp16", "--target", "sm_90a", "--pack", "x.kvkpack", *bad, code=2)
    with open(f"{TEMP}/plain", "w", encoding="ascii"):
        pass
    kvkiln("build", "fp16", "--target", "x86-64-v3", "--kind", "copy", "--pack", "plain/x.kvkpack", code=2)


def verify_finds_damage():
    kvkiln("pack", "verify", "a.kvkpack")
    last = len(read("a.kvkpack")) - 20
    for name in (spoiled("a.kvkpack", 40, "head.kvkpack"), spoiled("a.kvkpack", 200, "row.kvkpack"),
                 spoiled("a.kvkpack", last, "frame.kvkpack")):
        done = kvkiln("pack", "verify", "a.kvkpack", name, code=1)
        assert name in done.stderr, done.stderr
    faults = json.loads(kvkiln("pack", "verify", "--json", "frame.kvkpack", code=1).stdout)["packs"][0]["faults"]
    assert len(faults) == 1 and "checksum" in faults[0]
    kvkiln("pack", "list", "head.kvkpack", code=2)
    kvkiln("pack", "verify", "not-there", code=2)


def damaged_code_goes_nowhere():
    """The index of frame.kvkpack is whole, what it says of a kernel's bytes is not true."""
    said = kvkiln("pack", "verify", "frame.kvkpack", code=1).stderr
    for command in (("merge", "-o", "damaged.out", "a.kvkpack", "frame.kvkpack"), ("merge", "-o", "damaged.out", "frame.kvkpack"),
                    ("diff", "a.kvkpack", "frame.kvkpack"), ("diff", "frame.kvkpack", "frame.kvkpack"),
                    ("diff", "--json", "frame.kvkpack", "a.kvkpack"), ("object", "-o", "damaged.out", "frame.kvkpack")):
        done = kvkiln("pack", *command, code=1)
        assert not done.stdout and said in done.stderr, (command, done)
        assert not os.path.exists(f"{TEMP}/damaged.out"), command
    assert said.split(": ")[-1] in kvkiln("pack", "extract", "frame.kvkpack", "-o", "damaged", code=1).stderr
    rows = json.loads(kvkiln("pack", "list", "--json", "a.kvkpack").stdout)["packs"][0]["rows"]
    assert len(os.listdir(f"{TEMP}/damaged")) == len(rows) - 1


def diff_says_what_differs():
    build("other.kvkpack", "fp16", "--target", "x86-64-v3", "--kind", "store,copy")
    done = kvkiln("pack", "diff", "part01.kvkpack", "other.kvkpack", code=1)
    assert [line[0] for line in done.stdout.splitlines()] == ["+", "-"], done.stdout
    kinds = [d["kind"] for d in
             json.loads(kvkiln("pack", "diff", "--json", "part01.kvkpack", "other.kvkpack", code=1).stdout)["differences"]]
    assert sorted(kinds) == ["only_first", "only_second"]


def extract_gives_what_build_writes():
    kvkiln("build", "fp16", "--layout", "aos", "--target", "x86-64-v3,sm_90a", "--kind", "store,dequant", "--emit", "ptx,object",
           "-o", "loose")
    kvkiln("pack", "extract", "a.kvkpack", "-o", "code", "--code")
    kvkiln("pack", "extract", "a.kvkpack", "-o", "objects", "--target", "x86-64-v3", "--name", "store.*")
    assert sorted(os.listdir(f"{TEMP}/objects")) == [f"store.{s}.aos.d128.g4.bf16.p16.x86-64-v3.object"
                                                     for s in ("fp16", "turboquant_k8v4")]
    name = "dequant.fp16.aos.d128.g4.bf16.p16.sm_90a.ptx"
    assert read(f"code/{name}") == read(f"loose/{name}")
    assert read("code/fp16.spec").startswith(b"spec 1\nname fp16\n")
    kvkiln("pack", "extract", "a.kvkpack", "-o", "nothing", "--target", "gfx942", code=1)


def usage_errors_are_named():
    for args in ((), ("list",), ("frobnicate", "a.kvkpack"), ("merge", "a.kvkpack"), ("list", "-o", "x", "a.kvkpack"),
                 ("diff", "a.kvkpack"), ("verify", "--code", "a.kvkpack"), ("extract", "-o", "x", "--json", "a.kvkpack"),
                 ("object", "-o", "x.o", "--machine", "vax", "a.kvkpack"), ("list", "--symbol", "x", "a.kvkpack")):
        done = kvkiln("pack", *args, code=2)
        assert done.stderr and not done.stdout, args


def host_without_generator_serves_from_a_pack():
    samples = sorted(glob.glob(f"{ROOT}/tests/data/*.safetensors"))[:1]
    presets = [os.path.basename(samples[0]).split(".")[0]]
    kvkiln("build", *presets, "--target", "host", "--gqa", "6", "--dtype", "fp16", "--page", "16,32", "--pack", "serve.kvkpack")
    done = kvkiln("check", "--device", "host", "--pack", "serve.kvkpack", "--compile", "never", *samples, env=BARE)
    assert "PASS" in done.stdout and "FAIL" not in done.stdout
    kvkiln("check", "--device", "host", "--compile", "never", *samples, env={**BARE, "KVKILN_PACKS": "serve.kvkpack"})
    bench = ("bench", "decode", "--device", "host", "--context", "64", "--repeats", "1", "--compile", "never")
    done = kvkiln(*bench, "--pack", "serve.kvkpack", env=BARE, code=2)
    assert "is missing: sought in pack serve.kvkpack" in done.stderr, done.stderr
    done = kvkiln(*bench, "--pack", "head.kvkpack", env=BARE, code=2)
    assert "head.kvkpack" in done.stderr and len(done.stderr.splitlines()) == 1
    kvkiln(*bench, "--compile", "sometimes", code=2)


def doctor_says_which_packs_are_of_use():
    result = json.loads(kvkiln("doctor", "--json", env={"KVKILN_PACKS": "serve.kvkpack::head.kvkpack:none.kvkpack"}).stdout)
    assert [p["usable"] for p in result["packs"]] == [True, False, False], result["packs"]
    assert any(d["device"].startswith("host") and d["usable"] for d in result["devices"])


PROGRAM = r"""
#include "kvkiln.h"
#include <stdio.h>
#include <string.h>
KVK_PACK_DECLARE(linked);
int main(void)
{
    struct kvk_pack_memory packs[] = {KVK_PACK_MEMORY(linked)};
    struct kvk_options o = KVK_INIT(struct kvk_options);
    struct kvk_model m = KVK_INIT(struct kvk_model);
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    kvk_context *ctx;
    const kvk_kernels *k;
    kvk_error err;
    o.device = "host", o.cache_dir = "", o.generator = "/nowhere", o.compile = KVK_COMPILE_NEVER;
    o.packs = "", o.memory_packs = packs, o.memory_pack_count = 1;
    m.spec = "mine", m.kv_heads = 2, m.query_heads = 8, m.head_size = 128;
    if (kvk_open(&o, &ctx, &err) || kvk_prepare(ctx, &m, &k, &err) || kvk_kernel(k, KVK_DECODE, &info, &err))
        return puts(err.text), 1;
    kvk_close(ctx);
    return ((size_t)kvk_pack_linked & 63) != 0;
}
"""


def pack_is_linked_into_a_program():
    """A user's own spec, on a host that has no generator."""
    with open(f"{TEMP}/mine.lua", "w", encoding="ascii") as file:
        file.write('return preset "turboquant_4bit_nc" { value = affine { bits = 3, scale = "fp16", zero = "fp16" } }\n')
    with open(f"{TEMP}/program.c", "w", encoding="ascii") as file:
        file.write(PROGRAM)
    build("linked.kvkpack", "mine.lua", "--target", "host")
    done = kvkiln("pack", "object", "linked.kvkpack", "-o", "linked.o")
    assert done.stdout == "linked.o: kvk_pack_linked, kvk_pack_linked_size\n"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{ROOT}/runtime", "program.c", "linked.o",
               f"-L{LIB}", "-lkvkiln", f"-Wl,-rpath,{LIB}", "-o", "program"]
    subprocess.run(command, cwd=TEMP, check=True, timeout=120)
    done = subprocess.run(["./program"], cwd=TEMP, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    subprocess.run(["cc", "-shared", "linked.o", "-o", "shared.so"], cwd=TEMP, check=True, timeout=120)
    symbols = subprocess.run(["nm", "-D", "--defined-only", "shared.so"], cwd=TEMP, check=True, capture_output=True, text=True)
    assert "kvk_pack" not in symbols.stdout
    kvkiln("pack", "object", "linked.kvkpack", "-o", "arm.o", "--machine", "aarch64", "--symbol", "my_kernels")
    text = subprocess.run(["readelf", "-hsW", "arm.o"], cwd=TEMP, check=True, capture_output=True, text=True).stdout
    assert "AArch64" in text and "my_kernels\n" in text and "my_kernels_size\n" in text, text


def cache_is_looked_after():
    folder = f"{TEMP}/cache"
    env = {"KVKILN_CACHE_DIR": folder}
    assert kvkiln("cache", "path", env=env).stdout == f"{folder}\n"
    assert json.loads(kvkiln("cache", "list", "--json", env=env).stdout)["entries"] == []
    kvkiln("bench", "decode", "--device", "host", "--context", "64", "--repeats", "1", env=env)
    entries = json.loads(kvkiln("cache", "list", "--json", "--dir", folder).stdout)["entries"]
    assert entries and all(e["whole"] and e["this_build"] and e["bytes"] for e in entries)
    assert any(e["name"].startswith("decode.turboquant_4bit_nc") for e in entries)
    assert "decode.turboquant_4bit_nc" in kvkiln("cache", "list", env=env).stdout
    kvkiln("cache", "verify", env=env)
    for name in ("keep.txt", "0" * 31 + ".kvko"):
        shutil.copy(f"{TEMP}/program.c", f"{folder}/{name}")
    damaged = f"{folder}/{'0' * 32}.kvko"
    shutil.copy(f"{TEMP}/program.c", damaged)
    misnamed = f"{folder}/{'1' * 32}.kvko"
    shutil.copy(f"{folder}/{entries[0]['file']}", misnamed)
    done = kvkiln("cache", "verify", env=env, code=1)
    assert "0" * 32 in done.stdout and "1" * 32 in done.stdout
    kvkiln("cache", "prune", env=env)
    assert not os.path.exists(damaged) and not os.path.exists(misnamed)
    kvkiln("cache", "verify", env=env)
    assert len(glob.glob(f"{folder}/*.kvko")) == len(entries) + 1
    kvkiln("cache", "prune", "--limit", "1", env=env)
    assert len(glob.glob(f"{folder}/*.kvko")) == 1
    kvkiln("bench", "decode", "--device", "host", "--context", "64", "--repeats", "1", env=env)
    kvkiln("cache", "clear", env=env)
    assert sorted(os.listdir(folder)) == sorted(["keep.txt", "0" * 31 + ".kvko"])


def cache_commands_check_their_arguments():
    for args in ((), ("frobnicate",), ("list", "list"), ("prune", "--limit", "0"), ("prune", "--limit", "1T"),
                 ("prune", "--limit", "-1"), ("prune", "--limit", "99999999999G")):
        assert kvkiln("cache", *args, code=2).stderr, args
    kvkiln("cache", "list", "--dir", f"{TEMP}/plain", code=2)
    assert "no cache" in kvkiln("cache", "list", env={"KVKILN_CACHE_DIR": ""}, code=2).stderr


CASES = [same_input_gives_the_same_bytes, merge_of_parts_is_the_whole, list_shows_every_kernel,
         failures_are_named_and_do_not_stop_the_rest, verify_finds_damage, damaged_code_goes_nowhere, diff_says_what_differs,
         extract_gives_what_build_writes, usage_errors_are_named, host_without_generator_serves_from_a_pack,
         doctor_says_which_packs_are_of_use,
         pack_is_linked_into_a_program, cache_is_looked_after, cache_commands_check_their_arguments]


with tempfile.TemporaryDirectory() as TEMP:
    main(CASES)
