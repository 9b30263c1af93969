# SPDX-License-Identifier: Apache-2.0
"""What the suites in Python share: where things are, and TAP on stdout."""
import os
import sys

ROOT = os.environ.get("TEST_ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("TEST_BUILD") or f"{ROOT}/out/build"
KVKILN = os.environ.get("KVKILN") or f"{ROOT}/out/bin/kvkiln"


class Skip(Exception):
    """A case that cannot run here: the reason."""


def main(tests):
    """Runs the functions, one case each, and ends the process."""
    failed = 0
    print(f"1..{len(tests)}", flush=True)
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}", flush=True)
        except Skip as why:
            print(f"ok {number} - {test.__name__} # SKIP {why}", flush=True)
        except Exception as error:  # every case is reported
            failed += 1
            text = str(error).replace("\n", "\n#   ")[:4000]
            print(f"not ok {number} - {test.__name__}\n# {type(error).__name__}: {text}", flush=True)
    sys.exit(1 if failed else 0)
