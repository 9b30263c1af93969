#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The generated AMD kernels on the simulator, through the runtime and its HIP driver.

test_kernels.py [--full] [--targets T,...] [--jobs N] [--keep FILE]

Per target: the numeric suite with pages of 16 (waves in order), again with waves and work-groups in the opposite order
and approximations off by up to an ulp; the shipped samples, whose stored bytes must be the host's; coverage: every
instruction of the code objects that ran is implemented, and was executed. Shapes have tails, several work-groups and
loop iterations, GQA ratios 1, 3, 8, 16 and others.

--full: all page sizes of the numeric suite, the golden files, and coverage of a product: every instruction in the code
objects of all presets, kinds and layouts at head sizes 64, 128, 256, GQA ratios 1, 3, 4, 8, 16, bf16 and fp16 is known
and was executed in one of the runs before. --keep FILE: append the coverage lines there. --executed FILE: lines that an
earlier run kept count as well; --only-product: nothing but the coverage of the product. The last line is "N passed, N
failed, N skipped". No AMD hardware is involved: see docs/amd.md.

Kernels and their listings, four fifths of the work, are kept for the next run by the same generator; --full keeps none.
"""
import argparse
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from share import share, share_files  # noqa: E402 (needs the path above)

ROOT = os.environ.get("TEST_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TEST_BUILD") or f"{ROOT}/out/build"
NUM, KVKILN = f"{BUILD}/tests/amdsim_num", f"{BUILD}/tests/amdsim_kvkiln"
OBJDUMP = "llvm-objdump-22"

# What the driver in the kernel tells of a GPU: gfx_target_version
VERSIONS = {"gfx942": 90402, "gfx950": 90500, "gfx1100": 110000, "gfx1201": 120001, "gfx1200": 120000}
TARGETS = ["gfx942", "gfx950", "gfx1100", "gfx1201"]  # gfx1200 has the instructions of gfx1201
COMPUTE_UNITS = 20  # few: the runtime splits less, so a launch is shorter
PRESETS = sorted(os.path.basename(path)[:-4] for path in glob.glob(f"{ROOT}/specs/*.lua"))

# Cases of the core, by pass: names, as `num --filter` takes them. Pages of 16, and the presets whose only cases have
# others. "ragged": work that is shared out over sequences of different lengths, a search that no other case takes.
CORE = {"in order": ("*.p16/1", "*/bf16.aos.*.p32/[12]", "*/nvfp4.aos.*.p32/[12]"), "backwards, rough": ("*.p16/0",),
        "ragged": ("ragged_batches_are_spread/*.p16",)}

Result = collections.namedtuple("Result", "name passed failed skipped text seconds")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--targets", default=",".join(TARGETS), type=lambda text: text.split(","))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep")
    parser.add_argument("--executed")
    parser.add_argument("--only-product", action="store_true")
    return parser.parse_args()


class Device:
    """The environment in which hip:0 is a simulated GPU."""

    def __init__(self, folder, target, kept=None):
        self.target, self.folder, self.coverage = target, folder, f"{folder}/{target}.coverage"
        topology = f"{folder}/{target}/0"
        os.makedirs(topology)
        with open(f"{topology}/properties", "w", encoding="utf-8") as f:
            f.write(f"simd_count {4 * COMPUTE_UNITS}\nsimd_per_cu 4\ngfx_target_version {VERSIONS[target]}\n"
                    "location_id 768\ndomain 0\n")
        self.env = dict(os.environ, AMDSIM_TARGET=target, AMDSIM_TOPOLOGY=os.path.dirname(topology),
                        AMDSIM_COVERAGE=self.coverage, AMDSIM_LISTINGS=kept or folder, LD_LIBRARY_PATH=f"{BUILD}/amdsim",
                        KVKILN_CACHE_DIR=f"{kept or folder}/cache-{target}")

    def run(self, *command, **more):
        return subprocess.run(command, env=dict(self.env, **more), capture_output=True, text=True, errors="replace",
                              timeout=1400, check=False)


def output(done):
    return "\n".join((done.stdout + done.stderr).splitlines()[-40:])


def core_names(patterns):
    """Those that match, but for decode by images and by pairs, which no AMD GPU has."""
    names = []
    for pattern in patterns:
        done = subprocess.run([NUM, "--list", "--filter", pattern], capture_output=True, text=True, check=True)
        names += [name for name in done.stdout.splitlines() if not name.startswith("decode_by_")]
    return names


def core_share(target):
    """{pass: names} of one target. Both numeric passes share models out alike, and with them kernels."""
    names = {part: core_names(patterns) for part, patterns in CORE.items()}
    ours = set(share(names["in order"] + names["backwards, rough"], target, PRESETS) + share(names["ragged"], target, PRESETS))
    return {part: [name for name in those if name in ours] for part, those in names.items()}


def numeric(device, name, names, **more):
    """`names`: None runs all."""
    started, options = time.monotonic(), []
    if names is not None:
        path = f"{device.folder}/{device.target}.names"
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(f"{line}\n" for line in names))
        options = ["--only", path]
    done = device.run(NUM, "--device", "hip:0", *options, **more)
    total = re.findall(r"(\d+) passed, (\d+) failed, (\d+) skipped", done.stdout)
    passed, failed, skipped = (int(x) for x in total[-1]) if total else (0, 1, 0)
    if not passed or (done.returncode and not failed):
        failed += 1
    # too large for this GPU, and nothing else
    refused = re.findall(r"^FAIL (\S+): kvk_prepare: KVK_E_UNSUPPORTED\b.* kernels take ", done.stdout, re.M)
    failed, skipped = failed - len(refused), skipped + len(refused)
    text = output(done) if failed else f"refused: {', '.join(refused)}" if refused else ""
    return Result(f"{device.target} num {name}", passed, failed, skipped, text, time.monotonic() - started)


def checked(device, *files, where="hip:0"):
    done = device.run(KVKILN, "check", "--json", "--device", where, *files)
    try:
        return json.loads(done.stdout)["files"], done
    except (ValueError, KeyError):
        return [], done


def samples(device, name, files):
    """kvkiln check of sample files, and the hash of what store wrote against the host's."""
    started = time.monotonic()
    there, done = checked(device, *files)
    here, _ = checked(device, *files, where="host")
    passed, problems = 0, []
    if len(there) != len(files) or len(here) != len(files):
        problems.append(output(done))
    for ours, host in zip(there, here):
        file = os.path.basename(ours["file"])
        bad = [t["name"] for t in ours["tensors"] if not t["pass"]]
        if bad:
            problems.append(f"{file}: {', '.join(bad)}")
        same = bool(ours.get("stored")) and ours["stored"] == host.get("stored")
        if not same:
            problems.append(f"{file}: stored bytes differ from the host's, or were not compared: {ours.get('error', '')}")
        passed += not bad and same
    text = "\n".join(problems)
    return Result(f"{device.target} {name}", passed, len(problems), 0, text, time.monotonic() - started)


def target_jobs(device, full):
    """All that runs on one target, one after the other: later runs find the kernels of earlier ones."""
    names = dict.fromkeys(CORE) if full else core_share(device.target)
    yield numeric(device, "in order", names["in order"])
    yield numeric(device, "backwards, rough", names["backwards, rough"], AMDSIM_BACKWARDS="1", AMDSIM_JITTER="1")
    if not full:
        yield numeric(device, "ragged", names["ragged"])
    files = sorted(glob.glob(f"{ROOT}/tests/data/*.safetensors"))
    yield samples(device, "samples", files if full else share_files(files, device.target))
    golden = sorted(glob.glob(f"{ROOT}/../shared/golden/*.safetensors"))
    if full and golden:
        yield samples(device, "golden files", golden)


# ---- coverage ----

def read_coverage(path, only=None):
    """({instruction: executed}, {kernel: (instructions, most of them that one run executed)})"""
    executed, kernels = collections.Counter(), {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for kind, target, name, *numbers in map(str.split, f):
                if only and target != only:
                    continue
                if kind == "INSN":
                    executed[name] += int(numbers[0])
                else:
                    total, most = (int(x) for x in numbers)
                    kernels[name] = (total, max(most, kernels.get(name, (0, 0))[1]))
    return executed, kernels


def coverage(device):
    executed, kernels = read_coverage(device.coverage)
    missed = sorted(name for name in executed if not executed[name])
    ran = [k for k in kernels.values() if k[1]]
    share = sum(k[1] for k in ran) / max(1, sum(k[0] for k in ran))
    print(f"     {device.target}: {len(executed)} kinds of instructions in {len(kernels)} kernels, {len(ran)} of them "
          f"ran; {share:.1%} of their instructions were executed, {sum(executed.values()) / 1e6:.0f} million times")
    text = f"never executed: {', '.join(missed)}" if missed else "" if executed else "nothing ran"
    return Result(f"{device.target} coverage", int(not text), int(bool(text)), 0, text, 0)


# ---- every shipped code object consists of known instructions ----

def known_instructions():
    with open(f"{ROOT}/tests/amdsim/ops.def", encoding="utf-8") as f:
        text = f.read()
    names = set(re.findall(r'"([a-z][a-z0-9_]+)"', text))
    kinds = {"INTEGERS": "lt eq le gt ge ne", "REALS": "lt eq le gt ge lg o u nge nlg ngt nle neq nlt"}
    for kind, conditions in kinds.items():
        for suffix in re.findall(rf'^{kind}\((\w+), "', text, re.M):
            names |= {f"{what}_{c}_{suffix}" for c in conditions.split() for what in ("v_cmp", "v_cmpx")}
    return names


def base(mnemonic):
    for suffix in ("_dpp", "_sdwa", "_e32", "_e64", "_dpp"):
        mnemonic = mnemonic.removesuffix(suffix)
    return mnemonic.replace("v_dual_", "v_")


def objects(folder, target):
    """Builds the product into `folder`; returns its files and what went wrong."""
    attend, text = "decode,unified", ""
    for kinds, gqas in ((attend, "1,3,4,8,16"), ("store,dequant,merge,copy", "4")):
        build = [KVKILN, "build", "--target", target, "--dtype", "bf16,fp16", "--head-size", "64,128,256", "--kind",
                 kinds, "--gqa", gqas, "--emit", "hsaco", "--jobs", "1", "--output", folder, *PRESETS]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        text += output(done) if done.returncode else ""
    return sorted(glob.glob(f"{folder}/*.hsaco")), text


def mnemonics(files, target):
    """{instruction: one of the files that have it}"""
    found = {}
    for i in range(0, len(files), 50):
        done = subprocess.run([OBJDUMP, "-d", f"--mcpu={target}", *files[i:i + 50]], capture_output=True, text=True,
                              check=False)
        for part in re.split(r"^(\S+):\s+file format .*$", done.stdout, flags=re.M)[1:]:
            if part.startswith("/"):
                path = part
                continue
            for name in set(re.findall(r"^\t(\S+)", part, re.M)) | set(re.findall(r" :: (\S+)", part)):
                found.setdefault(base(name), os.path.basename(path))
    found.pop("s_code_end", None)
    return found


def product(folder, target, executed):
    """Every instruction of the product is known, and was executed."""
    started, out = time.monotonic(), f"{folder}/objects-{target}"
    files, text = objects(out, target)
    found, known = mnemonics(files, target), known_instructions()
    shutil.rmtree(out, ignore_errors=True)
    unknown = [f"{name} ({file})" for name, file in sorted(found.items()) if name not in known]
    missed = [f"{name} ({file})" for name, file in sorted(found.items()) if name in known and not executed[name]]
    text += f"unknown: {', '.join(unknown)}\n" if unknown else ""
    text += f"never executed: {', '.join(missed)}\n" if missed else ""
    text += "" if found else "no instructions"
    return Result(f"{target} {len(found)} instructions of {len(files)} objects", len(found) - len(unknown) - len(missed),
                  len(unknown) + len(missed) or int(bool(text)), 0, text, time.monotonic() - started)


def report(result):
    for line in result.text.splitlines():
        print(f"     | {line[:300]}")
    word = "FAIL" if result.failed else "pass"  # not TAP: the last line counts
    print(f"{word} {result.name:44} {result.passed:5} passed {result.failed:3} failed {result.skipped:3} skipped "
          f"{result.seconds:6.1f} s", flush=True)
    return result


def kept_folder():
    """Of this generator; those of others go."""
    with open(f"{BUILD}/generated/build_id.h", "rb") as f:
        name = hashlib.sha256(f.read()).hexdigest()[:16]
    folder = f"{BUILD}/test-cache-amdsim"
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    for other in set(os.listdir(folder)) - {name}:
        shutil.rmtree(f"{folder}/{other}", ignore_errors=True)
    return f"{folder}/{name}"


def run_target(folder, target, args, kept):
    device, results = Device(folder, target, kept), []
    if not args.only_product:
        results = [report(r) for r in target_jobs(device, args.full)]
        results.append(report(coverage(device)))
    if args.full or args.only_product:
        executed = read_coverage(device.coverage)[0] + read_coverage(args.executed, target)[0]
        results.append(report(product(folder, target, executed)))
    return results, device.coverage


def main():
    args = arguments()
    reason = None if shutil.which(OBJDUMP) else f"{OBJDUMP} is missing"
    reason = reason or (None if os.path.exists(NUM) and os.path.exists(KVKILN) else f"{NUM} is not built")
    if reason:
        print(f"skipped: {reason}\n0 passed, 0 failed, 1 skipped")
        return 0
    totals, kept = [0, 0, 0], None if args.full or args.only_product else kept_folder()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for future in [pool.submit(run_target, folder, target, args, kept) for target in args.targets]:
            results, path = future.result()
            for result in results:
                totals = [a + b for a, b in zip(totals, result[1:4])]
            if args.keep and os.path.exists(path):
                with open(path, encoding="utf-8") as f, open(args.keep, "a", encoding="utf-8") as out:
                    out.write(f.read())
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
