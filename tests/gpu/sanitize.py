#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer's memcheck, racecheck and initcheck over the reduced numeric suite: one case of every kind, preset and layout.

    sanitize.py NUM [DEVICE [SECONDS]]      cuda:0; a limit for all of it (240)

All tools run at once, each in as many processes as there are cores for it, over kernels that a run without a tool compiled before.
Last line: "N clean, N with errors, N skipped" (tools). Exit 0: all clean; 1: errors; 2: no compute-sanitizer; 3: it refuses the
device, which is said and counts as skipped."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOOLS = ("memcheck", "racecheck", "initcheck")
# What the tool prints where it cannot work: virtual machines, some drivers.
REFUSALS = ("Device not supported", "Debugger cannot be attached", "not supported on this", "Unable to find injection library")
SUMMARY = re.compile(r"^========= (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", re.M)


def find():
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")


def start(command, log):
    with open(log, "w", encoding="utf-8") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)


def finish(processes, deadline):
    """Exit statuses; None for what had to be ended."""
    found = []
    for process in processes:
        try:
            found.append(process.wait(max(deadline - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            found.append(None)
    return found


def read(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read()


def judge(statuses, texts):
    """(clean, errors or skipped; one line of why)"""
    for text in texts:
        for refusal in REFUSALS:
            if refusal in text:
                return "skipped", f"the tool refuses this device: {refusal}"
    passed, summaries = 0, []
    for text in texts:
        summaries += [int(a or b) for a, b in SUMMARY.findall(text)]
        passed += sum(int(n) for n in re.findall(r"^(\d+) passed, 0 failed", text, re.M))
    if None in statuses:
        return "errors", f"{statuses.count(None)} of {len(statuses)} processes did not end in time"
    if len(summaries) < len(texts):
        return "errors", f"{len(texts) - len(summaries)} of {len(texts)} processes end without a summary"
    if any(summaries) or any(statuses) or not passed:
        return "errors", f"{sum(summaries)} reports, {passed} cases passed, exit statuses {sorted(set(statuses))}"
    return "clean", f"no reports in {passed} cases"


def main(num, device="cuda:0", seconds="240"):
    tool_path = find()
    if not tool_path:
        print("compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin")
        return 2
    deadline, folder = time.monotonic() + float(seconds), tempfile.mkdtemp()
    os.environ.setdefault("KVKILN_CACHE_DIR", f"{folder}/cache")
    shards, cores = max((os.cpu_count() or 2) // len(TOOLS), 1), os.cpu_count() or 2
    suite = [num, "--device", device, "--reduced"]

    def part(i, n):
        return suite + ["--shard", f"{i}/{n}"]
    finish([start(part(i, cores), f"{folder}/compile.{i}") for i in range(1, cores + 1)], deadline)
    begun = time.monotonic()
    running = {tool: [start([tool_path, "--tool", tool, "--error-exitcode", "9", "--print-limit", "4"] + part(i, shards),
                            f"{folder}/{tool}.{i}") for i in range(1, shards + 1)] for tool in TOOLS}
    counts, worst = {"clean": 0, "errors": 0, "skipped": 0}, 0
    for tool, processes in running.items():
        statuses = finish(processes, deadline)
        texts = [read(f"{folder}/{tool}.{i}") for i in range(1, shards + 1)]
        verdict, why = judge(statuses, texts)
        counts[verdict] += 1
        worst = max(worst, {"clean": 0, "errors": 1, "skipped": 0}[verdict])
        print(f"{tool}: {verdict}: {why} ({time.monotonic() - begun:.0f} s)")
        if verdict == "errors":
            lines = [line for text in texts for line in text.split("\n") if line.startswith(("=========", "FAIL"))]
            print("\n".join(f"  | {line}" for line in lines[:60]))
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{counts['clean']} clean, {counts['errors']} with errors, {counts['skipped']} skipped")
    return worst or (3 if counts["skipped"] else 0)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
