#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""C leaves the order in which arguments are evaluated open: two calls among the arguments of one call (or in one
initialiser list) that both emit instructions give one IR with gcc and another with clang. This finds them. Prints TAP.

order.py ROOT
"""
import glob
import re
import sys

ROOT = sys.argv[1]
# Builder functions that emit nothing: constants and questions.
QUIET = {"kb_i1", "kb_i8", "kb_i16", "kb_i32", "kb_i64", "kb_f32", "kb_f32_bits", "kb_const", "kb_f16x2", "kb_undef",
         "kb_plan", "kb_warp_size", "kb_fail", "kb_at", "kb_shared_used", "kb_failed", "kb_target",
         "kb_param", "kb_tid", "kb_lane", "kb_warp", "kb_cta"}  # the last five: made when the entry begins
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "defined"}


def clean(text):
    """Without comments, strings and preprocessor lines, every line kept."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found.group(0))
    text = re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text)
    return re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def bodies(text):
    """(name, body) of every function definition in the house style."""
    for found in re.finditer(r"^[A-Za-z_][^;{}=]*?\b(\w+)\([^;{}]*\)\s*\{", text, re.M):
        yield found.group(1), text[found.end():parts(text, found.end() - 1)[1]]


def called(text):
    return set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", text)) - NOT_CALLS


def emitting(texts):
    """Names of all functions that emit, directly or through others. Statics of one name in two files count as one."""
    with open(f"{ROOT}/gen/kb.h", encoding="utf-8") as header:
        names = {n for n in re.findall(r"\b(kb_\w+)\(struct kb \*", header.read())} - QUIET
    graph = {}
    for text in texts:
        for name, body in bodies(text):
            graph.setdefault(name, set()).update(called(body))
    names |= {n for calls in graph.values() for n in calls if n.startswith("LLVMBuild")}
    while True:
        more = {n for n, calls in graph.items() if n not in QUIET and calls & names} - names
        if not more:
            return names
        names |= more


def parts(text, start):
    """The comma-separated parts of the bracket that opens at `start`, and where it closes."""
    depth, begin, found = 0, start + 1, []
    for i in range(start, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return found + [text[begin:i]], i
        elif text[i] == "," and depth == 1:
            found.append(text[begin:i])
            begin = i + 1
    return found, len(text)


def wrong(text, names):
    for found in re.finditer(r"\b([A-Za-z_]\w*)\s*\(|=\s*\{|\((?:struct \w+|(?:const )?val ?\[\w*\])\)\s*\{", text):
        name = found.group(1)
        if name in NOT_CALLS:
            continue
        loud = [p for p in parts(text, found.end() - 1)[0] if called(p) & names]
        if len(loud) > 1:
            yield text.count("\n", 0, found.start()) + 1, name or "initialiser", loud


def main():
    files = sorted(glob.glob(f"{ROOT}/templates/*.c") + glob.glob(f"{ROOT}/gen/*.c"))
    texts = {}
    for name in files:
        with open(name, encoding="utf-8") as file:
            texts[name] = clean(file.read())
    names = emitting(texts.values())
    failed = 0
    for name, text in texts.items():
        for line, call, loud in wrong(text, names):
            print(f"# {name[len(ROOT):].lstrip('/')}:{line}: {call}: " + " | ".join(" ".join(p.split()) for p in loud))
            failed += 1
    print(f"1..1\n# {len(names)} emitting functions\n{'not ok' if failed else 'ok'} 1 - order_one_emitting_call_a_call")
    return 1 if failed else 0


sys.exit(main())
