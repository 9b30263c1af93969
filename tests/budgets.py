#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a machine can check: sizes, includes, calls, symbols. Prints TAP.

budgets.py ROOT BUILD   BUILD is the build tree whose objects and libraries are looked at
"""
import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT, BUILD = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PRODUCT = ("gen/", "templates/", "runtime/", "cli/", "cmake/")

# Writable data that the libraries may have, and why.
WRITABLE = {
    "registered": "the generator of a static build, set once before the first kvk_open",
    "once": "pthread_once of LLVM's own registration of a target",
    "handles": "a lock around making and ending nvJitLink's handles, whose library has a state of its own",
}
# Calls that end the process, print, or read the environment belong to cli/; who may do otherwise, and why.
CALLS = {"getenv", "secure_getenv", "setenv", "exit", "_exit", "abort", "printf", "puts", "putchar", "vprintf",
         "perror", "stdout", "stderr", "stdin", "__printf_chk", "__vprintf_chk", "signal", "sigaction"}
CALLERS = {
    "runtime/env.c": "the one reader of the environment",
}


def out(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def tracked():
    try:
        names = out("git", "ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(d, f), ROOT) for d, _, fs in os.walk(ROOT) for f in fs
                 if "/.git" not in d and not os.path.relpath(d, ROOT).startswith("out")]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(ROOT, n)))


FILES = tracked()


def lines(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read().split("\n")[:-1]


def named(*suffixes, within=""):
    return [n for n in FILES if n.endswith(suffixes) and n.startswith(within)]


def functions(name):
    """(name, lines) of each function: from its first line at column 0 to the closing brace at column 0."""
    start, text = None, lines(name)
    for i, line in enumerate(text):
        if line == "}" and start is not None:
            yield signature(text[start]), i - start + 1
            start = None
        elif start is None and re.match(r"[A-Za-z_].*[\w*)][ *]*\w+\(", line) and not line.rstrip().endswith(";"):
            start = i
        elif start is not None and re.match(r"\S.*;\s*$|^$", line) and "{" not in "".join(text[start:i]):
            start = None  # a declaration


def signature(line):
    return re.search(r"(\w+)\(", line).group(1)


# ---- the rules: each yields what breaks it ----

def function_sizes():
    sizes = sorted((n, f"{name}: {f}") for name in named(".c") for f, n in functions(name))
    if sizes:
        p90 = sizes[int(len(sizes) * 0.9)][0]
        note(f"{len(sizes)} functions, p90 {p90}, longest {sizes[-1][0]} lines")
        if p90 > 45:
            yield f"p90 of function lengths is {p90}, 45 allowed"
    yield from (f"{where} has {n} lines, 120 allowed" for n, where in sizes if n > 120)


def file_sizes():
    sizes = {n: len(lines(n)) for n in named(".c", ".h", ".def", ".py", ".sh", ".cmake")}
    note(f"{len(sizes)} files, median {statistics.median(sizes.values()):.0f}, longest {max(sizes.values())} lines")
    if statistics.median(sizes.values()) > 300:
        yield "median of file lengths is over 300"
    yield from (f"{n} has {k} lines, 700 allowed" for n, k in sizes.items() if k > 700)


def header_sizes():
    yield from (f"{n} has {len(lines(n))} lines, 150 allowed" for n in named(".h")
                if n != "runtime/kvkiln.h" and len(lines(n)) > 150)


def template_sizes():
    yield from (f"{n} has {len(lines(n))} lines, 200 allowed" for n in named(".c", within="templates/")
                if "/part_" not in n and len(lines(n)) > 200)  # because the parts do the work


def line_widths():
    for name in named(".c", ".h", ".def", ".cmake") + named(".lua", within="specs/"):
        most = 132 if name.endswith((".h", ".def", ".lua")) else 120  # tables with a comment a row are wider
        for i, line in enumerate(lines(name)):
            if len(line) > most:
                yield f"{name}:{i + 1} has {len(line)} columns, {most} allowed"


def includes():
    lua = set()
    for name in named(".c", ".h", ".def"):
        for line in lines(name):
            found = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not found:
                continue
            what = found.group(1)
            if what.startswith("llvm-c/") and not re.match(r"(gen/(kb|lower|target_)|tests/)", name):
                yield f"{name} includes {what}"
            if what in ("lua.h", "lauxlib.h", "lualib.h") and not name.startswith("tests/"):
                lua.add(name)
            if name.startswith("runtime/") and re.match(r"(\.\./)?(gen|templates|cli|tests)/", what):
                yield f"{name} includes {what}"
            if name.startswith(("gen/", "templates/")) and re.match(r"(\.\./)?(cli|tests)/", what):
                yield f"{name} includes {what}"
            if name.startswith(PRODUCT) and "tests/" in what:
                yield f"{name} includes {what}"
    if len(lua) > 1 or any(not n.startswith("gen/spec") for n in lua):
        yield f"lua.h is included by {', '.join(sorted(lua))}: one gen/spec file may"


def spdx():
    for name in named(".c", ".h", ".def", ".lua", ".py", ".sh", ".cmake", "CMakeLists.txt") + ["dev", ".ci/run"]:
        if name in FILES and not name.startswith("tests/fails/") and not any("SPDX-License-Identifier: Apache-2.0" in x for x in lines(name)[:3]):
            yield f"{name} has no SPDX line"


def machine_paths():
    places = re.compile(r"(?<![\w.$}~-])/(?:" + "|".join(("work", "home", "root", "mnt", "Users")) + r")/\w")
    for name in FILES:
        if not name.endswith((".safetensors", ".xz", ".png")):
            for i, line in enumerate(lines(name)):
                if places.search(line):
                    yield f"{name}:{i + 1} names a path of one machine: {line.strip()[:60]}"


def products():
    yield from (f"{n} is tracked" for n in out("git", "ls-files", "out").split() if n != "out/README.md")
    size = sum(os.path.getsize(os.path.join(ROOT, n)) for n in FILES if n.startswith("tests/data/"))
    if size > 6 << 20:
        yield f"tests/data has {size} bytes, 6 MiB allowed"


def sources_listed():
    listed = set("\n".join(lines("cmake/sources.cmake")).split())
    listed |= {n.rstrip(")") for n in listed}
    yield from (f"{n} is in no list of cmake/sources.cmake" for n in named(".c") if n not in listed
                and n.startswith(("runtime/", "gen/", "templates/", "cli/", "tests/")))
    # what a kernel depends on names it in caches and packs: a header that is not listed leaves stale kernels valid
    yield from (f"{n} is not in KVKILN_ID_FILES" for n in named(".h", ".def") if n not in listed
                and n.startswith(("gen/", "templates/")))


def objects(part):
    found = glob.glob(f"{BUILD}/CMakeFiles/{part}-objects.dir/**/*.o", recursive=True)
    prefix = f"{BUILD}/CMakeFiles/{part}-objects.dir/"
    return [(n, n[len(prefix):-2]) for n in found if os.path.exists(os.path.join(ROOT, n[len(prefix):-2]))]


def calls():
    for part in ("runtime", "gen"):
        for path, name in objects(part):
            if name not in CALLERS:
                wrong = CALLS & set(out("nm", "-u", "--format=posix", path).split())
                if wrong:
                    yield f"{name} calls {', '.join(sorted(wrong))}"


def writable_data():
    for part in ("runtime", "gen"):
        for path, name in objects(part):
            for found in re.finditer(r"\] \.(?:t?data|t?bss)(\S*) +\S+ +\S+ +\S+ +(\S+)", out("readelf", "-SW", path)):
                what = found.group(1).lstrip(".")
                if int(found.group(2), 16) and not what.startswith("rel.ro") and what.split(".")[0] not in WRITABLE:
                    yield f"{name}: {what or 'data'} is writable"


def library(name):
    for folder in (f"{os.path.dirname(BUILD)}/lib", f"{BUILD}/lib"):
        if os.path.exists(f"{folder}/{name}") and (BUILD.endswith("/out/build") or folder.startswith(BUILD)):
            return f"{folder}/{name}"
    raise FileNotFoundError(name)


def exports():
    for name in ("libkvkiln.so", "libkvkiln-gen.so"):
        for line in out("nm", "-D", "--defined-only", "--format=posix", library(name)).split("\n"):
            if line and not line.startswith("kvk_"):
                yield f"{name} exports {line.split()[0]}"


def needed():
    got = re.findall(r"NEEDED.*\[(.*)\]", out("readelf", "-dW", library("libkvkiln.so")))
    yield from (f"libkvkiln.so needs {n}" for n in got if not re.match(r"lib(c|m|dl|pthread|gcc_s)\.so|ld-linux", n))


def runtime_size():
    with tempfile.TemporaryDirectory() as folder:
        out("strip", "-o", f"{folder}/lib", library("libkvkiln.so"))
        size = os.path.getsize(f"{folder}/lib")
    note(f"libkvkiln.so {size / 1024:.0f} KiB stripped")
    if size > 512 << 10:
        yield f"libkvkiln.so has {size} bytes stripped, 512 KiB allowed"


RULES = [function_sizes, file_sizes, header_sizes, template_sizes, line_widths, includes, spdx, machine_paths, products,
         sources_listed,
         calls, writable_data, exports, needed, runtime_size]


def note(text):
    print(f"# {text}")


def main():
    failed = 0
    print(f"1..{len(RULES)}")
    for number, rule in enumerate(RULES, 1):
        try:
            wrong = list(rule())
        except Exception as error:  # a rule that cannot be checked is a rule that failed
            wrong = [f"{type(error).__name__}: {error}"]
        for text in wrong[:60]:
            note(text)
        print(f"{'not ok' if wrong else 'ok'} {number} - budgets_{rule.__name__}", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


sys.exit(main())
