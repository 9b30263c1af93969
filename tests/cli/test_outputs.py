#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Options that name an output: tried before the work, whole or as it was, through links; standard output. TAP on stdout."""
import glob
import json
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import KVKILN, ROOT, main

SAMPLE = sorted(glob.glob(f"{ROOT}/tests/data/*k8v4*"))[0]
KERNEL = ("fp16", "--target", "x86-64-v3", "--kind", "copy", "--layout", "aos")
NAME = "copy.fp16.aos.d128.g4.bf16.p16"
SUITE = ("bench", "suite", "--device", "host", "--quick", "--only", "dequant", "--seconds", "1")
# Each command and option: what else it needs; the file, where the option names a folder; what is seen once the work has begun.
WRITERS = {
    ("build", "output"): (("build", *KERNEL), f"{NAME}.x86-64-v3.object", "[1/1]"),
    ("build", "pack"): (("build", *KERNEL), None, "[1/1]"),
    ("convert", "output"): (("convert", SAMPLE, "--layout", "soa", "--device", "host"), None, " to soa"),
    ("tune", "output"): (("tune", "fp16", "--device", "host", "--layout", "aos", "--head-size", "64", "--kv-heads", "1",
                          "--context", "1x64", "--repeats", "1", "--plans", "1"), "tuned/HOST.lua", "(rules)"),
    ("pack merge", "output"): (("pack", "merge", "a.kvkpack"), None, " rows, "),
    ("pack object", "output"): (("pack", "object", "a.kvkpack"), None, "_size"),
    ("pack extract", "output"): (("pack", "extract", "a.kvkpack", "--target", "x86-64-v3"), f"{NAME}.x86-64-v3.object", NAME),
    ("bench suite", "json"): (SUITE, None, " rows in "),
    ("bench suite", "markdown"): (SUITE, None, " rows in "),
}


def kvkiln(*args, code=0, **more):
    done = subprocess.run([KVKILN, *args], stderr=subprocess.PIPE, text=True, timeout=600, cwd=TEMP, stdin=subprocess.DEVNULL,
                          **{"stdout": subprocess.PIPE, **more})
    codes = code if isinstance(code, tuple) else (code,)
    assert done.returncode in codes, f"{args}: exit {done.returncode}, expected {code}: {done.stdout}{done.stderr[-600:]}"
    return done


def write(writer, value, **more):
    return kvkiln(*WRITERS[writer][0], f"--{writer[1]}={value}", **more)


def file_of(writer, value):
    """What is written where the option has this value."""
    inside = WRITERS[writer][1]
    return f"{value}/{inside.replace('HOST', HOST)}" if inside else value


def every_option_that_names_an_output_is_here():
    commands = re.findall(r"^  ([a-z]+)  +\S", kvkiln("--help").stdout, re.M)
    named = set()
    for command in (*commands, "bench decode", "bench suite", "bench compile"):
        text = kvkiln(*command.split(), "--help").stdout
        named |= {(command, option) for option, value in re.findall(r"--([a-z-]+)=(\S+)", text)
                  if value in ("FILE", "DIR", "PATH") and option in ("output", "json", "markdown", "pack")}
    assert named == {(c if c == "bench suite" else c.split()[0], o) for c, o in WRITERS}, named


def what_cannot_be_written_is_noticed_before_the_work():
    os.makedirs(f"{TEMP}/folder.d")
    with open(f"{TEMP}/plain", "w", encoding="ascii"):
        pass
    for writer, (_, inside, begun) in WRITERS.items():
        wrong = [("plain/a/b", "plain: Not a directory"), ("/proc/nowhere/a/b", "/proc/nowhere: No such file or directory"),
                 ("", ": No such file or directory" if writer[0] != "tune" else "")]
        wrong += [] if inside else [("folder.d", "folder.d: Is a directory"), ("new.d/", "new.d/: Is a directory")]
        for value, text in wrong:
            if text:
                done = write(writer, value, code=2)
                assert f"kvkiln: {text}\n" in done.stderr and begun not in done.stdout + done.stderr, (writer, value, done)
    done = kvkiln(*SUITE, "--json", "new.json", "--markdown", "folder.d", code=2)
    assert not done.stdout and not os.path.exists(f"{TEMP}/new.json"), done
    kvkiln("tune", *WRITERS["tune", "output"][0][1:], "--output=plain/a", "--dry-run")  # writes nothing


def folders_are_made_with_their_parents():
    for number, writer in enumerate(WRITERS):
        value = f"new{number}/deep/er"
        write(writer, value)
        path = f"{TEMP}/{file_of(writer, value)}"
        assert os.path.getsize(path) > 0 and not glob.glob(f"{os.path.dirname(path)}/*.tmp"), writer


def old_file(writer, number):
    """The value for an output that is there: valid for a tuned table, which is read first."""
    value = f"{TEMP}/old{number}"
    path = file_of(writer, value)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write("return {} -- old")
    return value, path


def a_file_that_cannot_grow_stays_as_it_was():
    for number, writer in enumerate(WRITERS):
        value, path = old_file(writer, number)
        done = write(writer, value, code=(1, 2), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20)))
        assert f"{path}: File too large" in done.stderr, (writer, done)
        with open(path, encoding="ascii") as file:
            assert file.read() == "return {} -- old", writer
        assert not glob.glob(f"{os.path.dirname(path)}/*.tmp"), (writer, os.listdir(os.path.dirname(path)))


def links_are_written_through():
    for number, writer in enumerate(WRITERS):
        for there in (True, False):
            value, path = old_file(writer, f"-link{number}{there}")
            behind = f"{TEMP}/behind{number}{there}"
            os.replace(path, behind)
            if not there:
                os.unlink(behind)
            os.symlink(os.path.relpath(behind, os.path.dirname(path)), path)
            write(writer, value)
            with open(behind, "rb") as file:
                assert os.path.islink(path) and not file.read().endswith(b"old"), (writer, there)


def a_pipe_is_written_to():
    """As devices are, which no test names: a fault would replace them. Nor is it opened before there is something to write."""
    pipe = f"{TEMP}/pipe"
    os.mkfifo(pipe)
    for writer, (_, inside, _) in WRITERS.items():
        if not inside:
            with open(f"{TEMP}/piped", "wb") as out, subprocess.Popen(["cat", pipe], stdout=out) as reader:
                try:
                    write(writer, pipe)
                    assert reader.wait(60) == 0 and os.path.getsize(out.name) and stat.S_ISFIFO(os.stat(pipe).st_mode), writer
                finally:
                    reader.kill()


def a_full_standard_output_is_said():
    text = kvkiln("--help").stdout
    commands = re.findall(r"^  ([a-z]+)  +\S", text, re.M)
    asked = [("--version",), ("-V",), ("--help",), ("help",), ("bench", "decode", "--help"), ("presets", "--usage"), ("presets",)]
    for words in asked + [(command, "--help") for command in commands]:
        with open("/dev/full", "wb") as full:
            done = kvkiln(*words, code=2, stdout=full)
        assert done.stderr == "kvkiln: writing to standard output failed\n", (words, done)


with tempfile.TemporaryDirectory() as TEMP:
    kvkiln("build", *KERNEL, "--pack", "a.kvkpack")
    HOST = json.loads(kvkiln("bench", "decode", "--device", "host", "--context", "64", "--kv-heads", "1", "--head-size", "64",
                             "--repeats", "1", "--json").stdout)["target"]
    main([every_option_that_names_an_output_is_here, what_cannot_be_written_is_noticed_before_the_work,
          folders_are_made_with_their_parents, a_file_that_cannot_grow_stays_as_it_was, links_are_written_through,
          a_pipe_is_written_to, a_full_standard_output_is_said])
