#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""counters.py with a program in the place of ncu: what it asks for, what it reads, and what it says where nothing can be read. TAP
on stdout."""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import main

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.TemporaryDirectory()
SOA = "decode --preset turboquant_4bit_nc --layout soa --gqa 16 --batch 2 --context 64"
# Does what ncu does with --csv --page raw --log-file: names, units, a line a launch; FAKE is a dictionary of what it is to do else.
NCU = r'''#!/usr/bin/env python3
import json, os, sys, time
fake, words = json.loads(os.environ["FAKE"]), sys.argv[1:]
if "--query-metrics" in words:
    print("Device NVIDIA\n" + "\n".join(f"{name}    Counter    inst    some text" for name in fake.get("known", [])))
    sys.exit(0 if "known" in fake else 1)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(json.dumps([words, {k: os.environ.get(k) for k in ("KVKILN_OVERLAP", "LC_ALL")}]) + "\n")
time.sleep(fake.get("sleep", 0))
log = open(words[words.index("--log-file") + 1], "w")
names = words[words.index("--metrics") + 1].split(",")
unknown = [n for n in names if n in fake.get("unknown", [])]
log.write("==PROF== Connected to process 7 (/x/kvkiln)\n")
if unknown:
    sys.exit(log.write(f"==ERROR== Failed to find metric '{unknown[0]}'\n") and 1)
if "says" in fake:
    sys.exit(log.write(fake["says"] + "\n") and 1)
value = {"gpu__time_duration.sum": "140,500", "sm__cycles_elapsed.max": "252900", "sm__inst_executed.sum": "12,800",
         "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "3200.0", "launch__registers_per_thread": "128",
         "dram__throughput.avg.pct_of_peak_sustained_elapsed": "81.25"}
stall = {"wait": "3", "long_scoreboard": "6", "selected": "1"}
def of(name):
    for key, text in stall.items():
        if name == f"smsp__average_warps_issue_stalled_{key}_per_issue_active.ratio":
            return text
    return value.get(name, "0" if "stalled" in name else "n/a")
quoted = lambda cells: ",".join(f'"{cell}"' for cell in cells) + "\n"
log.write(quoted(["ID", "Kernel Name"] + names) + quoted(["", ""] + ["unit"] * len(names)))
log.write(quoted(["0", "kvk_decode"] + [of(n) for n in names]) + quoted(["1", "kvk_decode"] + ["5"] * len(names)))
'''


def program(name, text):
    with open(f"{FOLDER.name}/{name}", "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(f"{FOLDER.name}/{name}", 0o755)
    return f"{FOLDER.name}/{name}"


KVKILN = program("kvkiln", "#!/bin/sh\nexit 0\n")


def run(*options, fake=None, path=True):
    """(status, what it printed, the calls of ncu)"""
    program("ncu", NCU)
    log = f"{FOLDER.name}/log"
    if os.path.exists(log):
        os.remove(log)
    env = {"PATH": (f"{FOLDER.name}:" if path else "") + "/usr/bin:/bin", "FAKE": json.dumps(fake or {}), "FAKE_LOG": log}
    done = subprocess.run([sys.executable, "-B", f"{HERE}/counters.py", KVKILN, *options], capture_output=True, text=True,
                          check=False, env=env)
    calls = [json.loads(line) for line in open(log, encoding="utf-8")] if os.path.exists(log) else []
    return done.returncode, done.stdout + done.stderr, calls


def a_launch_is_asked_for():
    status, text, calls = run("--row", SOA)
    words, env = calls[0]
    assert status == 0 and len(calls) == 1, text
    for pair in ("--kernel-name regex:^kvk_decode_", "--launch-skip 1", "--launch-count 1", "--clock-control none"):
        assert f" {pair} " in f" {' '.join(words)} ", words
    bench = words.index("bench")
    assert words[bench - 1] == KVKILN and " ".join(words[bench + 1:]).startswith(SOA), words
    assert env == {"KVKILN_OVERLAP": "2", "LC_ALL": "C"}, env


def figures_are_read():
    file = f"{FOLDER.name}/rows.json"
    status, text, _ = run("--row", SOA, "--json", file)
    with open(file, encoding="utf-8") as stream:
        row = json.load(stream)["rows"][0]
    # 2 sequences of 64 tokens, 8 heads: 32 steps
    assert status == 0 and row["us"] == 140.5 and row["step_instructions"] == 400 and row["step_wavefronts"] == 100, row
    assert abs(row["ghz"] - 1.8) < 1e-9 and list(row["stalls"].items())[0] == ("long_scoreboard", 60), row
    assert "issue" not in row and row["registers"] == 128, row
    assert text.startswith("decode 4bit_nc soa 2x64 gqa 16; us 140.5; GHz 1.80; instr a step 400; issue -; "), text
    assert "DRAM 81; " in text and "stalls long_scoreboard 60, wait 30, selected 10" in text, text


def markdown_is_a_table():
    status, text, _ = run("--row", SOA, "--row", "store --preset turboquant_k8v4 --layout soa --context 64", "--markdown")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    assert status == 0 and len(rows) == 4 and len({row.count("|") for row in rows}) == 1, text
    assert rows[3].startswith("| store k8v4 soa 64 | "), text


def unknown_metrics_are_left_out():
    gone = ["sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "lts__throughput.avg.pct_of_peak_sustained_elapsed"]
    status, text, calls = run("--row", SOA, "--row", SOA, fake={"unknown": gone})
    assert status == 0 and len(calls) == 4 and f"not known to this ncu: {gone[1]}, {gone[0]}" in text, (calls, text)


def what_ncu_lists_is_asked_for():
    status, text, calls = run("--row", SOA, fake={"known": ["gpu__time_duration", "sm__inst_executed", "sm__cycles_elapsed"]})
    asked = calls[0][0][calls[0][0].index("--metrics") + 1]
    assert status == 0 and "sm__inst_executed.sum" in asked and "dram" not in asked, asked
    assert "launch__registers" in asked and "stalled_wait" in asked and "not known to this ncu: dram" in text, text


def a_refusal_ends_it():
    for says in ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
                 "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"):
        status, text, calls = run("--row", SOA, "--row", SOA, fake={"says": says})
        assert status == 2 and len(calls) == 1 and "reads no counters here" in text, (status, text)


def a_row_that_fails_is_said():
    status, text, calls = run("--row", SOA, "--row", SOA, fake={"says": "==WARNING== No kernels were profiled."})
    assert status == 1 and len(calls) == 2 and text.count("status 1: ==WARNING== No kernels were profiled.") == 2, text


def what_hangs_is_ended():
    begun = time.monotonic()
    status, text, _ = run("--row", SOA, "--seconds", "1", fake={"sleep": 30})
    assert status == 1 and "did not end in 1 s" in text and time.monotonic() - begun < 20, text


def a_total_leaves_rows_out():
    status, text, calls = run("--row", SOA, "--total", "1")
    assert status == 1 and not calls and "not run: --total is over" in text, text


def without_ncu_it_says_so():
    status, text, _ = run("--row", SOA, path=False)
    assert status in (0, 1, 2) and (status != 2 or "neither on PATH" in text or "reads no counters" in text), text


def rows_of_the_suite_are_there():
    status, text, _ = run("--list")
    rows = text.strip().split("\n")
    assert status == 0 and len(rows) >= 15 and all(row.startswith(("decode --preset ", "store --preset ")) for row in rows), text
    assert run("--list", "--only", "head-size 512")[1].count("\n") == 1
    assert run("--only", "no such row")[0] == 2


main([a_launch_is_asked_for, figures_are_read, markdown_is_a_table, unknown_metrics_are_left_out, what_ncu_lists_is_asked_for,
      a_refusal_ends_it, a_row_that_fails_is_said, what_hangs_is_ended, a_total_leaves_rows_out, without_ncu_it_says_so,
      rows_of_the_suite_are_there])
