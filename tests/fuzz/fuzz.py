#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the libFuzzer programs of a build with preset `fuzz`, two at a time. Last line: "N passed, N failed, 0 skipped".

fuzz.py ROOT BUILD [NAME] [--seconds N] [--minimise]
   Inputs that reach something new are kept in ROOT/out/fuzz/NAME/corpus, those that break a reader in .../found.
   --minimise: no fuzzing; adds to tests/fuzz/corpus/NAME the kept inputs that reach what its seeds do not
"""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

LIMITS = ["-timeout=10", "-rss_limit_mb=1500", "-max_len=8192", "-print_final_stats=1", "-verbosity=1"]


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--minimise", action="store_true")
    return parser.parse_intermixed_args()


def folders(args, name):
    work = f"{args.root}/out/fuzz/{name}"
    for folder in (f"{work}/corpus", f"{work}/found"):
        os.makedirs(folder, exist_ok=True)
    return work, f"{args.root}/tests/fuzz/corpus/{name}"


def last(pattern, text):
    found = re.findall(pattern, text)
    return found[-1] if found else "?"


def fuzz(args, program):
    name = os.path.basename(program)[len("fuzz_"):]
    work, seeds = folders(args, name)
    words = f"{args.root}/tests/fuzz/{name}.dict"
    command = [program, f"-max_total_time={args.seconds}", f"-artifact_prefix={work}/found/"] + LIMITS
    command += [f"-dict={words}"] if os.path.exists(words) else []
    done = subprocess.run(command + [f"{work}/corpus", seeds], stdin=subprocess.DEVNULL, capture_output=True,
                          errors="replace", cwd=work)
    text = done.stdout + done.stderr
    with open(f"{work}/log", "w", encoding="utf-8") as log:
        log.write(text)
    print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} fuzz_{name:12} "
          f"{last(r'number_of_executed_units: *([0-9]+)', text):>10} inputs, "
          f"{last(r'cov: ([0-9]+)', text):>5} edges, {last(r'ft: ([0-9]+)', text):>5} features, "
          f"{args.seconds} s", flush=True)
    if done.returncode:
        for line in text.split("\n")[-60:]:
            print(f"     | {line[:200]}")
    return done.returncode == 0


def minimise(args, program):
    work, seeds = folders(args, os.path.basename(program)[len("fuzz_"):])
    before = len(os.listdir(seeds))
    done = subprocess.run([program, "-merge=1", "-use_counters=0", "-max_len=2048", seeds, f"{work}/corpus"], stdin=subprocess.DEVNULL,
                          capture_output=True, errors="replace", cwd=work)
    print(f"{os.path.basename(program)}: {before} seeds, now {len(os.listdir(seeds))}")
    return done.returncode == 0


def main():
    args = arguments()
    programs = [p for p in sorted(glob.glob(f"{args.build}/tests/fuzz_*")) if args.name in os.path.basename(p)]
    if not programs:
        sys.exit(f"fuzz: no program fuzz_*{args.name}* in {args.build}/tests")
    job = minimise if args.minimise else fuzz
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        good = list(pool.map(lambda program: job(args, program), programs))
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed, 0 skipped")
    return 0 if all(good) else 1


sys.exit(main())
