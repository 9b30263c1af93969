#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--help of every command: complete, and the same as docs/cli.md and the code say. TAP on stdout."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

OPTION = r"^\s+(?:-(\S), +)?--([a-z][a-z-]*)(?:=\S+)?(.*)$"
OF_ARGP = {"help", "usage"}


def read(name):
    with open(f"{ROOT}/{name}", encoding="utf-8") as file:
        return file.read()


def help_of(*words):
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run([KVKILN, *words, "--help"], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0 and not done.stderr, (words, done)
    return done.stdout


MAIN = help_of()
COMMANDS = re.findall(r"^  ([a-z]+)  +\S", MAIN, re.M)


def options(text):
    """{name: letter or ""}"""
    return {name: letter for letter, name, _ in re.findall(OPTION, text, re.M) if name not in OF_ARGP}


def helps(command):
    """The command's help, and that of each kind that it lists."""
    text = help_of(command)
    kinds = [w for row in re.findall(r"^  ([a-z]+(?:, [a-z]+)*)  +[a-z]", text, re.M) for w in row.split(", ")]
    return [text] + [help_of(command, kind) for kind in kinds]


def section(command):
    """What docs/cli.md says about a command: all sections whose heading begins with its name, and the page of that name."""
    told = "\n".join(re.findall(rf"^(## {command}\b(?:.|\n)*?)(?=^## |\Z)", read("docs/cli.md"), re.M))
    return told + "".join(read(f"docs/{page}") for page in re.findall(rf"\(({command}s?\.md)\)", told))


def every_option_says_what_it_does():
    for command in COMMANDS:
        for text in helps(command):
            lines = text.splitlines()
            assert len(lines) > 4 and lines[0].startswith("Usage: kvkiln") and not lines[1].startswith("  -"), text
            for i, line in enumerate(lines):
                found = re.match(OPTION, line)
                assert len(line) <= 100, line
                if found and not found.group(3).strip():
                    following = lines[i + 1] if i + 1 < len(lines) else ""
                    assert re.match(r" {10,}\S", following), f"{command}: --{found.group(2)} has no text"


def page_has_every_command_and_option():
    page = read("docs/cli.md")
    everywhere = set(re.findall(r"`--([a-z-]+)", page.split("\n## ")[0]))
    for command in COMMANDS:
        told = section(command)
        assert told, f"docs/cli.md has no section {command}"
        for other in re.findall(r"[Oo]ptions as for `([a-z]+)`", told):
            told += section(other)
        known = {name: letter for text in helps(command) for name, letter in options(text).items()}
        words = set(re.findall(r"(?<![\w-])(-[a-zA-Z]|--[a-z][a-z-]*)\b", told))
        missing = [n for n, letter in known.items() if n not in everywhere and not {f"--{n}", f"-{letter}"} & words]
        assert not missing, f"docs/cli.md, {command}: nothing about {sorted(missing)}"


def page_has_no_other_options():
    known = set().union(OF_ARGP, {"version"}, *(options(t) for c in COMMANDS for t in helps(c)))
    for command in COMMANDS:
        told = section(command)
        scripts = "".join(read(name) for name in re.findall(r"`([\w/]+\.py)\b", told))  # a page may tell of their options too
        stray = set(re.findall(r"`--([a-z][a-z-]*)", told)) - known - set(re.findall(r'"--([a-z-]+)"', scripts))
        assert not stray, f"docs/cli.md, {command}: no such option: {sorted(stray)}"


def statuses_and_environment_are_the_codes():
    numbers = re.findall(r"^    CLI_\w+ = (\d)", read("cli/cli.h"), re.M)
    assert re.findall(r"^  (\d)  \S", MAIN, re.M) == numbers == re.findall(r"^\| (\d) \|", read("docs/cli.md"), re.M), numbers
    named = set(re.findall(r'"(KVKILN_\w+)"', read("runtime/env.c")))
    assert set(re.findall(r"^  (KVKILN_\w+) ", MAIN, re.M)) == named, named


main([every_option_says_what_it_does, page_has_every_command_and_option, page_has_no_other_options,
      statuses_and_environment_are_the_codes])
