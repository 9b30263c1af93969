#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Facts about the code objects of every GPU target, without a GPU.

test_objects.py [--full] [--targets T,...] [--spills]

gfx: every instruction disassembles; the matrix instruction of the target in decode and unified, and FP4 products where
the query is e4m3; no scratch, no spills; shared memory is written before a barrier is passed; code object version 5;
arguments, block size, wave size and shared memory equal the manifest and abi.def; so does the descriptor. The last lines
tell the occupancy.
sm_: the pinned PTX version; parameters equal abi.def, with a tensor map behind them where the manifest says `turned`, and only there
tensor copies; mma.sync in decode and unified, for 16-bit caches on sm_90a wgmma
instead, which the assembler does not serialize; no local memory; the assembler reports no spills (skipped where there is no assembler); from sm_90 on, nothing of global memory before griddepcontrol.wait (in
the machine code as well, where nvdisasm is there).

A small core by default; --full: every preset x kind x head size 64, 128, 256 x gqa 1, 4, 8 x layout, and
attention for sm_ targets also with gqa 3 and 16, pages of 32 and 64 and the float presets. --spills prints a
table of registers, spills and scratch of each kernel too. The core's objects are kept for the next run by the same
generator. KVKILN names the executable; else out/bin/kvkiln.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = f"{ROOT}/out/build"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hsaco  # noqa: E402 (needs the path above)

PRESETS = ["turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "ultraquant_4bit"]
GFX = ["gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1200"]
SM = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_103a", "sm_121a"]
KINDS = ["store", "decode", "unified", "dequant", "merge", "copy"]
ATTEND = ["decode", "unified"]
NATIVE = ["turboquant_k8v4", "turboquant_3bit_nc"]
SCALED = ["ultraquant_4bit_e4m3q"]
OPTIONS = ["soft_cap+alibi"]
TYPES = {"PTR": (8, "u64"), "I64": (8, "u64"), "I32": (4, "u32"), "F32": (4, "f32")}
TENSOR_MAP = "64 128"  # alignment and bytes (CUDA driver API, CUtensorMap)

WGMMA = ["fp16", "bf16"]  # presets whose unified reads shared memory by wgmma on sm_90a
FLOATS = ["bf16", "fp8_e4m3", "mxfp4", "nvfp4"]

# What the core builds: (targets, presets, kinds, layouts, head sizes, gqa, options of attention, pages; 16 where left out)
CORE = [
    (["gfx942", "gfx1100"], PRESETS, KINDS, [], [128], [4], ["none"]),
    (["gfx950", "gfx1201"], PRESETS, ATTEND, ["aos"], [128], [4], ["none"]),
    (["gfx950"], SCALED, ATTEND, ["aos"], [64, 128], [4], ["none"]),
    (["gfx942", "gfx1201"], PRESETS[1:2], ATTEND, ["aos"], [64, 256], [1], ["none"]),
    (["sm_80", "sm_90a"], PRESETS, KINDS, ["aos"], [128], [4], ["none"]),
    (["sm_80", "sm_90a"], NATIVE, KINDS, ["native"], [128], [4], ["none"]),
    (["sm_90a", "sm_120a"], PRESETS[:4], ["store"], ["soa"], [128, 256], [4], ["none"]),
    (["gfx942", "gfx1201", "sm_90a"], NATIVE[1:], ["convert"], ["aos", "native"], [64], [4], ["none"]),
    (["sm_120a"], PRESETS[1:2], ATTEND, [], [64, 256], [8], ["none"]),
    (["gfx942", "gfx1201", "sm_80", "sm_90a"], PRESETS[1:2], ATTEND, ["aos"], [128], [8], OPTIONS),
    (["gfx942", "gfx1201", "sm_80", "sm_90a"], [f"{ROOT}/tests/ir/values.lua"], ATTEND, ["aos"], [128], [4], ["none"]),
    (["sm_80", "sm_90a", "sm_120a"], [f"{ROOT}/tests/ir/values.lua"], ATTEND, ["aos"], [256], [8], ["none"]),
    (["sm_90a", "sm_100a", "sm_120a"], PRESETS[:4], ["decode"], ["soa"], [128], [8], ["none"], [16, 32]),
    (["sm_90a", "sm_100a"], PRESETS[:4], ["decode"], [], [128], [16], ["none"]),
    (["sm_90a"], PRESETS[:2], ["decode"], ["native"], [64, 128], [12, 24], ["none"], [32]),
    (["sm_90a"], WGMMA, ["unified"], ["aos"], [64, 128], [1, 3, 8, 16], ["none"], [16, 4096]),
    (["sm_90a", "sm_120a"], FLOATS[1:2], ["decode"], ["aos"], [128, 256], [4], ["none"]),
]
FULL = [([target], PRESETS, KINDS + ["convert"], [], [64, 128, 256], [1, 4, 8], ["none"]) for target in GFX + SM] + \
    [([target], PRESETS, ATTEND, [], [64, 128, 256], [1, 4, 8], OPTIONS) for target in GFX + SM] + \
    [([target], PRESETS + FLOATS, ATTEND, [], [64, 128, 256], [3, 16], ["none"], [16, 64]) for target in SM] + \
    [([target], FLOATS, ATTEND, [], [64, 128, 256], [1, 4, 8], ["none"], [16, 32]) for target in SM] + \
    [([target], PRESETS, ATTEND, [], [64, 128, 256], [1, 4, 8], ["none"], [32]) for target in SM] + \
    [(["sm_90a"], WGMMA, ["unified"], ["aos"], [64, 128], list(range(1, 17)), ["none"], [16, 4096])] + \
    [([target], SCALED, ATTEND, [], [64, 128, 256], [1, 4, 8], ["none"]) for target in GFX]


def abi():
    """{entry: [(name, type, offset)]} and {entry: bytes} of abi.def."""
    rows, sizes = collections.defaultdict(list), collections.defaultdict(int)
    with open(f"{ROOT}/runtime/abi.def", encoding="utf-8") as f:
        for entry, kind, name in re.findall(r"^ABI\((\w+), (\w+), (\w+)\)", f.read(), re.M):
            size = TYPES[kind][0]
            offset = (sizes[entry] + size - 1) // size * size
            rows[entry].append((name, kind, offset))
            sizes[entry] = offset + size
    return rows, sizes


def targets_def():
    """{name: (features, shared bytes, wave size)}"""
    with open(f"{ROOT}/gen/targets.def", encoding="utf-8") as f:
        found = re.findall(r'^TARGET\("([^"]+)", \w+, "[^"]*", "([^"]*)", [^,]+, (\d+), (\d+),', f.read(), re.M)
    return {name: (features, int(shared), int(warp)) for name, features, warp, shared in found}


ABI, ABI_BYTES = abi()
TARGETS = targets_def()


class Failed(Exception):
    """A fact that does not hold."""


def require(fact, text):
    if not fact:
        raise Failed(text)


def open_object(path):
    """(manifest lines as {name: [values]}, code) of a sealed object."""
    with open(path, "rb") as f:
        data = f.read()
    key, manifest, code, total = struct.unpack_from("<4Q", data, 32)
    require(total == len(data), "sealed size differs")
    text = data[64 + key + 1:64 + key + 1 + manifest].decode()
    lines = collections.defaultdict(list)
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        lines[name].append(value)
    return lines, data[len(data) - code:]


def entries(manifest):
    """[(abi name, symbol, threads, shared bytes)]"""
    found = [line.split() for line in manifest["entry"]]
    return [(e[0], e[1], int(e[2]), int(e[3])) for e in found]


# ---- AMD ----

def check_arguments(kernel, entry):
    want = [(name, offset, TYPES[kind][0]) for name, kind, offset in ABI[entry]]
    have = [(a[".name"], a[".offset"], a[".size"]) for a in kernel[".args"]]
    require(have == want, f"{entry}: arguments {have} differ from abi.def")
    for a, (_, kind, _) in zip(kernel[".args"], ABI[entry]):
        value = a[".value_kind"]
        require((value == "global_buffer") == (kind == "PTR"), f"{entry}: {a['.name']} is {value}")
    require(kernel[".kernarg_segment_size"] == ABI_BYTES[entry],
            f"{entry}: {kernel['.kernarg_segment_size']} bytes of arguments, abi.def has {ABI_BYTES[entry]}")


def check_kernel(image, kernel, entry, target):
    abi_name, symbol, threads, shared = entry
    _, limit, wave = TARGETS[target]
    check_arguments(kernel, abi_name)
    for field in (".vgpr_spill_count", ".sgpr_spill_count", ".private_segment_fixed_size"):
        require(kernel[field] == 0, f"{abi_name}: {field[1:]} {kernel[field]}, {kernel['.vgpr_count']} vgprs")
    block = kernel[".max_flat_workgroup_size"]
    require(block == threads, f"{abi_name}: block size {block}, the manifest has {threads}")
    require(kernel[".wavefront_size"] == wave, f"{abi_name}: wave size {kernel['.wavefront_size']}")
    require(shared <= limit, f"{abi_name}: {shared} bytes of LDS, at most {limit}")
    require(not kernel[".uses_dynamic_stack"], f"{abi_name}: dynamic stack")
    group, private, arguments, code = image.descriptor(symbol)
    require(group == kernel[".group_segment_fixed_size"] == 0, f"{abi_name}: static LDS {group}")
    require(private == 0, f"{abi_name}: descriptor: scratch {private}")
    require(arguments == ABI_BYTES[abi_name], f"{abi_name}: descriptor: {arguments} bytes of arguments")
    require(code == image.symbol(symbol).value, f"{abi_name}: descriptor points elsewhere")


def disassemble(code, target, folder):
    path = os.path.join(folder, "code")
    with open(path, "wb") as f:
        f.write(code)
    command = ["llvm-objdump-22", "-d", f"--mcpu={target}", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    require(done.returncode == 0 and not done.stderr.strip(), f"llvm-objdump-22: {done.stderr.strip()[:200]}")
    blocks = re.split(r"^[0-9a-f]+ <([^>]+)>:$", done.stdout, flags=re.M)[1:]
    return dict(zip(blocks[::2], blocks[1::2]))


def check_barriers(name, text):
    """Before a barrier, every write to shared memory is waited for in the same straight run of code."""
    pending = False
    for line in text.splitlines():
        words = line.split("//")[0].split()
        if not words:
            continue
        if re.match(r"ds_(write|store)", words[0]):
            pending = True
        elif words[0].startswith("s_wait") and re.search(r"lgkmcnt\(0\)|^s_wait_\w*dscnt 0x0$", " ".join(words)):
            pending = False
        elif words[0] in ("s_barrier", "s_barrier_signal"):
            require(not pending, f"{name}: a barrier is passed before shared memory is written")


def matrix_instruction(name, target):
    """What decode and unified of this file must contain."""
    if target == "gfx950":
        return "v_mfma_scale_f32_16x16x128_f8f6f4" if "e4m3q" in name else "v_mfma_f32_16x16x32"
    return "v_mfma_f32_16x16x16" if target.startswith("gfx9") else "v_wmma_f32_16x16x16"


def check_code(blocks, entry, target, file):
    abi_name, symbol = entry[:2]
    require(symbol in blocks, f"{abi_name}: no code")
    text = blocks[symbol]
    strange = re.search(r"^.*(\.long|<unknown>|illegal).*$", text, re.M)
    require(not strange, f"{abi_name}: {strange and strange.group(0).strip()}")
    require("s_endpgm" in text, f"{abi_name}: does not end")
    require("scratch_" not in text, f"{abi_name}: uses scratch memory")
    require("v_cvt_pkrtz" not in text, f"{abi_name}: rounds toward zero")
    require(not re.search(r"\bs_(swappc|setpc)", text), f"{abi_name}: calls a function")
    check_barriers(abi_name, text)
    if abi_name in ("decode", "unified"):
        wanted = matrix_instruction(file, target)
        require(wanted in text, f"{abi_name}: no {wanted}")


def check_gfx(path, target, folder):
    manifest, code = open_object(path)
    require(manifest["format"] == ["hsaco"], f"format {manifest['format']}")
    image = hsaco.Image(code)
    require(image.abi_version == 3, f"ABI version {image.abi_version}: not code object version 5")
    require(image.metadata["amdhsa.target"] == f"amdgcn-amd-amdhsa--{target}", image.metadata["amdhsa.target"])
    kernels = {k[".name"]: k for k in image.metadata["amdhsa.kernels"]}
    rows = entries(manifest)
    require(sorted(kernels) == sorted(e[1] for e in rows), f"kernels {sorted(kernels)} differ from the manifest")
    blocks = disassemble(code, target, folder)
    for entry in rows:
        check_kernel(image, kernels[entry[1]], entry, target)
        check_code(blocks, entry, target, os.path.basename(path))
    return rows


def occupancy(target, vgprs, threads, shared):
    """Waves a SIMD of a compute unit, by registers and by LDS (of one compute unit; AMD's manuals)."""
    total, granule, most, lds = {"gfx942": (512, 8, 8, 65536), "gfx950": (512, 8, 8, 163840)}.get(
        target, (1536, 24, 16, 65536))
    blocks = lds // max(1, shared)
    waves = threads // TARGETS[target][2]
    simds = 4 if target.startswith("gfx9") else 2
    held = (max(1, vgprs) + granule - 1) // granule * granule
    return min(most, total // held, max(1, blocks * waves // simds))


def attend_occupancy(path, target):
    manifest, code = open_object(path)
    kernels = {k[".name"]: k for k in hsaco.Image(code).metadata["amdhsa.kernels"]}
    return [occupancy(target, kernels[e[1]][".vgpr_count"], e[2], e[3]) for e in entries(manifest) if e[0] in ATTEND]


def facts_gfx(path):
    manifest, code = open_object(path)
    kernels = {k[".name"]: k for k in hsaco.Image(code).metadata["amdhsa.kernels"]}
    rows = [(e[0], kernels[e[1]], e[3]) for e in entries(manifest)]
    return [(entry, k[".vgpr_count"], k[".vgpr_spill_count"] + k[".sgpr_spill_count"],
             k[".private_segment_fixed_size"], shared) for entry, k, shared in rows]


# ---- NVIDIA ----

# Reads and writes of what a kernel before may have touched: PTX, and machine code.
GLOBAL = r"\b(?:ld|st|atom|red)\.(?:\w+\.)*global\b|\bcp\.async\b|\bcp\.reduce\b"
MACHINE_GLOBAL = r"\b(?:LDG|STG|LDGSTS|UBLKCP|ATOMG|REDG|RED|LD|ST|ATOM)\b"
NVDISASM = shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")


def waits_first(name, body, wait, access):
    at, first = body.find(wait), re.search(access, body)
    require(at >= 0, f"{name}: no {wait}")
    require(not first or at < first.start(), f"{name}: global memory before {wait}")


def check_grid_wait(manifest, code, text, target, wgmma):
    """From sm_90 on every entry begins by waiting for the grids before it; others must not, nor promise it."""
    bodies = re.findall(r"\.entry (\w+)\(.*?\)(.*?)\n\}", text, re.S)
    if int(re.match(r"sm_(\d+)", target).group(1)) < 90:
        require("griddepcontrol" not in text and not manifest["grid_wait"], "grid_wait on a GPU without it")
        return
    require(manifest["grid_wait"] == ["1"], "the manifest has no grid_wait")
    for name, body in bodies:
        waits_first(name, body, "griddepcontrol.wait", GLOBAL)
    if not NVDISASM or manifest["format"] != ["cubin"]:
        return
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        sass = subprocess.run([NVDISASM, "-c", file.name], capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\.text\.(\w+):", sass, flags=re.M)
    code_of = {n: b for n, b in zip(parts[1::2], parts[2::2]) if not n.startswith("__cuda_")}  # those are called: arithmetic
    require(sorted(code_of) == sorted(name for name, _ in bodies), f"functions {parts[1::2]} in the machine code")
    require("HGMMA" in sass if wgmma else True, "no HGMMA in the machine code")
    for name, body in code_of.items():
        waits_first(f"machine code of {name}", body, "ACQBULK", MACHINE_GLOBAL)


def is_wgmma(path):
    return os.path.basename(path).split(".")[:2] in [["unified", preset] for preset in WGMMA] and ".sm_90a." in path


def parameters(declared):
    """Types as in TYPES; of an array its alignment and bytes."""
    found = re.findall(r"\.param (?:\.align (\d+) )?\.(\w+)[^,\[]*(?:\[(\d+)\])?", declared)
    return [f"{align} {size}" if size else kind.replace("b", "u", 1) for align, kind, size in found]


def check_entry(text, entry, wgmma, turned):
    abi_name, symbol, threads, _ = entry
    block = re.search(r"\.entry " + re.escape(symbol) + r"\((.*?)\)(.*?)\n\}", text, re.S)
    require(block, f"{abi_name}: no entry {symbol}")
    have, maps = parameters(block.group(1)), turned and abi_name == "decode"
    want = [TYPES[kind][1] for _, kind, _ in ABI[abi_name]] + [TENSOR_MAP] * maps
    require(have == want, f"{abi_name}: parameters {have}")
    require(("cp.async.bulk.tensor" in block.group(2)) == maps, f"{abi_name}: tensor copies are {'missing' if maps else 'there'}")
    require(re.search(rf"\.maxntid {threads}\b", block.group(2)), f"{abi_name}: block size is not {threads}")
    require(".local" not in block.group(2), f"{abi_name}: local memory")
    if abi_name in ("decode", "unified"):
        require(("mma.sync" in block.group(2)) != wgmma, f"{abi_name}: mma.sync is {'there' if wgmma else 'missing'}")
        require(("wgmma.mma_async" in block.group(2)) == wgmma, f"{abi_name}: wgmma is {'missing' if wgmma else 'there'}")
    if abi_name == "decode" and "atom." in block.group(2):  # an addition by itself orders nothing
        require(re.search(r"fence\.acq_rel\.gpu;\s+atom\.[^;]*add[^;]*;\s+fence\.acq_rel\.gpu;", block.group(2)),
                "decode: no arrival between two fences")


def check_sm(path, target):
    """Returns the entries and whether an assembler reported on them."""
    manifest, code = open_object(path)
    with open(os.path.splitext(path)[0] + ".ptx", encoding="utf-8") as f:
        text = f.read()
    check_grid_wait(manifest, code, text, target, is_wgmma(path))
    pinned = re.search(r"\+ptx(\d+)(\d)", TARGETS[target][0])
    require(f".version {pinned.group(1)}.{pinned.group(2)}\n" in text, "PTX version is not the pinned one")
    require(f".target {target}\n" in text, "other .target")
    rows = entries(manifest)
    for entry in rows:
        check_entry(text, entry, is_wgmma(path), manifest["turned"] == ["1"])
        require(entry[3] <= TARGETS[target][1], f"{entry[0]}: {entry[3]} bytes of shared memory")
    if manifest["format"] != ["cubin"]:
        return rows, False
    spills = dict(line.split() for line in manifest["spills"])
    for entry in rows:
        require(entry[0] in spills, f"{entry[0]}: no spill report")
        require(spills[entry[0]] == "0", f"{entry[0]}: {spills[entry[0]]} bytes of spills")
    require("serialized" not in manifest, "the assembler serializes wgmma")
    return rows, True


def facts_sm(path):
    manifest, _ = open_object(path)
    registers = dict(line.split() for line in manifest["registers"])
    spills = dict(line.split() for line in manifest["spills"])
    return [(e[0], registers.get(e[0], "?"), spills.get(e[0], "?"), 0, e[3]) for e in entries(manifest)]


# ---- building and counting ----

def build(kvkiln, group, folder):
    """Runs the command line; returns {path: target} of the sealed objects and what it said."""
    targets, presets, kinds, layouts, sizes, gqas, options, *pages = group
    found, said = {}, ""
    others = tuple(k for k in ("merge",) if k not in kinds)  # comes with decode, whose splits it joins
    for target in targets:
        out = os.path.join(folder, target)
        command = [kvkiln, "build", *presets, "--target", target, "--kind", ",".join(kinds), "--head-size",
                   ",".join(map(str, sizes)), "--gqa", ",".join(map(str, gqas)), "--options", ",".join(options), "--emit",
                   "object" if target.startswith("gfx") else "ptx,object", "-o", out]
        if pages:
            command += ["--page", ",".join(map(str, pages[0]))]
        if layouts:
            command += ["--layout", ",".join(layouts)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            said += f"{target}: exit {done.returncode}\n" + "\n".join(done.stderr.splitlines()[-30:]) + "\n"
        for name in sorted(os.listdir(out)) if os.path.isdir(out) else []:
            if name.startswith(others):
                continue
            path = os.path.join(out, name)
            with open(path, "rb") as f:
                if f.read(6) == b"KVKILN":
                    found[path] = target
    return found, said


def layouts_of(preset):
    return ["aos"] + ["soa"] * preset.startswith("turbo") + ["native"] * preset.startswith(("turbo", "ultra"))


def expected(group):
    targets, presets, kinds, layouts, sizes, gqas, options, *pages = group
    of = {p: len([x for x in (layouts or ["aos", "soa", "native"]) if x in layouts_of(p)]) for p in presets}
    return len(targets) * sum(of.values()) * len(kinds) * len(sizes) * len(gqas) * len(options) * len(pages[0] if pages else [16])


def check_one(path, target):
    """(name, failure or None, assembled)"""
    name = os.path.basename(path)
    try:
        if target.startswith("gfx"):
            with tempfile.TemporaryDirectory() as folder:
                check_gfx(path, target, folder)
            return name, None, True
        return name, None, check_sm(path, target)[1]
    except Failed as failed:
        return name, str(failed), True
    except (OSError, KeyError, ValueError, IndexError, struct.error) as error:
        return name, f"{type(error).__name__}: {error}", True


def print_facts(found):
    print(f"{'kernel':58} {'entry':8} {'regs':>5} {'spills':>7} {'scratch':>8} {'shared':>7}")
    for path, target in found.items():
        for entry, registers, spills, scratch, shared in (facts_gfx if target.startswith("gfx") else facts_sm)(path):
            print(f"{os.path.basename(path)[:58]:58} {entry:8} {registers:>5} {spills:>7} {scratch:>8} {shared:>7}")


def kept_folder():
    """Where the core's objects stay for the next run by the same generator; those of others go."""
    name = hashlib.sha256()
    for path in (f"{BUILD}/generated/build_id.h", f"{ROOT}/tests/ir/values.lua", __file__):
        with open(path, "rb") as f:
            name.update(f.read())
    folder, name = f"{BUILD}/test-cache-objects", name.hexdigest()[:16]
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    for other in set(os.listdir(folder)) - {name}:
        shutil.rmtree(f"{folder}/{other}", ignore_errors=True)
    return f"{folder}/{name}"


def built(kvkiln, group, folder, keep):
    """The same as build(), or what it found in an earlier run that missed nothing."""
    if not keep:
        return build(kvkiln, group, folder)
    kept = f"{keep}/{hashlib.sha256(repr(group).encode()).hexdigest()[:16]}"
    done = f"{kept}/done.json"
    if os.path.exists(done):
        with open(done, encoding="utf-8") as f:
            return json.load(f), ""
    shutil.rmtree(kept, ignore_errors=True)
    found, said = build(kvkiln, group, kept)
    if not said and len(found) == expected(group):
        with open(done, "w", encoding="utf-8") as f:
            json.dump(found, f)
    return found, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--spills", action="store_true")
    parser.add_argument("--targets", default="")
    args = parser.parse_args()
    kvkiln = os.environ.get("KVKILN", f"{ROOT}/out/bin/kvkiln")
    only = [t for t in args.targets.split(",") if t]
    # of an executable elsewhere the generator is not known
    own = kvkiln == f"{ROOT}/out/bin/kvkiln" and os.path.exists(f"{BUILD}/generated/build_id.h")
    keep = kept_folder() if own and not args.full else None
    passed = failed = skipped = 0
    waves = collections.defaultdict(list)
    tools = shutil.which("llvm-objdump-22")
    for targets, *rest in FULL if args.full else CORE:
        targets = [t for t in targets if not only or t in only]
        if not targets:
            continue
        group = (targets, *rest)
        if targets[0].startswith("gfx") and not tools:
            print(f"skipped: {','.join(targets)}: no llvm-objdump-22")
            skipped += expected(group)
            continue
        with tempfile.TemporaryDirectory() as folder:
            found, said = built(kvkiln, group, folder, keep)
            if said:
                print(said)
            missing = expected(group) - len(found)
            if missing:
                print(f"FAIL {','.join(targets)}: {missing} of {expected(group)} kernels were not built")
                failed += abs(missing)
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for name, failure, assembled in pool.map(check_one, found.keys(), found.values()):
                    passed += failure is None
                    failed += failure is not None
                    skipped += not assembled
                    if failure:
                        print(f"FAIL {name}: {failure}")
            for path, target in found.items():
                if target.startswith("gfx"):
                    waves[target] += attend_occupancy(path, target)
            if args.spills:
                print_facts(found)
    for target, found in waves.items():
        if found:
            print(f"{target}: {min(found)} to {max(found)} waves a SIMD in {len(found)} attention kernels")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed + skipped else 0


if __name__ == "__main__":
    sys.exit(main())
