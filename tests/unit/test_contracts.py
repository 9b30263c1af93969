#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/contracts.md against the tests: every test that it names exists, and every kind of case of tests/num is on it.
TAP on stdout."""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, ROOT, main

NUM = f"{BUILD}/tests/num"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def named():
    """The last column's names: (file or None, test)."""
    rows = [line.split(" | ") for line in read(f"{ROOT}/docs/contracts.md").split("\n") if line.startswith("| ")]
    names = re.findall(r"`([^`]+)`", "\n".join(row[-1] for row in rows))
    return [tuple(n.split(": ")) if ": " in n else (None, n) for n in names]


def kinds():
    """What the suite's cases are called: before the first / or, of samples, the first dot."""
    cases = subprocess.run([NUM, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return {re.split(r"[/]", case)[0].split(".")[0] for case in cases}


def every_named_test_exists():
    found = kinds()
    for file, test in named():
        if file is None:
            assert test in found or test.startswith("host:"), test
            continue
        sources = glob.glob(f"{ROOT}/tests/{file}.c") + glob.glob(f"{ROOT}/tests/{file}.py")
        assert any(re.search(rf"^(?:static void|def) {test}\(", read(s), re.M) for s in sources), f"{file}: {test}"


def every_kind_of_case_is_on_the_page():
    missing = kinds() - {test for file, test in named() if file is None}
    assert not missing, sorted(missing)


def the_page_was_read():
    assert len(named()) > 80


main([every_named_test_exists, every_kind_of_case_is_on_the_page, the_page_was_read])
