#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The core of the simulation leaves no case out: tests/amdsim/share.py. TAP on stdout."""
import os
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(os.path.abspath(__file__))]
from share import FAMILIES, KINDS, parse, share, share_files
from test_kernels import CORE, NUM, PRESETS, TARGETS, core_names, core_share
from tap import main


def listed():
    return {part: core_names(patterns) for part, patterns in CORE.items()}


SHARES = {target: core_share(target) for target in TARGETS}


def the_families_are_the_targets():
    assert sorted(sum(FAMILIES, ())) == sorted(TARGETS)


def every_case_runs_on_a_target_of_each_family():
    for part, names in listed().items():
        assert names, part
        for family in FAMILIES:
            missing = set(names) - set().union(*(SHARES[target][part] for target in family))
            assert not missing, (part, family, sorted(missing))


def every_kind_of_every_preset_and_layout_runs_on_every_target():
    names = sum(listed().values(), [])
    wanted = {parse(n)[:2] for n in names if parse(n)[0] in KINDS and parse(n)[1].split(".")[0] in PRESETS}
    formats = {form for _, form in wanted}
    assert {form.split(".")[0] for form in formats} == set(PRESETS) - {"ultraquant_4bit_e4m3q"}  # its bytes are ultraquant_4bit's
    assert {"turboquant_4bit_nc.soa", "turboquant_3bit_nc.native", "ultraquant_4bit.native"} <= formats
    assert {kind for kind, _ in wanted} == set(KINDS)
    for target in TARGETS:
        got = {parse(n)[:2] for part in SHARES[target].values() for n in part}
        assert wanted <= got, (target, sorted(wanted - got))


def a_target_runs_less_than_all():
    names = listed()
    for target, ours in SHARES.items():
        assert all(set(ours[part]) < set(names[part]) for part in CORE), target
        assert sum(map(len, ours.values())) < 0.75 * sum(map(len, names.values())), target
    assert share(names["in order"], "gfx1200", PRESETS) == names["in order"]  # of no family here: all


def every_sample_is_on_a_target_of_each_family():
    files = [f"{i}" for i in range(11)]
    for one, other in FAMILIES:
        assert sorted(share_files(files, one) + share_files(files, other)) == sorted(files)


def a_list_with_a_name_that_no_case_has_is_refused():
    done = subprocess.run([NUM, "--list", "--only", "/dev/stdin"], input="decode/nothing\n", capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2 and "1 lines, 0 cases" in done.stderr and not done.stdout, (done.returncode, done.stderr)


main([the_families_are_the_targets, every_case_runs_on_a_target_of_each_family,
      every_kind_of_every_preset_and_layout_runs_on_every_target, a_target_runs_less_than_all,
      every_sample_is_on_a_target_of_each_family, a_list_with_a_name_that_no_case_has_is_refused])
