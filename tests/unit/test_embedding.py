#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/embedding.md against the code: its messages are the code's, each with its status; and every message that
tells of a machine's state (no driver, no generator, ...) is in the table. TAP on stdout."""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import ROOT, main
from test_limits import STRING, calls, plain, read

# What an operator meets with a correct program: all of it has to be in the table.
OF_MACHINES = ("KVK_E_GENERATOR", "KVK_E_MISS", "KVK_E_CANCELLED", "KVK_E_FORK", "KVK_E_DEVICE")
# Statuses that no user can do anything about, or that the text of the driver, the spec reader or the system explains.
UNLISTED = {"KVK_OK", "KVK_E_INTERNAL", "KVK_E_COMPILE", "KVK_E_DRIVER", "KVK_E_MEMORY"}


def rows():
    page = read("docs/embedding.md").split("## Trouble")[1]
    found = re.findall(r"^\| `(.*?)` \| (KVK_E_\w+) \| (.+?) \| (.+?) \|$", page, re.M)
    assert len(found) == len(re.findall(r"^\| `", page, re.M)) > 20, "a row that cannot be read"
    return found


def known():
    """(status, message) of the code, for each status that a call names. A message that goes on in a macro's text ends as the
    page writes it."""
    found = set()
    for path in sorted(glob.glob(f"{ROOT}/gen/*.c") + glob.glob(f"{ROOT}/runtime/*.c")):
        for call in calls(read(os.path.relpath(path, ROOT)), r"\b(?:ERR|error_set|error_driver)\("):
            literals = re.findall(r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*', call)
            texts = [t for t in ("".join(re.findall(STRING, x)) for x in literals) if " " in t]
            for status in re.findall(r"KVK_E_\w+", call) if texts else ():
                message = plain(texts[0])
                found.add((status, message + "…" if message.endswith(" ") else message))
    return found


def every_message_is_the_codes():
    lost = [f"{s} {m}" for m, s, _, _ in rows() if (s, m) not in known()]
    assert not lost, "not in the code: " + "; ".join(lost)


def every_fault_of_a_machine_is_there():
    listed = {(s, m) for m, s, _, _ in rows()}
    missing = sorted(f"{s} {m}" for s, m in known() if s in OF_MACHINES and (s, m) not in listed)
    assert not missing, "not in docs/embedding.md: " + "; ".join(missing)


def every_status_is_there():
    declared = {f"KVK_{name}" for name in re.findall(r"^STATUS\((\w+),", read("runtime/status.def"), re.M)}
    listed = {s for _, s, _, _ in rows()}
    assert declared - UNLISTED <= listed, sorted(declared - UNLISTED - listed)
    assert not listed & UNLISTED, sorted(listed & UNLISTED)


def every_row_says_what_to_do():
    texts = [m for m, _, _, _ in rows()]
    assert len(texts) == len(set(texts)), "a message twice"
    for message, _, cause, cure in rows():
        assert len(cause) > 5 and len(cure) > 5, message


def environment_is_the_codes():
    names = set(re.findall(r'"([A-Z_]+)",$', read("runtime/env.c"), re.M))
    page = read("docs/embedding.md")
    assert names and not [n for n in names if f"`{n}`" not in page], names


main([every_message_is_the_codes, every_fault_of_a_machine_is_there, every_status_is_there, every_row_says_what_to_do,
      environment_is_the_codes])
