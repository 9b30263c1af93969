#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The core of the numeric suite covers every head size, GQA ratio and page size that is promised, for both kinds of
attention; shards are a partition of the suite; a failure says how to repeat it. TAP on stdout."""
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, main

NUM = f"{BUILD}/tests/num"
HEAD_SIZES = "16 32 40 64 72 80 96 112 120 128 160 192 224 256 320 512 576 192x128 576x512".split()
GQA = [str(g) for g in range(1, 17)] + "24 32 48 64 71 128".split()
PAGES = "1 8 16 32 48 64 128 256 1536".split()


def names(*options):
    done = subprocess.run([NUM, "--list", *options], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def seen(cases, kind, letter):
    """The values after a letter in the names of a kind: decode/PRESET.LAYOUT.dD.gG.DTYPE.pP/VARIANT."""
    parts = [name.split("/")[1].split(".") for name in cases if name.startswith(f"{kind}/")]
    return {part[len(letter):] for model in parts for part in model[2:] if re.fullmatch(rf"{letter}\d+(x\d+)?", part)}


def every_promised_number_is_in_the_core():
    cases = names()
    for kind in ("decode", "unified"):
        for letter, promised in (("d", HEAD_SIZES), ("g", GQA), ("p", PAGES)):
            missing = sorted(set(promised) - seen(cases, kind, letter))
            assert not missing, f"{kind}: no case of {letter} {missing}"


def names_are_unique():
    for options in ([], ["--full"]):
        cases = names(*options)
        assert len(cases) > 900 and len(set(cases)) == len(cases), sorted(c for c in set(cases) if cases.count(c) > 1)


def shards_are_a_partition():
    for options in ([], ["--full"], ["--sample", "100"]):
        parts = [names(*options, "--shard", f"{i}/7") for i in range(1, 8)]
        assert sorted(sum(parts, [])) == sorted(names(*options))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def bad_shards_are_refused():
    for shard in ("0/3", "4/3", "1", "1/0", "x/3", "1/3x"):
        done = subprocess.run([NUM, "--list", "--shard", shard], capture_output=True, text=True, check=False)
        assert done.returncode and f"--shard {shard}" in done.stderr, (shard, done.stderr)


def run(*options):
    return subprocess.run([NUM, "--cache", "", *options], capture_output=True, text=True, check=False)


def a_failure_prints_the_command_that_repeats_it():
    """Of the core, of the full product, of samples; with the seed. The command alone runs the case, broken it fails alike."""
    picks = (["--filter", "decode/turboquant_4bit_nc.aos.d64.g4.bf16.p16/0"], ["--filter", "mixed_batch*d64*"],
             ["--full", "--filter", "decode/turboquant_4bit_nc.aos.d64.g4.bf16.p32/0"],
             ["--sample", "20", "--filter", "sample.1/"])
    for pick in picks:
        done = run("--seed", "5", "--break", *pick)
        failed = re.findall(r"^FAIL (\S+): (.+)\n +repeat: num (.+)$", done.stdout, re.M)
        assert done.returncode == 1 and failed, (pick, done.stdout, done.stderr)
        name, text, command = failed[0]
        options = shlex.split(command)
        assert name in names(*options), (name, command)
        again = run("--break", *options)
        assert f"FAIL {name}: {text}\n" in again.stdout, (command, again.stdout)
        assert run(*options).returncode == 0, command


def the_reduced_suite_has_every_kind_of_every_preset():
    def of(cases, kind):
        return {name.split("/")[1].split(".d")[0] for name in cases if name.startswith(f"{kind}/")}
    core, reduced = names(), names("--reduced")
    for kind in ("store", "dequant", "decode", "unified", "merge", "copy"):
        assert of(core, kind) == of(reduced, kind) != set(), kind
    assert {"turboquant_4bit_nc.soa", "ultraquant_4bit.aos", "nvfp4.aos", "fp16.aos"} <= of(reduced, "decode")
    assert any(name.startswith("tiled_") for name in reduced) and set(reduced) <= set(core) and len(reduced) < len(core) / 3


main([every_promised_number_is_in_the_core, names_are_unique, shards_are_a_partition, bad_shards_are_refused,
      the_reduced_suite_has_every_kind_of_every_preset, a_failure_prints_the_command_that_repeats_it])
