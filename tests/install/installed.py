# SPDX-License-Identifier: Apache-2.0
"""What the tests of the installed tree share: running, installing, TAP."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, ROOT, Skip, main  # noqa: F401: for the suites


NINJA = ["-G", "Ninja"] if shutil.which("ninja") else []  # one of ninja and make is there


def run(*command, code=0, cwd=None, **env):
    """The finished process; `code` None: whatever its status is. Nothing of this environment but PATH goes in."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=cwd, stdin=subprocess.DEVNULL,
                          errors="replace", env={"PATH": os.environ["PATH"], "LC_ALL": "C", **env})
    if code is not None:
        assert done.returncode == code, (f"{' '.join(command)}: status {done.returncode}, expected {code}: "
                                         f"{(done.stdout + done.stderr)[-1500:]}")
    return done


def install(prefix):
    run("cmake", "--install", BUILD, "--prefix", prefix)


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, fs in os.walk(folder) for f in fs)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def version():
    header = read(f"{ROOT}/runtime/kvkiln.h")
    return ".".join(re.search(rf"#define KVK_VERSION_{x} (\d+)", header).group(1) for x in ("MAJOR", "MINOR", "PATCH"))


def commands(kvkiln):
    return re.findall(r"^  ([a-z]+)  +\S", run(kvkiln, "--help").stdout, re.M)
