#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sanitize.py with programs in the places of compute-sanitizer and num: what it calls clean, an error, and a device that the tool
refuses. TAP on stdout."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import main

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.TemporaryDirectory()
CLEAN = {"memcheck": "========= ERROR SUMMARY: 0 errors", "initcheck": "========= ERROR SUMMARY: 0 errors",
         "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"}


def program(name, text):
    path = f"{FOLDER.name}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


NUM = program("num", '#!/bin/sh\necho "$@" >>$NUM_LOG\n[ -z "$NUM_SLEEP" ] || exec sleep $NUM_SLEEP\n'
              'echo "${NUM_SAYS:-3 passed, 0 failed, 0 skipped}"\nexit ${NUM_CODE:-0}\n')


def run(says=None, code=0, seconds="60", path=True, **env):
    """The tool prints says[tool] after the program's end, and ends with its status or, if that is 0, with `code`."""
    summary = "".join(f'  {tool}) echo "{line}" ;;\n' for tool, line in {**CLEAN, **(says or {})}.items())
    program("compute-sanitizer", f'#!/bin/sh\n[ "$1" = --tool ] && [ "$3$4" = --error-exitcode9 ] || exit 77\ntool=$2\nshift 6\n'
            f'"$@"\ncode=$?\ncase $tool in\n{summary}esac\n[ $code != 0 ] || code={code}\nexit $code\n')
    log = f"{FOLDER.name}/log"
    if os.path.exists(log):
        os.remove(log)
    done = subprocess.run([sys.executable, "-B", f"{HERE}/sanitize.py", NUM, "cuda:0", seconds], capture_output=True, text=True,
                          check=False, env={"PATH": (f"{FOLDER.name}:" if path else "") + "/usr/bin:/bin", "NUM_LOG": log, **env})
    calls = open(log, encoding="utf-8").read() if os.path.exists(log) else ""
    return done.returncode, done.stdout, calls


def clean_tools_are_clean():
    status, text, calls = run()
    assert status == 0 and text.endswith("3 clean, 0 with errors, 0 skipped\n"), text
    assert all(line.startswith("--device cuda:0 --reduced --shard ") for line in calls.splitlines()), calls


def reports_are_errors():
    for tool, line in (("memcheck", "========= ERROR SUMMARY: 2 errors"),
                       ("racecheck", "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")):
        status, text, _ = run({tool: line})
        assert status == 1 and f"{tool}: errors: " in text and "2 clean, 1 with errors" in text, text


def a_status_alone_is_an_error():
    status, text, _ = run(code=9)
    assert status == 1 and "0 clean, 3 with errors" in text, text


def a_missing_summary_is_an_error():
    status, text, _ = run({"initcheck": "Killed"})
    assert status == 1 and "initcheck: errors: " in text and "without a summary" in text, text


def failed_cases_are_errors():
    status, text, _ = run(NUM_SAYS="2 passed, 1 failed, 0 skipped", NUM_CODE="1")
    assert status == 1 and "3 with errors" in text, text


def nothing_passed_is_an_error():
    status, text, _ = run(NUM_SAYS="no case matches")
    assert status == 1 and "3 with errors" in text, text


def a_refused_device_is_said_and_skipped():
    says = {tool: "========= Error: Device not supported. Please refer to the documentation" for tool in CLEAN}
    status, text, _ = run(says, NUM_CODE="1")
    assert status == 3 and "refuses this device: Device not supported" in text and "0 clean, 0 with errors, 3 skipped" in text, text


def what_hangs_is_ended():
    status, text, _ = run(seconds="1", NUM_SLEEP="30")
    assert status == 1 and "did not end in time" in text, text


def without_the_tool_it_says_so():
    status, text, _ = run(path=False)
    assert status in (2, 3, 0, 1) and (status != 2 or "neither on PATH" in text), text


main([clean_tools_are_clean, reports_are_errors, a_status_alone_is_an_error, a_missing_summary_is_an_error, failed_cases_are_errors,
      nothing_passed_is_an_error, a_refused_device_is_said_and_skipped, what_hangs_is_ended, without_the_tool_it_says_so])
