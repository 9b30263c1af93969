#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kvkiln bench suite` on the host, what it writes, and the plots of it. TAP on stdout."""
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, Skip, main

STATES = {"met", "unmet", "on a CPU", "without the layout", "not run", "wrong", "failed"}


TINY = ("--device", "host", "--context", "64", "--kv-heads", "1", "--head-size", "64", "--repeats", "1")


def kvkiln(*args, code=0):
    done = subprocess.run([KVKILN, *args], capture_output=True, text=True, timeout=600, cwd=TEMP, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{args}: exit {done.returncode}, expected {code}: {done.stderr[-600:]}"
    return done


def suite_runs_every_group_on_the_host():
    text = kvkiln("bench", "suite", "--device", "host", "--quick", "--json", f"{TEMP}/s.json", "--markdown", f"{TEMP}/s.md").stdout
    with open(f"{TEMP}/s.json", encoding="utf-8") as file:
        suite = json.load(file)
    with open(f"{ROOT}/cli/bench_goals.def", encoding="utf-8") as file:
        groups = set(re.findall(r'GOAL\("([^"]+)"', file.read()))
    assert {row["work"] for row in suite["rows"]} == groups, groups
    assert suite["host"] and suite["copy_gbs"] > 0 and suite["copy_gbs_end"] > 0 and suite["device"] == "host"
    for row in suite["rows"]:
        assert row["state"] == "on a CPU" and row["met"] is None and row["value"] is not None, row
        assert row["bench"]["verified"] and row["bench"]["sequences"] == row["sequences"], row
        assert row["sense"] == ("at least" if row["measure"] in ("share", "tflops") else "at most")
    by_work = {row["work"]: row for row in suite["rows"]}
    small = by_work["decode, one sequence"]
    run = small["bench"]
    moved = run["read_bytes"] + run["written_bytes"]
    assert abs(small["limit"] - (7 + moved / (0.85 * run["copy_gbs"] * 1e9) * 1e6)) < 1e-3, small
    assert abs(small["value"] - 1e3 * run["median_ms"]) < 1e-6
    share = by_work["dequant, 131,072 tokens"]
    assert abs(share["value"] - share["bench"]["gbs"] / suite["copy_gbs"]) < 1e-6
    assert f"{len(suite['rows'])} rows in" in text and "on a CPU" in text
    with open(f"{TEMP}/s.md", encoding="utf-8") as file:
        table = [line for line in file if line.startswith("|")]
    assert len(table) == 2 + len(suite["rows"]) and all(line.count("|") == 13 for line in table)


def suite_stops_when_its_time_is_up():
    kvkiln("bench", "suite", "--device", "host", "--seconds", "1", "--json", f"{TEMP}/short.json")
    with open(f"{TEMP}/short.json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    assert len(rows) > 60 and rows[0]["state"] == "on a CPU" and rows[-1]["state"] == "not run", rows[-1]
    assert {row["state"] for row in rows} <= STATES
    assert "bench" not in rows[-1] and rows[-1]["value"] is None


def suite_refuses_what_it_cannot_do():
    kvkiln("bench", "suite", "--device", "cuda:77", code=3)
    kvkiln("bench", "suite", "--seconds", "0", code=2)
    kvkiln("bench", "suite", "--device", "host", "--seconds", "1", "--json", "/proc/nowhere/x", code=2)


def rows_of_a_layout_that_is_missing_are_no_failure():
    kvkiln("bench", "suite", "--device", "host", "--json", f"{TEMP}/native.json", "--only", "native", "--quick")
    with open(f"{TEMP}/native.json", encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    with open(f"{ROOT}/gen/spec.c", encoding="utf-8") as file:
        known = re.search(r"layout_names\[LAYOUT_COUNT\] = \{([^}]*)\}", file.read()).group(1)
    assert len(rows) == 2 and all(row["layout"] == "native" for row in rows)
    assert {row["state"] for row in rows} == {"on a CPU" if "native" in known else "without the layout"}, rows
    assert not any(row["error"] for row in rows)
    kvkiln("bench", "suite", "--device", "host", "--only", "no such row", code=2)


def plots_are_made_of_a_suite():
    if not shutil.which("gnuplot"):
        raise Skip("no gnuplot")
    with open(f"{TEMP}/d.json", "w", encoding="utf-8") as file:
        file.write(kvkiln("bench", "decode", "--device", "host", "--kv-heads", "1", "--head-size", "128", "--repeats", "1", "--context",
                          "32,64,128", "--json").stdout)
    script = [sys.executable, "-B", f"{ROOT}/docs/plots/plot.py", "--out", f"{TEMP}/plots"]
    subprocess.run(script + ["--peers", f"{ROOT}/docs/plots/peers.json", f"{TEMP}/s.json", f"{TEMP}/d.json"], check=True,
                   capture_output=True)
    for name, words in (("roofline", ("unified", "decode", "copy bandwidth")), ("decode_time", ("4bit nc aos, gqa 4, batch 1", "cuDNN"))):
        text = open(f"{TEMP}/plots/{name}.svg", encoding="utf-8").read()
        xml.etree.ElementTree.fromstring(text)
        assert all(word in text for word in words), name
    unverified = json.load(open(f"{TEMP}/d.json", encoding="utf-8"))
    for run in unverified["results"]:
        run["verified"] = False
    with open(f"{TEMP}/u.json", "w", encoding="utf-8") as file:
        json.dump(unverified, file)
    assert subprocess.run(script + [f"{TEMP}/u.json"], capture_output=True).returncode == 1


def tuning_keeps_what_is_there_and_what_is_faster():
    target = json.loads(kvkiln("bench", "decode", *TINY, "--json").stdout)["target"]
    folder = f"{TEMP}/tuning/tuned"
    others = ['kind = "unified", gqa = 3', 'kind = "decode", options = "any"', 'kind = "decode"', 'kind = "decode", key = "e4m3", gqa = 9']
    os.makedirs(folder)
    path = f"{folder}/{target}.lua"
    with open(path, "w", encoding="utf-8") as file:
        rows = ",\n".join(f'{{ {row}, plan = {{ warps = 8 }}, note = "kept" }}' for row in others)
        file.write(f"return {{\n{rows}\n}}\n")
    tune = ("tune", "turboquant_4bit_nc", "--device", "host", "--layout", "soa", "--head-size", "64", "--kv-heads", "1", "--context",
            "1x64", "--repeats", "2", "--plans", "4", "--output", f"{TEMP}/tuning")
    before = open(path, encoding="utf-8").read()
    assert "4 plans timed, " in kvkiln(*tune, "--dry-run").stdout and open(path, encoding="utf-8").read() == before
    done = kvkiln(*tune, "--margin", "0")
    assert "0 wrong" in done.stdout and "(rules)" in done.stderr
    after = open(path, encoding="utf-8").read()
    starts = re.findall(r"^  \{ (kind = .*),$", after, re.M)
    mine = [s for s in starts if "codebook4" in s]
    assert len(mine) == (0 if "nothing faster" in done.stdout else 1), (starts, done.stdout)
    assert after.count('note = "kept"') == 4
    assert [s for s in starts if s not in mine] == [others[3], others[2], others[1], others[0]], starts  # what fits more stands behind
    if mine:
        assert starts[0] == mine[0] == ('kind = "decode", key = "codebook4", value = "affine4", layout = "soa", head_size = 64, '
                                        'value_head_size = 64, gqa = 4, page = 16, dtype = "bf16"'), starts
    kvkiln(*tune, "--margin", "100")  # nothing is that much faster: the row goes
    again = open(path, encoding="utf-8").read()
    assert "codebook4" not in again and again.count('note = "kept"') == 4
    explain = ("explain", "turboquant_k8v4", "--target", target, "--specs", f"{TEMP}/tuning", "--gqa", "9")
    places = [re.search(r"^warps 8  # tuned/.*:(\d+)", kvkiln(*explain, "--options", options).stdout, re.M).group(1)
              for options in ("none", "soft_cap", "alibi")]
    assert int(places[0]) < int(places[1]) and places[1] == places[2], places  # the row that says "any" is for those with options
    with open(path, "a", encoding="utf-8") as file:
        file.write("os.exit()")
    assert ": table: os: accepted nothing behind the table" in kvkiln(*tune, code=2).stderr


SMALL = ("tune", "turboquant_4bit_nc", "--device", "host", "--layout", "soa", "--head-size", "64")


def a_stopped_tuning_keeps_what_was_done():
    """The rows that are there before say old: that of a finished shape is replaced or taken out, and only that."""
    target = json.loads(kvkiln("bench", "decode", *TINY, "--json").stdout)["target"]
    os.makedirs(f"{TEMP}/stopped/tuned")
    path = f"{TEMP}/stopped/tuned/{target}.lua"
    shape = ('kind = "decode", key = "codebook4", value = "affine4", layout = "soa", head_size = 64, value_head_size = 64, gqa = %d, '
             'page = 16, dtype = "bf16"')
    with open(path, "w", encoding="utf-8") as file:
        for at, gqa in enumerate((1, 3, 4)):
            file.write(f'{"" if at else "return {"}\n{{ {shape % gqa}, plan = {{ warps = 8 }}, note = "old {gqa}" }},')
        file.write("\n}\n")
    command = (*SMALL, "--kv-heads", "2", "--context", "1x64+2x40", "--gqa", "1,3,4", "--plans", "3", "--output", f"{TEMP}/stopped")
    with subprocess.Popen([KVKILN, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=TEMP) as tuning:
        done = next((line for line in tuning.stdout if " gqa 1: " in line), "")
        tuning.kill()
    assert "3 plans timed, " in done and " 0 wrong" in done, done
    after = open(path, encoding="utf-8").read()
    assert after.endswith("\n}\n") and 'note = "old 1"' not in after and 'note = "old 4"' in after, after
    explained = kvkiln("explain", "turboquant_4bit_nc", "--target", target, "--layout", "soa", "--head-size", "64", "--gqa", "4", "--specs",
                       f"{TEMP}/stopped").stdout
    assert "warps 8  # tuned/" in explained, explained


def a_table_that_cannot_be_written_ends_the_tuning():
    """It could be when it was asked for: then the disk is full."""
    done = subprocess.run([KVKILN, *SMALL, "--kv-heads", "1", "--context", "1x64", "--gqa", "1,4", "--plans", "1", "--output",
                           "unwritten"], capture_output=True, text=True, timeout=600, cwd=TEMP,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)))
    assert done.returncode == 2 and ".lua: File too large" in done.stderr, done
    assert " gqa 1: " in done.stdout and " gqa 4: " not in done.stdout and not os.listdir(f"{TEMP}/unwritten/tuned"), done


def plans_are_compiled_ahead_and_no_others():
    if (os.cpu_count() or 1) < 2:
        raise Skip("one core: nothing is compiled beside another")
    cache = f"{TEMP}/cache-of-tune"

    def made():
        return sum(b"decode.turboquant_4bit_nc" in open(path, "rb").read() for path in glob.glob(f"{cache}/*.kvko"))
    command = (*SMALL, "--kv-heads", "1", "--context", "1x64", "--plans", "4", "--dry-run")
    with subprocess.Popen([KVKILN, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=TEMP,
                          env=dict(os.environ, KVKILN_CACHE_DIR=cache)) as tuning:
        lines, first = [], 0
        for line in tuning.stderr:
            lines.append(line)
            if line.startswith("kvkiln: narrow=0 "):
                first = made()
    assert first == made() == 4, (first, made(), lines)  # the rules' plan, and three that were tried
    tried = [line.split()[1] for line in lines if " compiled " not in line]  # how far it is, where that takes seconds
    assert tried[:5] == ["(rules)", "compiling", "narrow=0", "narrow=2", "narrow=3"], lines
    assert "compiling 3 plans, " in lines[1], lines


def plans_that_are_far_slower_are_left_early():
    command = (*SMALL, "--kv-heads", "1", "--context", "1x256", "--plans", "5", "--dry-run")
    assert " 0 of them left early, " in kvkiln(*command, "--repeats", "3").stdout  # few repeats are all of them
    for _ in range(3):  # other work on this machine may hide that four tiles of query rows take thrice the time
        done = kvkiln(*command)
        plans = re.findall(r"^kvkiln: (\S+) +([\d.]+) us  (.*)$", done.stderr, re.M)
        best, left = float(plans[0][1]), 0
        for _, time, what in plans[1:]:
            left += "left early" in what
            assert "left early" not in what or float(time) > 1.5 * best, plans
            best = min(best, float(time)) if "faster" in what else best
        assert f" {left} of them left early, " in done.stdout, done.stdout
        if left:
            return
    assert False, "no plan was left early"


def tuning_refuses_what_it_cannot_do():
    kvkiln("tune", code=2)
    kvkiln("tune", "no_such_spec", "--device", "host", code=2)
    kvkiln("tune", "bf16", "--device", "cuda:77", code=3)
    for wrong in (("--kind", "store"), ("--context", "64"), ("--plans", "0"), ("--margin", "101"), ("--gqa", "4,,8"), ("--dtype", "fp64")):
        kvkiln("tune", "bf16", "--device", "host", *wrong, code=2)
    kvkiln("tune", "bf16", "--device", "host", "--layout", "soa", code=2)


TESTS = [tuning_keeps_what_is_there_and_what_is_faster, a_stopped_tuning_keeps_what_was_done,
         a_table_that_cannot_be_written_ends_the_tuning, plans_are_compiled_ahead_and_no_others,
         plans_that_are_far_slower_are_left_early, tuning_refuses_what_it_cannot_do,
         suite_runs_every_group_on_the_host, suite_stops_when_its_time_is_up, suite_refuses_what_it_cannot_do,
         rows_of_a_layout_that_is_missing_are_no_failure, plots_are_made_of_a_suite]

with tempfile.TemporaryDirectory() as TEMP:
    main(TESTS)
