#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/run.py counts what suites print: nothing that failed or was skipped counts as passed. TAP on stdout."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from run import count, rank, run
from tap import BUILD, ROOT, main


def expect(text, status, passed, failed, skipped):
    got = count(text, status)
    assert got[:3] == (passed, failed, skipped) and len(got[3]) == failed, (text, status, got)


def tap_lines_are_cases():
    expect("1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c\n", 1, 2, 1, 0)
    expect("ok 1 - a # SKIP no GPU\nok 2 - b\n", 0, 1, 0, 1)
    expect("ok 1 - a\nnot ok 2 # SKIP b\n# not ok - tests\n", 0, 1, 0, 1)  # cmocka's


def last_lines_are_sums():
    expect("1 passed, 0 failed\n7 passed, 2 failed, 3 skipped\n", 1, 7, 2, 3)


def a_process_without_lines_is_one_case():
    expect("", 0, 1, 0, 0)
    expect("", 77, 0, 0, 1)
    expect("", 1, 0, 1, 0)


def a_crash_after_passes_is_a_failure():
    expect("ok 1 - a\n", -11, 1, 1, 0)
    expect("7 passed, 0 failed, 0 skipped\n", -6, 7, 1, 0)
    expect("ok 1 - a\n", "none after 1500 s", 1, 1, 0)


def long_suites_begin_first_and_those_that_find_kernels_compiled_later():
    names = ["num_reduced_1_of_2", "budgets", "unit_test_name", "cli_test_packs.py", "amdsim_test_kernels.py",
             "num_guarded_beginnings", "num_guarded_ends", "gpu_num"]
    assert sorted(names, key=lambda name: rank(name, names)) == [
        "gpu_num", "num_guarded_ends", "amdsim_test_kernels.py", "cli_test_packs.py", "unit_test_name",
        "num_reduced_1_of_2", "num_guarded_beginnings", "budgets"]
    alone = ["unit_test_name", "num_reduced_1_of_2"]  # as ./dev sanitize has it
    assert sorted(alone, key=lambda name: rank(name, alone)) == ["num_reduced_1_of_2", "unit_test_name"]


def a_name_that_no_suite_has_is_an_error():
    """Not a run of nothing: that a suite was renamed must not go unnoticed."""
    done = subprocess.run([sys.executable, "-B", f"{ROOT}/tests/run.py", ROOT, BUILD, "=order", "=no_such_suite"],
                          capture_output=True, text=True, check=False)
    assert done.returncode and "no suite is called =no_such_suite" in done.stderr and "passed" not in done.stdout, done


def only_a_tracer_that_died_is_tried_again():
    """A suite that fails once, and would pass a second time."""
    for said, outcome in (("LeakSanitizer has encountered a fatal error", (1, 0, 0)), ("ERROR: LeakSanitizer: detected memory leaks", (0, 1, 0))):
        with tempfile.TemporaryDirectory() as folder:
            script = f"cd {folder}; [ -e second ] && echo 'ok 1 - a' && exit; touch second; echo '{said}'; exit 1"
            name, (wall, busy), _, counted = run("suite", ["sh", "-c", script], dict(os.environ), folder)
            assert name == "suite" and counted[:3] == outcome and 0 <= busy <= wall + 1, (said, counted)


main([tap_lines_are_cases, last_lines_are_sums, a_process_without_lines_is_one_case, a_crash_after_passes_is_a_failure,
      long_suites_begin_first_and_those_that_find_kernels_compiled_later, a_name_that_no_suite_has_is_an_error,
      only_a_tracer_that_died_is_tried_again])
