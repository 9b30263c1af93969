#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/limits.md against the code: every KVK_E_UNSUPPORTED text of gen/ and runtime/ is listed, and every listed message
is one of the code's. That each is provoked is the other half: tests/unit/test_limits.c, and the tests that the page names.
TAP on stdout."""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import ROOT, main

STRING = r'"((?:[^"\\]|\\.)*)"'
CONVERSION = r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlz])?[diouxXeEfgGcsp]"


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def plain(c_text):
    """A format as the page writes it."""
    return re.sub(CONVERSION, "…", c_text.replace('\\"', '"')).replace("%%", "%")


def calls(text, start):
    """Each call that begins with `start`, up to its closing parenthesis."""
    for found in re.finditer(start, text):
        depth, i, quoted = 0, found.end() - 1, False
        while True:
            c = text[i]
            if c == '"' and text[i - 1] != "\\":
                quoted = not quoted
            depth += (c == "(") - (c == ")") if not quoted else 0
            i += 1
            if depth == 0:
                yield text[found.start():i]
                break


def messages():
    """[(file, status, message)] of everything that gen/ and runtime/ refuse."""
    found = []
    for path in sorted(glob.glob(f"{ROOT}/gen/*.c") + glob.glob(f"{ROOT}/runtime/*.c")):
        name = os.path.relpath(path, ROOT)
        text = read(name)
        for call in calls(text, r"\b(?:ERR|error_set|error_driver)\("):
            status = re.search(r"KVK_E_\w+", call)
            literals = re.findall(r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*', call)
            # the first literal with a space in it: others are names of calls
            texts = ["".join(re.findall(STRING, x)) for x in literals]
            texts = [t for t in texts if " " in t]
            if status and texts:
                found.append((name, status.group(), plain(texts[0])))
    return found


def accepted_of_plan():
    """What gen/plan.c's refuse() says is accepted: the rest of its message."""
    return ["".join(re.findall(STRING, re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+(?=\))', c)[-1]))
            for c in calls(read("gen/plan.c"), r"(?<=return )refuse\(")]


def rows():
    found = re.findall(r"^\| `(.*?)` \| (KVK_E_\w+) \| (.+?) \| (\S+) \|$", read("docs/limits.md"), re.M)
    assert len(found) > 40, len(found)
    assert len(found) == len(re.findall(r"^\| `", read("docs/limits.md"), re.M)), "a row that cannot be read"
    return found


def expanded(found):
    """The messages, refuse()'s one format replaced by what it can say."""
    general = "… …: … …: … kernels take …"
    texts = {(s, m) for _, s, m in found if m != general}
    for text in accepted_of_plan():
        texts |= {("KVK_E_UNSUPPORTED", f"… …: {field} …: … kernels take {text}")
                  for field in ("head_size", "value_head_size")}
    return texts


def every_refusal_is_listed():
    listed = {(s, m) for m, s, _, _ in rows()}
    missing = [f"{name}: {m}" for name, s, m in messages()
               if s == "KVK_E_UNSUPPORTED" and (s, m) not in listed and "kernels take …" not in m]
    missing += [a for a in accepted_of_plan() if not any(m.endswith(f"kernels take {a}") for _, m in listed)]
    assert not missing, "not in docs/limits.md: " + "; ".join(missing)


def every_listed_message_exists():
    known = expanded(messages())
    lost = []
    for message, status, _, _ in rows():
        pattern = re.escape(message)
        # the code may have a variable where the page has a word: "… is …, accepted …..…"
        if not any(s == status and (m == message or re.fullmatch(re.escape(m).replace("…", ".+"), message))
                   for s, m in known):
            lost.append(f"{status} {message} ({pattern[:20]})")
    assert not lost, "in docs/limits.md, but not in the code: " + "; ".join(lost)


def names(message, source):
    """Does a string of the source hold a fixed part of the message? `limits` needs none: it reads the page."""
    parts = sorted((p.strip(' :,"') for p in message.split("…")), key=len, reverse=True)
    strings = [x.replace('\\"', '"') for x in re.findall(STRING, source)]
    return any(part in s for part in parts if len(part) >= min(8, len(parts[0])) for s in strings)


def every_row_has_a_test_that_provokes_it():
    for message, _, cause, test in rows():
        name = "tests/unit/test_limits.c" if test == "limits" else f"tests/{test}.c"
        assert os.path.exists(os.path.join(ROOT, name)), f"{message}: {name}"
        assert test == "limits" or names(message, read(name)), f"{name} expects nothing like: {message}"
        assert len(cause) > 5, message


if __name__ == "__main__":
    main([every_refusal_is_listed, every_listed_message_exists, every_row_has_a_test_that_provokes_it])
