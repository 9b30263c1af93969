#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvkiln quality: what codecs lose on N(0,1), what each encoder option gains, files, errors. TAP on stdout."""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

import perturb

MSE = f"{ROOT}/tests/data/turboquant_4bit_nc.aos.d128.g4.bfloat16.safetensors"
ROWS = "20000"


def quality(*args, code=0):
    done = subprocess.run([KVKILN, "quality", "--device", "host", *args], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}: {done.stderr[-600:]}"
    return done


def quality_json(*args, code=0):
    return json.loads(quality("--json", *args, code=code).stdout)


def spec(name, text):
    path = f"{TEMP}/{name}.lua"
    with open(path, "w", encoding="ascii") as file:
        file.write(text + "\n")
    return path


def near(got, want, share):
    assert abs(got - want) <= share * want, f"{got}, expected {want} within {share:%}"


def tensors(path, **named):
    """A safetensors file of name = (dtype, shape, numbers)."""
    header, data = {}, b""
    for name, (dtype, shape, numbers) in named.items():
        raw = numbers if isinstance(numbers, bytes) else perturb.pack(dtype, numbers)
        header[name.replace("__", ".")] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    perturb.write(path, header, data)
    return path


# ---- the codecs and the options of their encoders, on N(0,1) at head size 128 ----

def codebooks_lose_what_they_should():
    four = spec("four", 'return preset "turboquant_4bit_nc" { key = { unbiased_norm = true } }')
    three = spec("three", 'return preset "turboquant_3bit_nc" { key = { unbiased_norm = true } }')
    result = quality_json("--gaussian", ROWS, "turboquant_4bit_nc", four, "turboquant_3bit_nc", three)
    assert result["random"] == {"rows": 20000, "mean": 0.0, "deviation": 1.0, "seed": 1} and result["device"] == "host"
    keys = [s["key"] for s in result["specs"]]
    assert all(k["vectors"] == 20000 and k["skipped"] == 0 for k in keys)
    for key, mse, product in zip(keys[::2], (0.00920, 0.0339), (0.9954, 0.9832)):
        near(key["relative_mse"], mse, 0.01)
        near(key["product"], product, 1e-3)
        near(key["cosine"], product, 1e-3)
    for key, mse in zip(keys[1::2], (0.0093, 0.0348)):
        near(key["product"], 1, 1e-3)
        near(key["relative_mse"], mse, 0.01)
    assert keys[1]["cosine"] - keys[0]["cosine"] < 1e-5, "the direction is the same"


def soa_loses_the_same():
    option = spec("both", 'return preset "turboquant_4bit_nc" { key = { unbiased_norm = true } }')
    result = quality_json("--gaussian", "2000", "--layout", "soa", "turboquant_4bit_nc", option)
    aos = quality_json("--gaussian", "2000", "turboquant_4bit_nc", option)
    for a, b in zip(aos["specs"], result["specs"]):
        assert (a["layers"][0]["layout"], b["layers"][0]["layout"]) == ("aos", "soa")
        near(b["key"]["relative_mse"], a["key"]["relative_mse"], 1e-3)
        near(b["key"]["product"], a["key"]["product"], 1e-4)
        assert a["value"] == b["value"]


def choices_of_scale_gain_what_they_should():
    """Constants on keys, which are rotated, and on values."""
    wanted = {"0.156": 0.0178, "1 / 6": 0.0148, "0.18": 0.0130, "0.20": 0.0125, "0.21": 0.0126, "0.25": 0.0139}
    constants = list(wanted)
    paths = [spec(f"scale{i}", f'return preset "ultraquant_4bit" {{ key = {{ scale_constant = {constants[i]} }}, '
                               f"value = {{ scale_constant = {constants[i + 1]} }} }}") for i in (0, 2, 4)]
    paths.append(spec("search", 'return preset "ultraquant_4bit" { key = { scale_search = true } }'))
    result = quality_json("--gaussian", ROWS, *paths)
    for i, s in zip((0, 2, 4), result["specs"]):
        near(s["key"]["relative_mse"], wanted[constants[i]], 0.01)
        near(s["value"]["relative_mse"], wanted[constants[i + 1]], 0.01)
    near(result["specs"][3]["key"]["relative_mse"], 0.0124, 0.01)


def stored_parameters_lose_nothing():
    """Rows of 16 bits have a minimum that the field holds exactly: what is left to gain is little (test_ref has the rest)."""
    option = spec("stored", 'return preset "turboquant_3bit_nc" { key = affine { bits = 4, stored_params = true }, '
                            "value = { stored_params = true } }")
    plain = spec("plain", 'return preset "turboquant_3bit_nc" { key = affine { bits = 4 } }')
    for mean, deviation, dtype in (("0", "1", "fp16"), ("20", "0.05", "bf16"), ("100", "1", "fp16")):
        result = quality_json("--gaussian", "4000", "--mean", mean, "--deviation", deviation, "--dtype", dtype, plain, option)
        for side in ("key", "value"):
            before, after = (s[side]["relative_mse"] for s in result["specs"])
            assert after <= before * 1.002, f"N({mean}, {deviation}) {dtype} {side}: {after} instead of {before}"


def presets_are_compared_side_by_side():
    result = quality_json("--gaussian", "500", "--head-size", "64")
    by_name = {s["spec"]: s for s in result["specs"]}
    assert len(by_name) >= 11
    assert by_name["fp16"]["key"] == {"vectors": 500, "skipped": 0, "relative_mse": 0.0, "cosine": by_name["fp16"]["key"]["cosine"],
                                      "product": 1.0, "max_error": 0.0}
    assert 1e-6 < by_name["bf16"]["key"]["relative_mse"] < 1e-5
    assert 5e-4 < by_name["fp8_e4m3"]["key"]["relative_mse"] < 1e-3
    assert 0.008 < by_name["nvfp4"]["value"]["relative_mse"] < 0.010
    assert 0.012 < by_name["mxfp4"]["value"]["relative_mse"] < 0.0145
    text = quality("--gaussian", "500", "--head-size", "64").stdout
    for name in by_name:
        assert sum(name in line.split() for line in text.splitlines()) == 1, name
    assert quality("--gaussian", "500", "--head-size", "64").stdout == text, "the same rows every time"
    assert quality("--gaussian", "500", "--head-size", "64", "--seed", "2").stdout != text


# ---- files ----

def known_errors_are_found():
    """e4m3 keeps 1, takes 1.0625 (a tie) to 1 and 17 to 16."""
    rows = ([1.0, 1.0625, 16.0, 17.0] * 4, [2.0] * 16)
    path = tensors(f"{TEMP}/known.safetensors", key=("BF16", [2, 1, 16], rows[0] + rows[1]),
                   value=("BF16", [2, 1, 32], [0.0] * 32 + [3.0] * 32))
    result = quality_json("--input", path, "fp8_e4m3")
    layer = result["specs"][0]["layers"][0]
    assert layer["layer"] is None and layer["rows"] == 2 and layer["head_size"] == 16 and layer["value_head_size"] == 32
    squares = 4 * (1 + 1.0625**2 + 16**2 + 17**2) + 16 * 4
    key, value = layer["key"], layer["value"]
    near(key["relative_mse"], 4 * (0.0625**2 + 1) / squares, 1e-8)
    product = (1 + 1.0625 + 256 + 17 * 16) / (1 + 1.0625**2 + 256 + 289)
    near(key["product"], (product + 1) / 2, 1e-8)
    length = math.sqrt((1 + 1.0625**2 + 256 + 289) * (1 + 1 + 256 + 256))
    near(key["cosine"], ((1 + 1.0625 + 256 + 17 * 16) / length + 1) / 2, 1e-8)
    assert key["max_error"] == 1.0
    assert value["vectors"] == 2 and value["relative_mse"] == 0.0 and value["product"] == 1.0, "a zero vector says nothing"


def layers_are_told_apart():
    r = random.Random(5)
    normal = [r.gauss(0, 1) for _ in range(40 * 2 * 64)]
    path = tensors(f"{TEMP}/layers.safetensors",
                   layers__10__value=("F16", [40, 2, 64], normal), layers__10__key=("F16", [40, 2, 64], normal),
                   layers__2__key=("BF16", [20, 4, 64], [3 * x for x in normal[:5120]]), other=("F32", [1], b"\0\0\0\0"),
                   layers__2__value=("BF16", [20, 4, 32], normal[:2560]))
    result = quality_json("--input", path, "turboquant_3bit_nc", "fp16")
    assert result["input"] == path
    layers = result["specs"][0]["layers"]
    assert [x["layer"] for x in layers] == [2, 10] and [x["heads"] for x in layers] == [4, 2]
    assert [x["dtype"] for x in layers] == ["bf16", "fp16"]
    assert [x["value_head_size"] for x in layers] == [32, 64]
    total = result["specs"][0]["key"]
    assert total["vectors"] == 160 and layers[0]["key"]["vectors"] == 80
    assert min(x["key"]["relative_mse"] for x in layers) < total["relative_mse"] < max(x["key"]["relative_mse"] for x in layers)
    assert total["max_error"] == max(x["key"]["max_error"] for x in layers)
    lines = [x.split() for x in quality("--input", path, "turboquant_3bit_nc", "fp16").stdout.splitlines()]
    assert [x[:2] for x in lines if len(x) > 8 and x[1] in ("turboquant_3bit_nc", "fp16")] == [
        [layer, name] for layer in ("2", "10", "all") for name in ("turboquant_3bit_nc", "fp16")]


def rows_that_are_no_numbers_are_left_out():
    rows = [1.0] * 16 + [math.nan] + [1.0] * 15 + [math.inf] + [1.0] * 15 + [0.0] * 16
    path = tensors(f"{TEMP}/odd.safetensors", key=("F16", [4, 1, 16], rows), value=("F16", [4, 1, 16], rows))
    result = quality_json("--input", path, "turboquant_k8v4")
    for side in ("key", "value"):
        assert result["specs"][0][side]["skipped"] == 2 and result["specs"][0][side]["vectors"] == 2
    assert "4 vectors with an infinity or a NaN" in quality("--input", path, "turboquant_k8v4").stdout
    zeros = tensors(f"{TEMP}/zeros.safetensors", key=("F16", [2, 1, 16], [0.0] * 32), value=("F16", [2, 1, 16], [0.0] * 32))
    key = quality_json("--input", zeros, "turboquant_4bit_nc")["specs"][0]["key"]
    assert key["relative_mse"] is None and key["product"] is None and key["max_error"] == 0.0


def large_and_small_rows_are_measured():
    """More rows than go to the device at a time; elements beyond fp16."""
    path = tensors(f"{TEMP}/long.safetensors", key=("F16", [40000, 1, 16], [1.0, -2.0] * 320000),
                   value=("F16", [40000, 1, 16], [1.0, -2.0] * 320000))
    key = quality_json("--input", path, "fp16")["specs"][0]["key"]
    assert key["vectors"] == 40000 and key["relative_mse"] == 0.0
    path = tensors(f"{TEMP}/large.safetensors", key=("BF16", [1, 1, 16], [2.0**20, -(2.0**18)] * 8),
                   value=("BF16", [1, 1, 16], [2.0**-30] * 16))
    result = quality_json("--input", path, "bf16")["specs"][0]
    assert result["key"]["relative_mse"] == 0.0 and result["value"]["relative_mse"] == 0.0


def sample_files_can_be_measured():
    """Their padding rows are constant: one large coordinate after the rotation."""
    key = quality_json("--input", MSE, "turboquant_4bit_nc")["specs"][0]["key"]
    assert 0.012 < key["relative_mse"] < 0.0145 and key["vectors"] == 171 * 2


# ---- errors ----

def usage_is_refused():
    for args in ([], ["--gaussian", "5", "--input", MSE], ["--gaussian", "0"], ["--gaussian", "5", "--dtype", "fp8"],
                 ["--gaussian", "5", "--mean", "x"], ["--gaussian", "5", "--layout", "other"]):
        done = quality(*args, code=2)
        assert not done.stdout and "kvkiln quality" in done.stderr
    done = subprocess.run([KVKILN, "quality", "--device", "cuda:99", "--gaussian", "5"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and not done.stdout


def bad_files_are_refused():
    good = ("F16", [1, 1, 16], [0.0] * 16)
    files = {
        "no tensor 'key'": {"keys": good, "value": good},
        "no tensor 'value' beside 'key'": {"key": good},
        "no tensor 'layers.3.value' beside 'layers.3.key'": {"layers__3__key": good, "value": good},
        "tensor 'key': F32, accepted F16, BF16": {"key": ("F32", [1, 1, 16], bytes(64)), "value": good},
        "tensor 'value': accepted shape": {"key": good, "value": ("F16", [1, 16], [0.0] * 16)},
        "accepted equal rows": {"key": good, "value": ("F16", [2, 1, 16], [0.0] * 32)},
        "tensor 'key': accepted shape [rows, heads, head size]": {"key": ("F16", [0, 1, 16], b""), "value": good},
        "layer -1 twice": {"key": good, "value": good, "layers__0__key": good, "layers__0__value": good},
        "layer 7 twice": {"layers__7__key": good, "layers__7__value": good, "layers__07__key": good, "layers__07__value": good},
    }
    for message, named in files.items():
        done = quality("--input", tensors(f"{TEMP}/bad.safetensors", **named), "fp16", code=2)
        assert message in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr
    with open(f"{TEMP}/short.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 1 << 40) + b"{}")
    for path in (f"{TEMP}/short.safetensors", f"{TEMP}/missing.safetensors", TEMP):
        done = quality("--input", path, "fp16", code=2)
        assert len(done.stderr.splitlines()) == 1 and not done.stdout


def a_bad_spec_does_not_stop_the_others():
    result = quality_json("--gaussian", "10", "no_such_preset", "fp16", code=2)
    assert "KVK_E_SPEC" in result["specs"][0]["error"] and result["specs"][1]["key"]["vectors"] == 10
    done = quality("--gaussian", "10", "--layout", "soa", "nvfp4", "turboquant_4bit_nc", code=2)
    assert "turboquant_4bit_nc" in done.stdout and "nvfp4" not in done.stdout and "nvfp4: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "KVK_E_SHAPE" in quality("--gaussian", "10", "--head-size", "72", "nvfp4", code=2).stderr


CASES = [codebooks_lose_what_they_should, soa_loses_the_same, choices_of_scale_gain_what_they_should,
         stored_parameters_lose_nothing, presets_are_compared_side_by_side, known_errors_are_found, layers_are_told_apart,
         rows_that_are_no_numbers_are_left_out, large_and_small_rows_are_measured, sample_files_can_be_measured,
         usage_is_refused, bad_files_are_refused, a_bad_spec_does_not_stop_the_others]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as TEMP:
        main(CASES)
