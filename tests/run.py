#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every suite, counts cases, and ends with "N passed, N failed, N skipped".

run.py ROOT BUILD [--full] [--jobs N] [PATTERN...]     only suites whose name contains a PATTERN, or is one written =NAME

A suite is one process. Its cases are its TAP lines, or, where it prints none, its own last line
"N passed, N failed, N skipped", or else the process itself (exit 77: skipped).
"""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import threading
import time

LIMIT_S = 1500  # of one suite: a hang is a failure, not a hung test run
SHARDS = 16     # of num --full
TRACER_DIED = "LeakSanitizer has encountered a fatal error"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=os.path.abspath)
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--full", action="store_true", help="the full product of tests/num instead of its core")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--bin", default=None, help="folder of the kvkiln executable")
    parser.add_argument("patterns", nargs="*")
    return parser.parse_args()


def gpu_device():
    """"cuda:0" or "hip:0" if the machine has one that the system can see, else None."""
    if glob.glob("/dev/nvidia[0-9]*"):
        return "cuda:0"
    if os.path.exists("/dev/kfd") and glob.glob("/dev/dri/renderD*"):
        return "hip:0"
    return None


# Those that take longest begin first, so that no core waits for one at the end. The other suites of num run the kernels of
# num_guarded_ends, and find them compiled where they begin long after it.
FIRST = ("gpu_num", "gpu_check", "num_guarded_ends", "amdsim_test_kernels.py", "ir_test_objects.py", "num_other_plans",
         "num_reduced")
LATER = ("num_reduced", "num_guarded_beginnings")
LAST = ("limits", "order", "budgets")


def rank(name, names):
    """Place of a suite among `names`."""
    if name.startswith(LATER) and "num_guarded_ends" in names:
        return len(FIRST) + 2
    for i, prefix in enumerate(FIRST):
        if name.startswith(prefix):
            return i
    return len(FIRST) + 1 + 2 * (name in LAST) - name.startswith(("cli_", "install_", "check_"))


def suites(args, kvkiln):
    """[(name, command)] in the order in which they begin."""
    programs = f"{args.build}/tests"
    found = []
    num = f"{programs}/num"
    if os.path.exists(num):
        if args.full: # one process would pass the limit
            found += [(f"num_{i}_of_{SHARDS}", [num, "--full", "--shard", f"{i}/{SHARDS}"]) for i in range(1, SHARDS + 1)]
        else:
            found += [(f"num_reduced_{i}_of_2", [num, "--reduced", "--shard", f"{i}/2"]) # all cases run with guarded buffers below
                      for i in (1, 2)]
        # the same with buffers that end, or begin, at an inaccessible page: an overrun of generated code faults
        plans = f"KVKILN_SPECS={args.root}/tests/num/plans"
        found.append(("num_other_plans", ["env", plans, num, "--filter", "decode"]))
        found.append(("num_other_plans_of_unified", ["env", plans, num, "--filter", "*/[fb][pf]16.aos.d*.bf16.*"]))
        found.append(("num_other_plans_of_tiles", ["env", plans, num, "--filter", "tiled_equals_unified/turboquant_[3k]*"]))
        found.append(("num_guarded_ends", [num, "--device", "host:1"]))
        half = [] if args.full else ["--shard", "1/2"] # ends are what generated code overruns
        found.append(("num_guarded_beginnings", [num, "--device", "host:2"] + half))
    for folder, name in (("tests/data", "check_data"), ("../shared/golden", "check_golden")):
        files = sorted(glob.glob(os.path.join(args.root, folder, "*.safetensors")))
        if files:
            found.append((name, [kvkiln, "check", "--device", "host"] + files))
    for folder in ("amdsim", "install", "ir", "cli", "fails", "rt", "fuzz", "ref", "unit", "num", "gpu"):
        for program in sorted(glob.glob(f"{programs}/{folder}_test_*")):
            found.append((os.path.basename(program), [program]))
        for script in sorted(glob.glob(f"{args.root}/tests/{folder}/test_*.py")):
            if args.full and script.endswith("amdsim/test_kernels.py"):  # one process would pass the limit
                found += [(f"amdsim_{target}", [sys.executable, "-B", script, "--full", "--targets", target])
                          for target in ("gfx942", "gfx950", "gfx1100", "gfx1201")]
                continue
            found.append((f"{folder}_{os.path.basename(script)}", [sys.executable, "-B", script]))
        for script in sorted(glob.glob(f"{args.root}/tests/{folder}/test_*.sh")):
            found.append((f"{folder}_{os.path.basename(script)}", ["bash", script]))
    found.append(("limits", [sys.executable, "-B", f"{args.root}/tests/limits.py", kvkiln]))
    found.append(("order", [sys.executable, "-B", f"{args.root}/tests/order.py", args.root]))
    found.append(("budgets", [sys.executable, "-B", f"{args.root}/tests/budgets.py", args.root, args.build]))
    device = gpu_device()
    if device:
        found.insert(0, ("gpu_num", [num, "--device", device]))
        golden = sorted(glob.glob(os.path.join(args.root, "../shared/golden/*.safetensors"))) or sorted(
            glob.glob(f"{args.root}/tests/data/*.safetensors"))
        found.insert(0, ("gpu_check", [kvkiln, "check", "--device", device] + golden))
    chosen = [s for s in found if not args.patterns or any(p in s[0] or p == f"={s[0]}" for p in args.patterns)]
    names = [name for name, _ in chosen]
    chosen.sort(key=lambda suite: rank(suite[0], names))  # stable
    unmet = [p for p in args.patterns if not any(p in s[0] or p == f"={s[0]}" for s in chosen)]
    if unmet:
        sys.exit(f"run.py: no suite is called {', '.join(unmet)}")
    return chosen, device


def count(text, status):
    """(passed, failed, skipped, names of the failed) of one suite's output."""
    tap = re.findall(r"^\s*(not ok|ok)\b[ \d]*-? *(.*)$", text, re.M)
    if tap:
        skips = [(word, name) for word, name in tap if "# skip" in name.lower()]  # cmocka's say "not ok"
        failed = [name for word, name in tap if word == "not ok" and "# TODO" not in name and (word, name) not in skips]
        skipped = len(skips)
        passed = sum(word == "ok" and (word, name) not in skips for word, name in tap)
    else:
        failed, skipped, passed = [], 0, 0
        total = re.findall(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", text)
        if total:
            passed, lost, skipped = (int(x or 0) for x in total[-1])
            named = re.findall(r"^\s*(?:FAIL|ERROR)\b:? *(.*)$", text, re.M)
            failed = (named + ["see its output"] * lost)[:lost]
        elif status in (0, 77):
            passed, skipped = int(status == 0), int(status == 77)
    if status not in (0, 77) and not failed:
        failed = [f"exit status {status}"]
    return passed, len(failed), skipped, failed


def finish(process, started):
    """(status, processor seconds of it and of its children), or None for a status after LIMIT_S."""
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() - started > LIMIT_S:
            process.kill()
            process.wait()
            return None, 0.0
        time.sleep(0.02)


def run(name, command, env, logs):
    """What one suite did. Rarely (seen once in 85 runs) the tracer of LeakSanitizer itself dies when a process ends: that says
    nothing about leaks, so that the suite is run again."""
    result = run_once(name, command, env, logs)
    return run_once(name, command, env, logs) if TRACER_DIED in result[2] else result


def run_once(name, command, env, logs):
    started, path, busy = time.monotonic(), f"{logs}/{name}.log", 0.0
    with open(path, "wb") as log:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env)
            status, busy = finish(process, started)
            status = f"none after {LIMIT_S} s" if status is None else status
        except OSError as error:
            log.write(str(error).encode())
            status = 127
    with open(path, encoding="utf-8", errors="replace") as log:
        text = log.read()
    return name, (time.monotonic() - started, busy), text, count(text, status)


def report(name, seconds, text, counted):
    passed, failed, skipped, names = counted
    print(f"{'FAIL' if failed else 'ok  '} {name:34} {passed:5} passed {failed:3} failed {skipped:3} skipped "
          f"{seconds[0]:7.1f} s {seconds[1]:7.1f} s busy", flush=True)
    for lost in names[:20]:
        print(f"       {lost[:200]}")
    if failed:
        for line in [x for x in text.split("\n") if not re.match(r"\s*ok\b", x)][-40:]:
            print(f"     | {line[:300]}")
    sys.stdout.flush()


def main():
    args = arguments()
    bin_folder = args.bin or (f"{args.root}/out/bin" if args.build == f"{args.root}/out/build" else f"{args.build}/bin")
    kvkiln = f"{bin_folder}/kvkiln"
    todo, device = suites(args, kvkiln)
    logs = f"{args.build}/test-logs"
    os.makedirs(logs, exist_ok=True)
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="tap", KVKILN=kvkiln, TEST_ROOT=args.root, TEST_BUILD=args.build,
               PYTHONDONTWRITEBYTECODE="1", KVKILN_CACHE_DIR=f"{args.build}/test-cache")
    totals, lock, busy, started = [0, 0, 0], threading.Lock(), 0.0, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run, n, c, env, logs) for n, c in todo]):
            result = future.result()
            with lock:
                report(*result)
                busy += result[1][1]
                totals = [a + b for a, b in zip(totals, result[3][:3])]
    print(f"{len(todo)} suites, {time.monotonic() - started:.0f} s, {busy:.0f} s of processor time")
    if not device:
        print("no GPU on this machine: the GPU suites are skipped (check and num on a device)")
        totals[2] += 2
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
