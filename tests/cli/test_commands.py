#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The other commands of kvkiln: exit codes, what stands on which stream, JSON. TAP on stdout."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

COMMANDS = ("presets", "doctor", "tune", "explain", "build", "pack", "cache", "check", "demo", "bench", "quality")
PRESETS = {"turboquant_k8v4": 196, "turboquant_4bit_nc": 134, "turboquant_k3v4_nc": 118, "turboquant_3bit_nc": 102,
           "ultraquant_4bit": 136, "nvfp4": 144, "mxfp4": 136, "fp8_e4m3": 256, "fp16": 512, "bf16": 512}


def kvkiln(*args, env=None, code=0, cwd=None):
    done = subprocess.run([KVKILN, *args], capture_output=True, text=True, timeout=600, cwd=cwd or TEMP,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}: {done.stderr[-600:]}"
    return done


def help_and_version():
    assert kvkiln("--version").stdout.startswith("kvkiln 0.")
    text = kvkiln("--help").stdout
    for command in COMMANDS:
        assert f"  {command}" in text
        done = kvkiln(command, "--help")
        assert done.stdout.startswith(f"Usage: kvkiln {command}") and not done.stderr, done.stdout
    kvkiln(code=2)
    kvkiln("frobnicate", code=2)
    for command in COMMANDS:
        done = kvkiln(command, "--no-such-option", code=2)
        assert not done.stdout and f"kvkiln {command}" in done.stderr


def presets_have_their_sizes():
    result = json.loads(kvkiln("presets", "--json").stdout)
    sizes = {p["name"]: p["slot_bytes"] for p in result["presets"]}
    assert PRESETS.items() <= sizes.items(), sizes
    text = kvkiln("presets").stdout
    for name in PRESETS:
        assert any(line.split()[0] == name for line in text.splitlines()[1:])
    heading, *rows = text.splitlines()
    for column in ("values", "layouts", "query"):  # each begins where its heading does, behind two spaces
        at = heading.index(column)
        assert all(row[at - 2:at] == "  " and row[at] != " " for row in rows), text


def presets_of_a_user():
    folder = f"{TEMP}/specs"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/mine.lua", "w", encoding="ascii") as file:
        file.write('return preset "turboquant_4bit_nc" { value = affine { bits = 3, scale = "fp16", zero = "fp16" } }\n')
    assert "118" in kvkiln("presets", f"{folder}/mine.lua").stdout
    assert "118" in kvkiln("presets", "--specs", folder, "mine").stdout
    assert "118" in kvkiln("presets", "mine", env={"KVKILN_SPECS": folder}).stdout
    done = kvkiln("presets", "mine", code=2)
    assert len(done.stderr.splitlines()) == 1
    kvkiln("build", f"{folder}/mine.lua", "--target", "x86-64-v3", "--kind", "store", "--layout", "aos", "-o", f"{TEMP}/mine")
    assert os.listdir(f"{TEMP}/mine") == ["store.mine.aos.d128.g4.bf16.p16.x86-64-v3.object"]


def specs_may_be_a_list():
    folder = f"{TEMP}/listed"
    os.makedirs(folder)
    with open(f"{folder}/a,b.lua", "w", encoding="ascii") as file:
        file.write('return preset "turboquant_4bit_nc" { name = "with_comma" }\n')
    options = ("--target", "x86-64-v3", "--kind", "store", "--layout", "aos", "--json", "-o", folder)
    made = json.loads(kvkiln("build", "turboquant_k8v4,turboquant_4bit_nc", f"{folder}/a,b.lua", *options).stdout)
    assert made["kernels"] == 3 and made["failed"] == 0, made
    for bad in ("turboquant_k8v4,", ",turboquant_k8v4", "a,,b"):
        done = kvkiln("build", bad, *options, code=2)
        assert "empty item" in done.stderr, done.stderr
    assert "no_such" in kvkiln("build", "turboquant_k8v4,no_such", *options, code=2).stdout


def doctor_knows_this_machine():
    result = json.loads(kvkiln("doctor", "--json").stdout)
    assert any(d["device"].startswith("host") and d["usable"] for d in result["devices"]), result
    assert result["generator"]["usable"] and "sm_90a" in result["generator"]["targets"]
    assert "cache" in result and "assembler" in result and isinstance(result["missing"], list)
    text = kvkiln("doctor", env={"KVKILN_CACHE_DIR": f"{TEMP}/cache-of-doctor"}).stdout
    assert f"{TEMP}/cache-of-doctor" in text


def explain_gives_a_plan():
    text = kvkiln("explain", "turboquant_4bit_nc", "--target", "sm_90a").stdout
    assert "decode.turboquant_4bit_nc.aos.d128.g4.bf16.p16" in text and "#" in text
    result = json.loads(kvkiln("explain", "turboquant_k8v4", "--target", "x86-64-v3,gfx942", "--kind", "store", "--json").stdout)
    assert [p["target"] for p in result["plans"]] == ["x86-64-v3", "gfx942"]
    kvkiln("explain", "turboquant_4bit_nc", code=2)
    kvkiln("explain", "--target", "sm_90a", code=2)
    kvkiln("explain", "turboquant_4bit_nc", "--target", "sm_1", code=2)
    kvkiln("explain", "no_such_spec", "--target", "sm_90a", code=2)


def plan_of(spec, layout, target, *more):
    done = kvkiln("explain", spec, "--kind", "decode", "--layout", layout, "--target", target, *more)
    return dict(line.split()[:2] for line in done.stdout.splitlines() if line.count(" "))


def values_in_pairs_and_held_places_where_they_can_be():
    cases = (("turboquant_4bit_nc", "soa", "sm_90a", "1", "4", "1"), ("turboquant_4bit_nc", "soa", "sm_80", None, None, None),
             ("turboquant_k3v4_nc", "soa", "sm_100a", "1", "4", "1"),
             ("turboquant_k8v4", "soa", "sm_90a", "0", "0", "0"), ("turboquant_3bit_nc", "soa", "sm_90a", "0", "0", "0"),
             ("turboquant_4bit_nc", "native", "sm_90a", None, "4", "0"), ("turboquant_4bit_nc", "aos", "sm_90a", "1", "4", "0"),
             ("turboquant_3bit_nc", "aos", "sm_90a", "0", "0", "0"),
             ("turboquant_4bit_nc", "soa", "gfx1100", None, None, None))
    for spec, layout, target, *fields in cases:
        plan = plan_of(spec, layout, target)
        have = [plan.get(name) for name in ("value_pairs", "held_places", "turned")]
        assert have == fields, (spec, layout, target, plan)
    for spec, layout, *levels in (("turboquant_4bit_nc", "soa", "4", "3", "1"), ("turboquant_k3v4_nc", "soa", "4", "2", "1"),
                                  ("ultraquant_4bit", "aos", "4", "4", "1")):
        have = [plan_of(spec, layout, "sm_90a", "--gqa", rows)["held_places"] for rows in ("8", "16", "24")]
        assert have == levels, (spec, layout, have)  # by tiles of query rows


def shipped_rows_decide():
    with open(f"{ROOT}/specs/tuned/sm_90a.lua", encoding="ascii") as file:
        rows = re.findall(r'key = "(\w+)", value = "(\w+)", layout = "(\w+)", head_size = (\d+).*?gqa = (\d+).*?plan = { (.*?) }',
                          file.read(), re.S)
    presets = {"codebook3 affine3": "turboquant_3bit_nc", "codebook4 affine4": "turboquant_4bit_nc",
               "codebook3 affine4": "turboquant_k3v4_nc", "ultraquant ultraquant": "ultraquant_4bit"}
    seen = set()
    assert len(rows) >= 11, rows
    for key, value, layout, size, gqa, plan in rows:
        spec = presets[f"{key} {value}"]
        command = ("explain", spec, "--kind", "decode", "--layout", layout, "--target", "sm_90a", "--gqa", gqa, "--head-size", size)
        text, rules = kvkiln(*command).stdout, kvkiln(*command, "--plan", "").stdout
        assert "left_out" not in text and "tuned/" not in rules and text != rules, text
        told = {(field, value) for field, value in re.findall(r"^(\w+) (\d+)  # tuned/sm_90a\.lua:", text, re.M)}
        asked = {tuple(field.split(" = ")) for field in plan.split(", ")}
        assert told and told <= asked, (told, asked)
        seen |= set(re.findall(r"tuned/sm_90a\.lua:(\d+)", text))
    assert len(seen) == len(rows), (seen, rows)


def decode_text(name, layout, plan, size):
    out = f"{TEMP}/text-{name}-{layout}"
    kvkiln("build", "turboquant_4bit_nc", "--kind", "decode", "--layout", layout, "--target", "sm_90a", "--emit", "ptx",
           "--head-size", size, "--plan", plan, "-o", out)
    return open(glob.glob(f"{out}/decode*.ptx")[0], encoding="ascii").read()


def images_that_do_not_fit_leave_nothing_behind():
    # 32 rows of eight heads beside two steps: too much; 24 of 256 dims: sums of two warps
    for layout, size, narrow in (("soa", "256", "narrow=3"), ("native", "256", "narrow=3"), ("aos", "128", "narrow=4")):
        plan = plan_of("turboquant_4bit_nc", layout, "sm_90a", "--head-size", size, "--plan", narrow)
        assert plan["images"] == "0" and "turned" not in plan, (layout, plan)
        alike = f"{narrow},images=0,warps={plan['warps']}"
        assert decode_text("fallen", layout, narrow, size) == decode_text("asked", layout, alike, size), layout


def pairs_are_read_by_loads_that_transpose():
    for layout, some in (("soa", True), ("aos", True), ("native", False)):
        out = f"{TEMP}/pairs-{layout}"
        kvkiln("build", "turboquant_4bit_nc", "--kind", "decode", "--layout", layout, "--target", "sm_90a", "--emit", "ptx", "-o", out)
        text = open(glob.glob(f"{out}/decode*.ptx")[0], encoding="ascii").read()
        assert ("ldmatrix.sync.aligned.m8n8.x4.trans" in text) == some, layout


def plans_come_from_rules_tables_and_options():
    folder = f"{TEMP}/tables"
    os.makedirs(f"{folder}/tuned", exist_ok=True)
    with open(f"{folder}/tuned/sm_90a.lua", "w", encoding="ascii") as file:
        file.write('return {\n  { kind = "decode", key = "codebook4", plan = { warps = 2 } },\n}\n')
    spec = ("explain", "turboquant_4bit_nc", "--target", "sm_90a")
    assert "\nwarps 16  # query rows" in kvkiln(*spec).stdout
    assert "\nwarps 2  # tuned/sm_90a.lua:2; by rule 16\n" in kvkiln(*spec, "--specs", folder).stdout
    assert "\nwarps 2  # tuned/sm_90a.lua:2" in kvkiln(*spec, env={"KVKILN_SPECS": folder}).stdout
    assert "\nwarps 1  # asked for; by rule 16\n" in kvkiln(*spec, "--specs", folder, "--plan", "warps=1").stdout
    assert "\nwarps 16  # query rows" in kvkiln(*spec, "--specs", folder, "--plan", "").stdout
    assert "--plan: warps: 17" in kvkiln(*spec, "--plan", "warps=17", code=2).stderr
    assert "warps 3" in kvkiln(*spec, "--plan", "warps=3", code=2).stderr
    with open(f"{folder}/tuned/sm_90a.lua", "a", encoding="ascii") as file:
        file.write("x")
    assert "sm_90a.lua:4: table: x" in kvkiln(*spec, "--specs", folder, code=2).stderr
    objects = [f"{TEMP}/plan-{n}" for n in "ab"]
    for out, plan in zip(objects, ("warps=2", "warps=4")):
        kvkiln("build", "turboquant_4bit_nc", "--kind", "decode", "--layout", "aos", "--target", "x86-64-v3", "--plan", plan, "-o", out)
    first, second = (open(glob.glob(f"{out}/*")[0], "rb").read() for out in objects)
    assert first != second and b"plan.warps 2" in first and b"plan.warps 4" in second


def build_writes_every_combination():
    out = f"{TEMP}/build/deep/er"
    done = kvkiln("build", "turboquant_k8v4", "turboquant_3bit_nc", "--target", "x86-64-v3,sm_90a", "--kind", "store,dequant",
                  "--dtype", "bf16,fp16", "--layout", "aos,soa", "--emit", "ptx,object", "-o", out)
    files = set(os.listdir(out))
    assert len(files) == 2 * 2 * 2 * 2 * (1 + 2), sorted(files)
    assert "store.turboquant_k8v4.soa.d128.g4.f16.p16.sm_90a.ptx" in files
    assert not [f for f in files if f.endswith(".tmp") or "x86-64-v3.ptx" in f]
    assert set(done.stdout.splitlines()[:-1]) == {f"{out}/{f}" for f in files}
    assert done.stdout.splitlines()[-1] == "32 kernels, 48 files, 0 failed"
    assert "[32/32]" in done.stderr


def build_writes_the_default_folder():
    os.makedirs(f"{TEMP}/cwd", exist_ok=True)
    kvkiln("build", "ultraquant_4bit", "--target", "x86-64-v2", "--kind", "store", cwd=f"{TEMP}/cwd")
    assert sorted(os.listdir(f"{TEMP}/cwd/out/kernels")) == [f"store.ultraquant_4bit.{layout}.d128.g4.bf16.p16.x86-64-v2.object"
                                                             for layout in ("aos", "native")]


def every_layout_is_every_one_that_the_shape_has():
    """native is for head sizes of 64 and pages of 16; asked for by name it is refused, not left out."""
    done = kvkiln("build", "turboquant_k8v4", "--target", "x86-64-v3", "--kind", "copy", "--head-size", "64,80", "--page", "16,24", "-o",
                  f"{TEMP}/layouts")
    assert done.stdout.splitlines()[-1] == "9 kernels, 9 files, 0 failed", done.stdout
    assert len([f for f in os.listdir(f"{TEMP}/layouts") if ".native." in f]) == 1
    done = kvkiln("build", "turboquant_k8v4", "--target", "x86-64-v3", "--kind", "copy", "--head-size", "80", "--layout", "native", "-o",
                  f"{TEMP}/layouts", code=1)
    assert "turboquant_k8v4: head_size 80: layout native takes multiples of 64" in done.stderr


def build_counts_what_failed():
    out = f"{TEMP}/partly"
    done = kvkiln("build", "turboquant_k8v4", "ultraquant_4bit", "--head-size", "80,128", "--target", "x86-64-v3", "--kind", "store",
                  "--layout", "aos", "-o", out, code=1)
    assert len(os.listdir(out)) == 3 and done.stdout.splitlines()[-1] == "3 kernels, 3 files, 1 failed"
    assert "head_size" in done.stderr and "80" in done.stderr
    result = json.loads(kvkiln("build", "nonsense", "ultraquant_4bit", "--layout", "soa,aos", "--kind", "store", "--target",
                               "x86-64-v3", "-o", out, "--json", code=1).stdout)
    assert result["failed"] == 2 and len(result["failures"]) == 2 and result["kernels"] == 1, result
    for args in (["--emit", "cubin,exe"], ["--head-size", "128,,64"], ["--gqa", "0"], ["--dtype", "fp64"], ["--page", "x"]):
        kvkiln("build", "turboquant_k8v4", "--target", "sm_90a", *args, "-o", out, code=2)
    kvkiln("build", "turboquant_k8v4", "--target", "gfx942", "--kind", "store", "--emit", "ptx", "-o", out, code=1)
    kvkiln("build", "turboquant_k8v4", "--target", "x86-64-v3", "--kind", "store", "-o", "/proc/nowhere", code=2)


def demo_agrees_with_the_reference():
    done = kvkiln("demo", "--device", "host", "--data", f"{ROOT}/tests/data")
    lines = done.stdout.splitlines()
    assert "1 KV heads" not in done.stdout and all(len(x) < 170 for x in lines[1:]), done.stdout
    assert lines[0].startswith("device host") and "cases agree" in lines[-1], lines
    result = json.loads(kvkiln("demo", "--device", "auto", "--data", f"{ROOT}/tests/data", "--json").stdout)
    assert result["failed"] == 0 and result["passed"] == len(glob.glob(f"{ROOT}/tests/data/*.safetensors"))
    for case in result["cases"]:
        assert case["pass"] and "value_operand" in case["plan"] and case["ratio"] > 2.5 and 0.01 < case["exact_error"] < 0.4, case
    kvkiln("demo", "--data", TEMP, code=2)
    kvkiln("demo", "--device", "cuda:77", "--data", f"{ROOT}/tests/data", code=3)


def demo_of_a_damaged_file_is_usage():
    """As check: it is named on both streams, the others run, and a case that fails weighs more."""
    folder = f"{TEMP}/cut"
    os.makedirs(folder)
    good, other = sorted(glob.glob(f"{ROOT}/tests/data/*k8v4*"))[:2]
    shutil.copy(good, f"{folder}/a.safetensors")
    with open(other, "rb") as file:
        whole = file.read()
    with open(f"{folder}/b.safetensors", "wb") as file:
        file.write(whole[:len(whole) // 2])
    done = kvkiln("demo", "--device", "host", "--data", folder, code=2)
    assert done.stderr.startswith(f"kvkiln: {folder}/b.safetensors: ") and len(done.stderr.splitlines()) == 1, done
    assert done.stdout.splitlines()[-1].startswith("1 of 2 cases agree"), done.stdout
    result = json.loads(kvkiln("demo", "--device", "host", "--data", folder, "--json", code=2).stdout)
    assert [c["pass"] for c in result["cases"]] == [True, False] and result["cases"][1]["error"] in done.stderr, result
    size = int.from_bytes(whole[:8], "little")
    begin = json.loads(whole[8:8 + size])["decode_out"]["data_offsets"][0] + 8 + size
    with open(f"{folder}/c.safetensors", "wb") as file:
        file.write(whole[:begin] + b"\x12\x34" * 64 + whole[begin + 128:])
    assert "FAIL" in kvkiln("demo", "--device", "host", "--data", folder, code=1).stdout


def bench_verifies_and_times():
    small = ("bench", "decode", "--device", "host", "--context", "70", "--kv-heads", "2", "--repeats", "3")
    result = json.loads(kvkiln(*small, "--json").stdout)
    assert result["verified"] and 0 < result["min_ms"] <= result["median_ms"] <= result["max_ms"] and result["copy_gbs"] > 0
    assert result["compressed_bytes"] == 70 * 2 * 134 and result["device"] == "host" and result["device_reason"]
    assert result["read_bytes"] == 70 * 2 * 134 + 4 * (5 + 1) + 8 * 128 * 2 and result["written_bytes"] == 8 * 128 * 2
    assert abs(result["gbs"] * result["median_ms"] * 1e6 / (result["read_bytes"] + result["written_bytes"]) - 1) < 1e-6
    assert abs(result["share"] * result["copy_gbs"] / result["gbs"] - 1) < 1e-6 and not result["graph"]
    assert result["plan"]["warps"] == "4" and result["plan"]["key_operand"] == "f16", result["plan"]
    text = kvkiln(*small, "--preset", "turboquant_k8v4", "--layout", "soa", "--dtype", "fp16", "--head-size", "64").stdout
    assert "verified" in text and "CPU" in text and "share" in text
    for preset in ("turboquant_3bit_nc", "ultraquant_4bit"):
        assert json.loads(kvkiln(*small, "--preset", preset, "--layout", "native", "--json").stdout)["verified"]
    assert "plan      warps 2 " in kvkiln(*small, "--plan", "warps=2").stdout
    assert "kvkiln bench" in kvkiln("bench", code=2).stderr
    for wrong in (("--context", "0"), ("--context", "3,,4"), ("--context", "3x"), ("--context", "2x5+"), ("--context", "2x5", "--batch", "2"),
                  ("--query-tokens", "0"), ("--plan", "warps=3x"), ("store",), ("--layout", "nhd")):
        kvkiln("bench", "decode", *wrong, code=2)
    assert "query-tokens: 71: accepted" in kvkiln(*small, "--query-tokens", "71", code=2).stderr
    kvkiln("bench", "nonsense", code=2)
    kvkiln("bench", "decode", "--device", "cuda:77", code=3)


def bench_of_every_kind_counts_its_bytes():
    host = ("--device", "host", "--kv-heads", "2", "--repeats", "1", "--head-size", "64", "--json")
    slot = 64 // 2 * 2 + 6  # turboquant_4bit_nc
    result = json.loads(kvkiln("bench", "decode", *host, "--context", "1x100+3x20", "--query-tokens", "3", "--gqa", "2").stdout)
    assert result["verified"] and result["sequences"] == "1x100+3x20" and result["batch"] == 4
    assert result["compressed_bytes"] == 160 * 2 * slot and result["written_bytes"] == 4 * 3 * 4 * 64 * 2
    result = json.loads(kvkiln("bench", "store", *host, "--context", "50", "--batch", "3", "--query-tokens", "2").stdout)
    assert result["verified"] and result["written_bytes"] == 6 * 2 * slot and result["read_bytes"] == 6 * (2 * 64 * 2 * 2 + 8)
    result = json.loads(kvkiln("bench", "dequant", *host, "--context", "40", "--layout", "soa").stdout)
    assert result["verified"] and result["read_bytes"] == 40 * 2 * slot + 4 * (3 + 2) and result["written_bytes"] == 40 * 2 * 64 * 4
    result = json.loads(kvkiln("bench", "unified", *host, "--context", "64", "--query-tokens", "16", "--gqa", "2").stdout)
    assert result["verified"] and result["flops"] == 4 * 64 * 4 * (16 * 64 - 16 * 15 / 2) and result["tflops"] > 0
    full = json.loads(kvkiln("bench", "unified", *host, "--context", "64", "--query-tokens", "16", "--gqa", "2", "--full").stdout)
    assert full["verified"] and full["flops"] == 4 * 64 * 4 * 16 * 64
    two = json.loads(kvkiln("bench", "decode", *host, "--context", "32,64", "--preset", "bf16", "--value-head-size", "32").stdout)
    assert [r["context"] for r in two["results"]] == [32, 64] and all("dequant" in r["against"] for r in two["results"])
    assert two["results"][0]["compressed_bytes"] == 32 * 2 * (64 + 32) * 2


def compiles_of_one_process_are_equal_and_cached():
    for target, kind in (("sm_90a", "decode"), ("gfx942", "unified"), ("x86-64-v3", "store")):
        done = kvkiln("bench", "compile", "--target", target, "--kind", kind, "--head-size", "64", "--repeats", "2", "--json")
        result = json.loads(done.stdout)
        assert result["bytes"] > 0 and 0 < result["min_ms"] <= result["median_ms"] and result["target"] == target
        assert 0 <= result["cache_ms"] < 50
    kvkiln("bench", "compile", "--target", "sm_1", code=2)
    kvkiln("bench", "compile", "--repeats", "0", code=2)


def unwritable_cache_is_no_obstacle():
    sample = sorted(glob.glob(f"{ROOT}/tests/data/*k8v4*"))[0]
    kvkiln("check", "--device", "host", sample, env={"KVKILN_CACHE_DIR": "/proc/nowhere"})
    kvkiln("check", "--device", "host", sample, env={"KVKILN_CACHE_DIR": "", "HOME": ""})


TESTS = [help_and_version, presets_have_their_sizes, presets_of_a_user, specs_may_be_a_list, doctor_knows_this_machine,
         explain_gives_a_plan, values_in_pairs_and_held_places_where_they_can_be, shipped_rows_decide,
         images_that_do_not_fit_leave_nothing_behind,
         pairs_are_read_by_loads_that_transpose, plans_come_from_rules_tables_and_options,
         build_writes_every_combination, build_writes_the_default_folder,
         every_layout_is_every_one_that_the_shape_has, build_counts_what_failed,
         demo_agrees_with_the_reference, demo_of_a_damaged_file_is_usage, bench_verifies_and_times,
         bench_of_every_kind_counts_its_bytes,
         compiles_of_one_process_are_equal_and_cached, unwritable_cache_is_no_obstacle]

with tempfile.TemporaryDirectory() as TEMP:
    main(TESTS)
