#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nsight Compute's counters of one launch of a kernel: what limits it.

    counters.py [KVKILN] [--row 'decode --layout soa ...']... [--only TEXT] [--markdown] [--json FILE]

A row is the arguments of `kvkiln bench decode` or `bench store`; left out, the rows of `bench suite` that docs/performance.md
names as unmet. Each is one process under ncu, which is ended after the launch: a warm-up, outside of any graph, one by one, with L2
flushed. So times are a few microseconds above those of `bench`, and the launch that joins splits is left out.

A line a row. "step": 32 tokens of one KV head (store: 32 vectors of keys and of values); "issue": cycles in which a scheduler
issued; pipes, DRAM, L2 and shared memory: percent of their peak; "stalls": where a warp is between two instructions, percent of
all. Exit 0: all measured; 1: some rows were not; 2: no ncu, or it may not read counters."""
import argparse
import csv
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BATCH = "--batch 16 --context 32768"
ROWS = [
    f"decode --preset turboquant_k3v4_nc --layout soa --gqa 8 {BATCH}",
    f"decode --preset turboquant_k3v4_nc --layout native --gqa 8 {BATCH}",
    f"decode --preset turboquant_4bit_nc --layout aos --gqa 8 {BATCH}",
    f"decode --preset ultraquant_4bit --layout aos --gqa 8 {BATCH}",
    "decode --preset ultraquant_4bit --layout aos --gqa 4 --batch 64 --context 8192",
    f"decode --preset turboquant_4bit_nc --layout soa --gqa 16 {BATCH}",
    f"decode --preset turboquant_k3v4_nc --layout soa --gqa 16 {BATCH}",
    f"decode --preset ultraquant_4bit --layout aos --gqa 16 {BATCH}",
    f"decode --preset turboquant_3bit_nc --layout soa --gqa 4 {BATCH}",
    f"decode --preset turboquant_3bit_nc --layout native --gqa 4 {BATCH}",
    f"decode --preset turboquant_4bit_nc --layout soa --gqa 12 {BATCH}",
    f"decode --preset turboquant_4bit_nc --layout soa --gqa 24 {BATCH}",
    f"decode --preset turboquant_4bit_nc --layout soa --gqa 4 --head-size 512 {BATCH}",
    "decode --preset turboquant_4bit_nc --layout soa --gqa 4 --batch 1 --context 4096",
    "decode --preset turboquant_4bit_nc --layout soa --gqa 4 --batch 1 --context 32768",
    f"decode --preset turboquant_4bit_nc --layout soa --gqa 8 --query-tokens 4 {BATCH}",
    "store --preset turboquant_4bit_nc --layout soa --context 65536",
]
PIPES = ("alu", "fma", "fma_type_fp16", "tensor", "lsu", "xu")
STALLS = ("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
          "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
          "short_scoreboard", "sleeping", "tex_throttle", "wait")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ELAPSED, ACTIVE = ".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active"
# Ours: ncu's. One that this ncu or GPU does not know is left out and said.
METRICS = {
    "ns": "gpu__time_duration.sum", "cycles": "sm__cycles_elapsed.max", "instructions": "sm__inst_executed.sum",
    "issue": "smsp__issue_active" + ACTIVE,
    "dram": "dram__throughput" + ELAPSED, "l2": "lts__throughput" + ELAPSED,
    "shared": "l1tex__data_pipe_lsu_wavefronts" + ELAPSED,
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "tensor_busy": "sm__pipe_tensor_cycles_active" + ACTIVE,  # a product keeps the pipe for several cycles
    "warps": "sm__warps_active.avg.per_cycle_active",
    "registers": "launch__registers_per_thread", "ctas": "launch__grid_size",
    "spill_loads": "smsp__sass_inst_executed_op_local_ld.sum", "spill_stores": "smsp__sass_inst_executed_op_local_st.sum",
    **{f"pipe_{name}": f"sm__inst_executed_pipe_{name}{ACTIVE}" for name in PIPES},
    **{f"stall_{name}": STALL.format(name) for name in STALLS},
}
# What ncu prints where no row can be measured.
REFUSALS = ("ERR_NVGPUCTRPERM", "The user does not have permission", "Failed to initialize the profiler",
            "Profiling is not supported", "LibraryNotLoaded", "No supported GPUs", "driver resource was unavailable")
UNKNOWN = re.compile(r"[Ff]ailed to find (?:the )?metrics?:? *'?\"?(?P<names>[\w.]+(?:, *[\w.]+)*)")


class Refused(Exception):
    """ncu works for no row here."""


def find():
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    versions = sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"),
                      key=lambda path: [int(n) for n in re.findall(r"\d+", path)])
    return found or (versions[-1] if versions else None)


def run(command, seconds, env=None):
    """(status, what it printed); what does not end in time is ended with all that it started, and has the status None."""
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True, env=env)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        file.seek(0)
        return status, file.read().decode("utf-8", "replace")


def known(ncu, seconds):
    """Names without suffix that this ncu can collect here; empty where it does not say."""
    status, text = run([ncu, "--query-metrics"], seconds)
    return set(re.findall(r"^ *(\w+__\w+)", text, re.M)) if status == 0 else set()


def collectable(names, base):
    """Of these those in ncu's list. launch__ stands in none; nor do, in some versions, what others are divided to."""
    exempt = ("launch__",) if any(n.startswith(STALL.split("{")[0]) for n in base) else ("launch__", STALL.split("{")[0])
    return [n for n in names if not base or n.startswith(exempt) or n.split(".")[0] in base]


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def read(text):
    """{metric: number} of the first launch in ncu's CSV: a column a metric (--page raw) or, else, a line."""
    lines = [line for line in text.split("\n") if line.startswith('"')]
    rows = list(csv.reader(lines))
    heads = [i for i, row in enumerate(rows) if row[0] == "ID"]
    if not heads:
        return {}
    head, rows = rows[heads[0]], rows[heads[0] + 1:]
    rows = [dict(zip(head, row)) for row in rows if len(row) == len(head)]
    if "Metric Name" in head:
        pairs = [(row["Metric Name"], row["Metric Value"]) for row in rows]
    else:
        pairs = [pair for row in rows if row["ID"] for pair in row.items()][:len(head)]
    found = {name: number(value) for name, value in pairs}
    return {name: value for name, value in found.items() if value is not None}


def options_of(arguments):
    """{--option: value, or "" of one that has none}"""
    after = arguments[1:] + ["--"]
    return {a: "" if b.startswith("--") else b for a, b in zip(after, after[1:]) if a.startswith("--")}


def tokens(arguments):
    """Tokens times KV heads that a launch reads or writes."""
    options = options_of(arguments)
    heads, context = int(options.get("--kv-heads", 8)), options.get("--context")
    store = arguments[0] == "store"
    if context and "x" in context:
        pairs = [part.split("x") for part in context.split("+")]
    else:
        pairs = [(options.get("--batch", 1 if store else 16), context or (65536 if store else 32768))]
    if store and "--query-tokens" in options:
        pairs = [(count, options["--query-tokens"]) for count, _ in pairs]
    return heads * sum(int(count) * int(length) for count, length in pairs)


def digest(arguments, found):
    """Our names and figures of one row."""
    row = {ours: found[theirs] for ours, theirs in METRICS.items() if theirs in found}
    steps = tokens(arguments) / 32
    row["us"] = row["ns"] / 1e3 if "ns" in row else None
    row["ghz"] = row["cycles"] / row["ns"] if row.get("ns") and "cycles" in row else None
    for name, per in (("instructions", "step_instructions"), ("wavefronts", "step_wavefronts"),
                      ("conflicts", "step_conflicts")):
        row[per] = row[name] / steps if name in row else None
    stalls = {name: row[f"stall_{name}"] for name in STALLS if f"stall_{name}" in row}
    whole = sum(stalls.values())
    row["stalls"] = {name: 100 * value / whole for name, value in sorted(stalls.items(), key=lambda s: -s[1])} if whole else {}
    return row


def measure(ncu, kvkiln, device, arguments, seconds, dropped, base):
    """(row, None) or (None, why not)"""
    env = {**os.environ, "KVKILN_OVERLAP": "2", "LC_ALL": "C"}
    bench = [kvkiln, "bench", *arguments, "--repeats", "1", "--device", device]
    kind = arguments[0]
    deadline, text = time.monotonic() + seconds, ""
    while True:
        names = [name for name in collectable(METRICS.values(), base) if name not in dropped]
        with tempfile.TemporaryDirectory() as folder:
            log = f"{folder}/log"
            options = ["--clock-control", "none", "--kernel-name", f"regex:^kvk_{kind}_", "--launch-skip", "1",
                       "--launch-count", "1", "--kill", "yes", "--graph-profiling", "node", "--csv", "--page", "raw",
                       "--print-units", "base", "--metrics", ",".join(names), "--log-file", log]
            status, text = run([ncu, *options, *bench], max(deadline - time.monotonic(), 1), env)
            if os.path.exists(log):
                with open(log, encoding="utf-8", errors="replace") as file:
                    text = file.read() + text
        for refusal in REFUSALS:
            if refusal in text:
                raise Refused(refusal)
        found = read(text)
        if METRICS["ns"] in found:
            return digest(arguments, found), None
        unknown = {name for hit in UNKNOWN.finditer(text) for name in re.split(", *", hit["names"])} & set(names)
        if status is None or not unknown:
            break
        dropped |= unknown  # and again without them
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    told = [line for line in lines if line.startswith(("==ERROR==", "==WARNING==", "kvkiln "))] or lines
    if status is None:
        return None, f"did not end in {seconds:.0f} s" + (f": {told[-1]}" if told else "")
    return None, f"status {status}: {told[-1] if told else 'nothing was printed'}"


def figure(row, name, digits=0):
    value = row.get(name)
    return "-" if value is None else f"{value:.{digits}f}"


COLUMNS = ["row", "us", "GHz", "instr a step", "issue", *PIPES, "tensor busy", "DRAM", "L2", "shared",
           "wavefronts a step (conflicts)", "stalls", "warps", "registers", "spill loads, stores"]


def cells(name, row):
    stalls = ", ".join(f"{key} {value:.0f}" for key, value in list(row["stalls"].items())[:6])
    return [name, figure(row, "us", 1), figure(row, "ghz", 2), figure(row, "step_instructions"), figure(row, "issue"),
            *(figure(row, f"pipe_{pipe}") for pipe in PIPES), figure(row, "tensor_busy"), figure(row, "dram"),
            figure(row, "l2"), figure(row, "shared"),
            f"{figure(row, 'step_wavefronts')} ({figure(row, 'step_conflicts')})", stalls or "-", figure(row, "warps", 1),
            figure(row, "registers"), f"{figure(row, 'spill_loads')}, {figure(row, 'spill_stores')}"]


def short(text):
    """A row as a table names it."""
    arguments = shlex.split(text)
    options = options_of(arguments)
    parts = [arguments[0], options.pop("--preset", "turboquant_4bit_nc").replace("turboquant_", ""),
             options.pop("--layout", "aos")]
    batch, context = options.pop("--batch", None), options.pop("--context", None)
    parts += [f"{batch}x{context}" if batch else context] if context else []
    return " ".join(parts + [f"{key.lstrip('-')} {value}".rstrip() for key, value in options.items()])


def say(name, row, markdown):
    values = cells(name, row)
    if markdown:
        print("| " + " | ".join(values) + " |", flush=True)
    else:
        print("; ".join([values[0]] + [f"{label} {value}" for label, value in zip(COLUMNS[1:], values[1:])]), flush=True)


def every_row(rows, options, ncu, kvkiln):
    end = time.monotonic() + options.total
    base, dropped, results, failed = known(ncu, 60), set(), [], 0
    for text in rows:
        left = end - time.monotonic()
        if left < 5:
            row, why = None, "not run: --total is over"
        else:
            row, why = measure(ncu, kvkiln, options.device, shlex.split(text), min(options.seconds, left), dropped, base)
        if row:
            say(short(text), row, options.markdown)
        else:
            failed += 1
            print(f"{short(text)}: {why}", file=sys.stderr if options.markdown else sys.stdout, flush=True)
        results.append({"row": text, **(row or {"why": why})})
    left_out = sorted(dropped | set(METRICS.values()) - set(collectable(METRICS.values(), base)))
    if left_out:
        print(f"not known to this ncu: {', '.join(left_out)}", file=sys.stderr)
    return results, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvkiln", nargs="?", default="kvkiln", help="the command line (default: kvkiln on PATH)")
    parser.add_argument("--row", action="append", help="arguments of kvkiln bench, the kind first; may be repeated")
    parser.add_argument("--only", default="", help="rows with this text, as they are listed")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=60, help="limit of a row (60)")
    parser.add_argument("--total", type=float, default=540, help="limit of all of them (540)")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--list", action="store_true", help="the rows, and nothing else")
    options = parser.parse_args()
    rows = [row for row in options.row or ROWS if options.only in row or options.only in short(row)]
    if options.list:
        print("\n".join(rows))
        return 0
    ncu, kvkiln = find(), shutil.which(options.kvkiln)
    if not ncu:
        print("ncu is neither on PATH nor in /usr/local/cuda/bin nor under /opt/nvidia/nsight-compute")
        return 2
    if not kvkiln or not rows:
        print("no row has that text" if kvkiln else f"{options.kvkiln}: no such program")
        return 2
    if options.markdown:
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS), flush=True)
    try:
        results, failed = every_row(rows, options, ncu, kvkiln)
    except Refused as why:
        print(f"{ncu} reads no counters here: {why}")
        return 2
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": results}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
