#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public call that takes a stream is captured into a CUDA graph by a case of num, and its kinds of call by one each: a new
launch in kvkiln.h fails here until a case `graph_replay_equals_eager/NAME...` captures it. TAP on stdout."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, ROOT, main

NUM = f"{BUILD}/tests/num"
# Calls whose arguments choose another kernel, or another number of launches: (what it is, how its case begins).
KINDS = {"copy": ("copy_slots", "copy_pages"), "decode": ("decode_of_1_split", "decode_of_2_splits", "decode_batch_invariant")}


def launches():
    """Names of the functions with a parameter `kvk_stream stream` of their own, not of a callback."""
    with open(f"{ROOT}/runtime/kvkiln.h", encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    found = set()
    for name, parameters in re.findall(r"\bkvk_status\s+kvk_(\w+)\(((?:[^()]|\([^()]*\))*)\);", text):
        if re.search(r"\bkvk_stream\s+stream\b", re.sub(r"\([^()]*\)", "", parameters)):
            found.add(name)
    return found


def captured():
    listed = subprocess.run([NUM, "--list", "--filter", "graph_replay_equals_eager/"], capture_output=True, text=True, check=True)
    return {line.split("/")[1] for line in listed.stdout.splitlines()}


def is_of(case, launch):
    return case == launch or case.startswith(f"{launch}_")


def the_header_is_read():
    assert {"store", "decode", "unified", "dequant", "merge", "copy", "tiled", "device_copy"} <= launches(), launches()
    assert "time" not in launches()


def every_launch_is_captured():
    cases = captured()
    missing = sorted(name for name in launches() if not any(is_of(case, name) for case in cases))
    assert not missing, f"no case graph_replay_equals_eager/ for kvk_{', kvk_'.join(missing)}"


def every_case_is_of_a_launch():
    names = launches()
    assert all(any(is_of(case, name) for name in names) for case in captured()), captured()


def every_kind_of_a_call_is_captured():
    missing = [kind for kinds in KINDS.values() for kind in kinds if kind not in captured()]
    assert not missing, missing


main([the_header_is_read, every_launch_is_captured, every_case_is_of_a_launch, every_kind_of_a_call_is_captured])
