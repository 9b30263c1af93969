#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every command refuses as usage: values of options, devices, folders and specs. TAP on stdout."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

SAMPLE = sorted(glob.glob(f"{ROOT}/tests/data/*k8v4*"))[0]
SPEC = "turboquant_k8v4"
# Each command, and what it needs to be asked for anything at all.
COMMANDS = {("presets",): (), ("doctor",): (), ("explain",): (SPEC, "--target", "sm_90a"),
            ("build",): (SPEC, "--target", "x86-64-v3", "-o", "kernels"), ("check",): (SAMPLE,),
            ("convert",): (SAMPLE, "--layout", "soa", "-o", "out.safetensors"), ("demo",): (), ("quality",): ("--gaussian", "4"),
            ("tune",): (SPEC, "--dry-run"), ("pack",): ("list", "x"), ("cache",): ("path",), ("bench", "decode"): (),
            ("bench", "suite"): (), ("bench", "compile"): ()}
# Any text is a value of these: paths, names and patterns.
FREE = {"output", "pack", "data", "input", "json", "markdown", "only", "preset", "name", "symbol", "dir"}
FREE_OF = {("pack", "target"): "which rows of a pack"}


def kvkiln(*args, code, env=None):
    done = subprocess.run([KVKILN, *args], capture_output=True, text=True, timeout=300, cwd=TEMP, stdin=subprocess.DEVNULL,
                          env={**os.environ, "LC_ALL": "C", **(env or {})})
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}: {done.stdout}{done.stderr[-600:]}"
    return done


def options(command):
    """Names of the options that take a value, and whether it may be a list."""
    text = kvkiln(*command, "--help", code=0).stdout
    return dict(re.findall(r"^\s+(?:-\S, +)?--([a-z-]+)=(\S+)", text, re.M))


def with_option(*names):
    return [c for c in COMMANDS if set(names) & set(options(c))]


def refused(command, option, value):
    """Status 2, nothing on stdout, a line that names the option, the value and what is accepted, and argp's sentence behind it."""
    done = kvkiln(*command, *COMMANDS[command], f"--{option}={value}", code=2)
    assert not done.stdout, (command, option, done.stdout)
    line, *more = done.stderr.splitlines()
    assert f"--{option}: " in line and "accepted" in line and value.split(",")[-1] in line, (command, option, done.stderr)
    assert re.fullmatch("(Try `kvkiln .* --help' or `kvkiln .* --usage' for more information.)?", " ".join(more)), done.stderr
    return line


def ranges_are_the_generators():
    """What is accepted is not refused later, and the other way round: a number just outside is, one just inside is not."""
    with open(f"{ROOT}/gen/spec.c", encoding="utf-8") as file:
        ranges = {name.replace("_tokens", "").replace("_", "-"): (int(low), int(high))
                  for name, low, high in re.findall(r'check_range\("(\w+)", geo->\w+, (\d+),\s+(\d+)', file.read())}
    assert set(ranges) == {"head-size", "value-head-size", "gqa", "page"}, ranges
    asked = 0
    for command in COMMANDS:
        for option in set(ranges) & set(options(command)):
            for outside in (ranges[option][0] - 1, ranges[option][1] + 1):
                line = refused(command, option, str(outside))
                assert line.endswith(f"accepted {ranges[option][0]} to {ranges[option][1]}"), line
            asked += 1
    assert asked >= 4 * 4, asked
    for option, (low, high) in ranges.items():
        for value in (low, high):
            kvkiln("explain", *COMMANDS[("explain",)], "--kind", "store", f"--{option}={value}", code=0)


def commands_are_all_here():
    text = kvkiln("--help", code=0).stdout
    assert {c[0] for c in COMMANDS} == set(re.findall(r"^  ([a-z]+)  +\S", text, re.M))


def a_value_that_is_none_is_refused_by_every_option():
    asked = set()
    for command in COMMANDS:
        for option, values in options(command).items():
            if option in FREE or (command[0], option) in FREE_OF:
                continue
            refused(command, option, "zzz")
            if values.endswith(",...") and option not in ("context", "plan"):
                refused(command, option, {"layout": "aos", "kind": "decode", "dtype": "bf16", "target": "sm_90a", "emit": "object",
                                          "options": "none", "pack-format": "ptx"}.get(option, "64") + ",zzz")
            asked.add(option)
    assert {"layout", "kind", "dtype", "target", "device", "specs", "compile", "emit", "options", "plan", "gqa"} <= asked, asked


def words_are_case_sensitive_and_whole():
    for option, values in (("layout", ("AOS", "ao", "aos soa", "native ")), ("kind", ("decod", "decode.", "Store")), ("dtype", ("bf1", "fp32"))):
        for value in values:
            refused(("explain",), option, value)


def the_accepted_words_are_the_generators():
    """The command line's lists are its own: an explain of each word succeeds, and the generator says the same."""
    with open(f"{ROOT}/gen/pipeline.c", encoding="utf-8") as file:
        source = file.read()
    for option in ("layout", "kind"):
        said = kvkiln("explain", *COMMANDS[("explain",)], f"--{option}=zzz", code=2).stderr.splitlines()[0].split(": accepted ")[1]
        made = re.search(f'"{option}: %s: accepted (.*?)"', source).group(1)
        assert said == made, (said, made)
        kvkiln("explain", *COMMANDS[("explain",)], f"--{option}={said.replace(', ', ',')}", code=0)
    said = kvkiln("explain", SPEC, "--target=zzz", code=2).stderr.split(": accepted ")[1].split()
    one = kvkiln("bench", "compile", "--target=zzz", code=2).stderr.split(": accepted ")[1].split()  # of no family
    assert one == said[4:] and said[:4] == ["all,", "nvptx,", "amdgcn,", "host,"], (one, said)
    targets = json.loads(kvkiln("doctor", "--json", code=0).stdout)["generator"]["targets"]
    targets = targets.split() if isinstance(targets, str) else targets
    assert [t.rstrip(",") for t in said] == ["all", "nvptx", "amdgcn", "host", *targets], said
    for command in ("build", "explain"):  # `see kvkiln build --help for the list` is what the generator says
        text = kvkiln(command, "--help", code=0).stdout
        assert set(targets) <= set(re.findall(r"[\w-]+", re.sub(r"\n +", " ", text))), command


def devices_are_words():
    for command in with_option("device"):
        for name in ("foo", "cuda:", "cuda:x", "hip:-1", "host:", "CUDA:0", "auto:0", "", "cuda:00000", "cuda:0 "):
            refused(command, "device", name)
    for name in ("cuda:77", "hip:77", "cuda:9999"):  # well-formed: whether it is there is another question
        done = kvkiln("quality", "--gaussian", "4", "--device", name, code=3)
        assert name in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    kvkiln("quality", "--gaussian", "4", "--head-size", "64", "--device", "host", SPEC, code=0)


def folders_of_specs_exist():
    good = f"{TEMP}/empty"
    os.makedirs(good, exist_ok=True)
    asked = with_option("specs")
    for command in asked:
        for wrong in (f"{TEMP}/nowhere", SAMPLE, "", f"{good}:{TEMP}/nowhere"):
            done = kvkiln(*command, *COMMANDS[command], f"--specs={wrong}", code=2)
            assert not done.stdout and f"--specs: '{wrong.split(':')[-1]}': accepted a folder" in done.stderr, (command, done)
            assert len(done.stderr.splitlines()) == 1, done.stderr
    assert len(asked) >= 10, asked
    kvkiln("presets", "--specs", good, code=0)
    kvkiln("presets", "--specs", f"{good}:{ROOT}/specs", code=0)
    # a list that a shell's start-up file names everywhere may have folders that are not everywhere
    kvkiln("presets", SPEC, env={"KVKILN_SPECS": f"{TEMP}/nowhere:{good}"}, code=0)


def a_spec_that_cannot_be_read_is_usage():
    """2: nothing was there to compile; 1: something was, and was not made; the other kernels are made in any case."""
    texts = {"broken": "return preset {", "high": 'return preset { key = float { format = "e4m3" }, value = affine { bits = 9 } }',
             "nothing": "return 5"}
    for name, text in texts.items():
        with open(f"{TEMP}/{name}.lua", "w", encoding="ascii") as file:
            file.write(text)
    os.makedirs(f"{TEMP}/folder.lua", exist_ok=True)
    some = ("--target", "x86-64-v3", "--kind", "store", "--layout", "aos")
    for bad in (*(f"./{name}.lua" for name in texts), "./folder.lua", "./missing.lua", "no_such_preset"):
        kvkiln("explain", bad, *some, code=2)
        for more, written in (((), 0), ((SPEC,), 1)):
            out = f"{TEMP}/of-{os.path.basename(bad)}-{written}"
            done = kvkiln("build", bad, *more, *some, "-o", out, code=2)
            assert done.stdout.splitlines()[-1] == f"{written} kernels, {written} files, 1 failed", done.stdout
            assert bad in done.stderr and len(os.listdir(out)) == written
            result = json.loads(kvkiln("build", bad, *more, *some, "-o", out, "--json", code=2).stdout)
            assert result["failed"] == 1 and result["failures"][0]["spec"] == bad and result["kernels"] == written, result
    kvkiln("build", "no_such_preset", *some, "--pack", "none.kvkpack", code=2)
    assert not os.path.exists(f"{TEMP}/none.kvkpack")
    # a kernel that could not be made weighs more
    impossible = ("ultraquant_4bit", "--head-size", "80")
    kvkiln("build", *impossible, *some, "-o", "out1", code=1)
    kvkiln("build", "no_such_preset", *impossible, *some, "-o", "out1", code=1)
    os.makedirs(f"{TEMP}/tables/tuned", exist_ok=True)
    with open(f"{TEMP}/tables/tuned/x86-64-v3.lua", "w", encoding="ascii") as file:
        file.write('return { { kind = "decode", key = "frob", plan = { warps = 2 } } }')
    for command in ("build", "explain"):
        done = kvkiln(command, SPEC, "--target", "x86-64-v3", "--kind", "decode", "--specs", "tables", code=2)
        assert "tables/tuned/x86-64-v3.lua:1: key: frob: accepted codebook2|" in done.stderr, done.stderr


def a_broken_table_stops_its_target_alone():
    """And of that only the kinds that look into it."""
    os.makedirs(f"{TEMP}/broken/tuned", exist_ok=True)
    with open(f"{TEMP}/broken/tuned/gfx942.lua", "w", encoding="ascii") as file:
        file.write("return {")
    some = ("--target", "gfx942,x86-64-v3", "--layout", "aos", "--specs", "broken")
    for more, code in (((), 2), (("ultraquant_4bit", "--head-size", "128,72"), 1)):  # a kernel that could not be made weighs more
        out = f"{TEMP}/beside-{code}"
        done = kvkiln("build", SPEC, *more, *some, "--kind", "unified,store", "-o", out, code=code)
        assert "broken/tuned/gfx942.lua:1: " in done.stderr, done.stderr
        files = os.listdir(out)
        for kind, target, made in (("unified", "x86-64-v3", True), ("store", "gfx942", True), ("unified", "gfx942", False)):
            assert any(f.startswith(kind) and f".{target}." in f for f in files) == made, (kind, target, files)
    result = json.loads(kvkiln("build", SPEC, *some, "--kind", "unified,store", "-o", f"{TEMP}/beside", "--json", code=2).stdout)
    assert result["kernels"] == 3 and [f["kernel"].split(".")[0] for f in result["failures"]] == ["unified"], result
    done = kvkiln("explain", SPEC, *some, code=2)
    assert done.stdout.startswith(f"decode.{SPEC}.aos.d128.g4.bf16.p16.x86-64-v3\n") and len(done.stderr.splitlines()) == 1, done
    kvkiln("explain", SPEC, *some, "--kind", "store", code=0)
    kvkiln("explain", SPEC, *some, "--plan", "", code=0)


def a_row_that_is_left_out_is_told_whole():
    os.makedirs(f"{TEMP}/rows/tuned", exist_ok=True)
    for target, plan in (("gfx942", "images = 1"), ("sm_90a", "producer = 1, images = 0"), ("x86-64-v3", "narrow = 4, warps = 16, images = 8")):
        with open(f"{TEMP}/rows/tuned/{target}.lua", "w", encoding="ascii") as file:
            file.write(f'return {{\n  {{ kind = "decode", plan = {{ {plan} }} }},\n}}\n')
        explain = ("explain", SPEC, "--layout", "aos", "--target", target)
        why = kvkiln(*explain, "--plan", plan.replace(" ", ""), code=2).stderr.strip().split("KVK_E_ARG: ")[1]
        text = kvkiln(*explain, "--specs", "rows", code=0).stdout
        assert f"\nleft_out 1  # tuned/{target}.lua:2: {why}\n" in text, (why, text)


with tempfile.TemporaryDirectory() as TEMP:
    main([commands_are_all_here, a_value_that_is_none_is_refused_by_every_option, ranges_are_the_generators,
          words_are_case_sensitive_and_whole, the_accepted_words_are_the_generators, devices_are_words, folders_of_specs_exist,
          a_spec_that_cannot_be_read_is_usage,
          a_broken_table_stops_its_target_alone, a_row_that_is_left_out_is_told_whole])
