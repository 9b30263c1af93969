#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvkiln check: exit codes, output, negative controls and damaged files, on the host device. TAP on stdout."""
import json
import os
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

import perturb

DATA = f"{ROOT}/tests/data"
MSE = f"{DATA}/turboquant_4bit_nc.aos.d128.g4.bfloat16.safetensors"
SOA = f"{DATA}/turboquant_4bit_nc.soa.d128.g6.float16.safetensors"
FP8 = f"{DATA}/turboquant_k8v4.aos.d128.g4.bfloat16.safetensors"
ULTRA = f"{DATA}/ultraquant_4bit.aos.d64.g4.bfloat16.safetensors"
KEYS = {"name", "count", "differ", "max_diff", "rel_l2", "limit", "pass"}


def check(*args, device="host"):
    done = subprocess.run([KVKILN, "check", "--device", device, *args], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1, 2, 3), f"exit {done.returncode}: {done.stderr}"
    return done


def check_json(*args, device="host"):
    done = check("--json", *args, device=device)
    return done.returncode, json.loads(done.stdout)


def failed(result):
    return {t["name"] for f in result["files"] for t in f["tensors"] if not t["pass"]}


def perturbed(kind, source):
    path = f"{TEMP}/{kind}.{os.path.basename(source)}"
    header, data = perturb.read(source)
    if kind in perturb.MEANING:
        perturb.MEANING[kind](header, data)
        perturb.write(path, header, data)
    else:
        perturb.write(path, *perturb.DAMAGE[kind](header, data))
    return path


def sample_files_pass():
    code, result = check_json(MSE, SOA, FP8, ULTRA)
    assert code == 0 and result["passed"] == 4 and result["failed"] == 0
    assert result["device"] == "host" and result["device_reason"] and result["version"]
    for file in result["files"]:
        assert file["pass"] and {"file", "preset", "pass", "tensors"} <= set(file)
        for tensor in file["tensors"]:
            assert KEYS <= set(tensor) and tensor["pass"] is True
    names = {t["name"] for t in result["files"][0]["tensors"]}
    assert {"cache.key_codes", "cache.value_codes", "cache.k_norm", "cache.v_scale", "cache.v_zero", "cache.untouched",
            "dequant_key", "dequant_value", "decode_out"} <= names, names
    names = {t["name"] for t in result["files"][3]["tensors"]}
    assert {"unified_out", "unified_out_sinks", "unified_out_window20", "unified_out.last_rows",
            "unified_out.unrounded_query"} <= names, names


def text_names_device_and_each_tensor():
    done = check(MSE)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("device host") and lines[-1] == "1 passed, 0 failed", lines
    for name in ("cache.key_codes", "decode_out"):
        line = next(x for x in lines if x.split()[:1] == [name])
        assert line.endswith("PASS") and "limit" in line


def device_auto_says_why():
    code, result = check_json(MSE, device="auto")
    assert code == 0 and result["device"].split(":")[0] in ("cuda", "hip", "host") and "auto" in result["device_reason"]


def other_layout_compares_outputs():
    code, result = check_json("--layout", "soa", MSE, FP8)
    assert code == 0 and result["passed"] == 2
    names = {t["name"] for f in result["files"] for t in f["tensors"]}
    assert "decode_out" in names and "cache.untouched" not in names
    code, result = check_json("--layout", "aos", SOA)
    assert code == 0 and "unified_out" in {t["name"] for t in result["files"][0]["tensors"]}
    assert check("--layout", "soa", ULTRA).returncode == 2


def native_is_stored_and_read_as_the_others_are():
    """Stored into native, the codes are the file's, and what is read of it is the reference's."""
    code, result = check_json("--layout", "native", MSE, SOA, FP8, ULTRA)
    assert code == 0 and result["passed"] == 4
    names = {t["name"] for f in result["files"] for t in f["tensors"]}
    assert {"stored.key_codes", "stored.value_codes", "stored.k_scalar", "stored.key_scales", "dequant_key", "decode_out"} <= names
    odd = f"{DATA}/turboquant_k8v4.aos.d80.g3.float16.safetensors"
    done = check("--layout", "native", odd)
    assert done.returncode == 2 and "head_size 80: layout native takes multiples of 64" in done.stderr


def convert(layout, source, name, code=0):
    done = subprocess.run([KVKILN, "convert", "--device", "host", "--layout", layout, "-o", f"{TEMP}/{name}", source],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.returncode, done.stderr)
    return f"{TEMP}/{name}" if not code else done.stderr


def outputs_are_written_through_links():
    name = f"native.{os.path.basename(MSE)}"
    whole = open(convert("native", MSE, name), "rb").read()
    for link, target in (("link", "there"), ("null", os.devnull)):
        path, target = f"{TEMP}/{link}", os.path.join(TEMP, target)
        if link == "link":
            open(target, "wb").close()
        os.symlink(target, path)
        convert("native", MSE, link)
        assert os.path.islink(path) and os.readlink(path) == target, path
        assert link == "null" or open(target, "rb").read() == whole
    assert not stat.S_ISREG(os.stat(os.devnull).st_mode)


def tensors(path):
    header, data = perturb.read(path)
    return {n: (t["shape"], bytes(data[slice(*t["data_offsets"])])) for n, t in header.items() if n != "__metadata__"}


def converted_caches_pass():
    """aos, soa and native into each other: other tensors stay; what is converted without a rounding comes back bit by bit."""
    for source, ways in ((MSE, "native soa aos"), (SOA, "native aos soa"), (FP8, "soa native aos"), (ULTRA, "native aos")):
        path, caches = source, {}
        for layout in ways.split():
            path = convert(layout, path, f"{layout}.{os.path.basename(source)}")
            code, result = check_json(path)
            assert code == 0 and result["passed"] == 1, (path, failed(result))
            assert perturb.read(path)[0]["__metadata__"]["layout"] == layout
            now, then = tensors(path), tensors(source)
            caches[layout] = now.pop("cache")
            assert then.pop("cache")[0] == caches[layout][0] and now == then, path
        if source in (FP8, ULTRA):
            assert caches["aos"] == tensors(source)["cache"]
        if source == MSE:  # soa and native hold the same numbers: back and forth between them nothing changes
            again = tensors(convert("soa", convert("native", f"{TEMP}/soa.{os.path.basename(MSE)}", "n"), "s"))
            assert again["cache"] == caches["soa"]


def conversions_are_refused():
    assert "'layout': 'aos'" in convert("aos", MSE, "same", 2)
    assert "ultraquant_4bit has aos native" in convert("soa", ULTRA, "none", 2)
    assert "head_size 80" in convert("native", f"{DATA}/turboquant_k8v4.aos.d80.g3.float16.safetensors", "none", 2)
    assert "accepted aos, soa, native" in convert("nhd", MSE, "none", 2)
    assert not [f for f in ("same", "none") if os.path.exists(f"{TEMP}/{f}")]
    damaged = convert("native", perturbed("nibbles", MSE), "damaged")
    code, result = check_json(damaged)
    assert code == 1 and {"cache.key_codes", "decode_out"} <= failed(result)


def control(kind, source, names):
    def test():
        code, result = check_json(perturbed(kind, source))
        lost = failed(result)
        assert code == 1 and result["failed"] == 1 and set(names) <= lost, (code, lost)
        if kind in ("scale", "rotate", "nan"):
            assert not any(n.startswith("cache.") for n in lost), lost
    test.__name__ = f"{kind}_fails_{os.path.basename(source).split('.d')[0]}"
    return test


def control_across_layouts():
    for kind in ("scale", "rotate"):
        code, result = check_json("--layout", "aos", perturbed(kind, SOA))
        assert code == 1 and "unified_out" in failed(result), (kind, failed(result))
    code, result = check_json("--layout", "aos", perturbed("nibbles", SOA))
    assert code == 1 and "stored.key_codes" in failed(result), failed(result)


def damage(kind):
    def test():
        path = perturbed(kind, MSE)
        done = check(path)
        assert done.returncode == 2, (done.returncode, done.stdout)
        lines = [x for x in done.stderr.splitlines() if path in x]
        assert len(lines) == 1 and lines[0].startswith("kvkiln: "), done.stderr
        assert "1 failed" in done.stdout
    test.__name__ = f"damaged_{kind}"
    return test


def good_files_run_beside_bad_ones():
    code, result = check_json(perturbed("truncated", MSE), FP8, f"{TEMP}/absent", perturbed("scale", SOA))
    assert code == 1 and result["passed"] == 1 and result["failed"] == 3
    assert [f["pass"] for f in result["files"]] == [False, True, False, False]
    assert "error" in result["files"][0] and "error" in result["files"][2]
    code, result = check_json(perturbed("truncated", MSE), FP8)
    assert code == 2 and result["passed"] == 1


def unknown_tensor_is_reported():
    path = perturbed("extra", FP8)
    code, result = check_json(path)
    assert code == 0 and result["files"][0]["not_compared"] == ["mystery"]
    assert "mystery" in check(path).stdout


def nothing_comparable_is_2():
    assert check(perturbed("bare", MSE)).returncode == 2


def odd_paths_are_2():
    fifo = f"{TEMP}/fifo"
    os.mkfifo(fifo)
    empty = f"{TEMP}/empty"
    open(empty, "w").close()
    for path in (TEMP, fifo, empty, "/dev/null", f"{TEMP}/absent"):
        assert check(path).returncode == 2, path


def usage_is_2():
    for args in ([], ["--layout", "nhd", MSE], ["--no-such-option", MSE]):
        assert subprocess.run([KVKILN, "check", *args], capture_output=True).returncode == 2, args


def unusable_device_is_3():
    for device, code in (("cuda:77", 3), ("hip:99", 3), ("toaster", 2)):
        done = check(MSE, device=device)
        assert done.returncode == code and device in done.stderr, (device, done.stderr)


TESTS = [sample_files_pass, text_names_device_and_each_tensor, device_auto_says_why, other_layout_compares_outputs,
         control("scale", MSE, ["decode_out"]), control("scale", SOA, ["decode_out", "unified_out", "unified_out.last_rows"]),
         control("scale", ULTRA, ["unified_out"]), control("length", MSE, ["decode_out"]),
         control("length", SOA, ["unified_out"]), control("rotate", MSE, ["decode_out"]),
         control("rotate", SOA, ["decode_out", "unified_out"]), control("rotate", ULTRA, ["unified_out"]),
         control("nibbles", MSE, ["cache.key_codes", "cache.value_codes", "dequant_key", "dequant_value", "decode_out"]),
         control("nibbles", FP8, ["cache.value_codes", "dequant_value", "decode_out"]),
         control("nibbles", ULTRA, ["cache.key_codes", "unified_out"]), control("untouched", MSE, ["cache.untouched"]),
         control("nan", MSE, ["decode_out"]), control_across_layouts,
         native_is_stored_and_read_as_the_others_are, converted_caches_pass, outputs_are_written_through_links, conversions_are_refused, good_files_run_beside_bad_ones,
         unknown_tensor_is_reported, nothing_comparable_is_2, odd_paths_are_2, usage_is_2, unusable_device_is_3]
TESTS += [damage(kind) for kind in perturb.DAMAGE]

with tempfile.TemporaryDirectory() as TEMP:
    main(TESTS)
