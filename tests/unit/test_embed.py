#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tuned tables that the build embeds are found as they stand in their files. TAP on stdout."""
import glob
import os
import subprocess
import sys
import tempfile

ROOT = os.environ.get("TEST_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TEST_BUILD") or f"{ROOT}/out/build"
MAIN = """
#include "runtime/tuned.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    struct gen_request r = {.spec_text = "", .kind = "decode", .layout = "aos", .target = "sm_90a", .head_size = 64, .gqa = 2};
    struct tuned found;
    kvk_error err = {0};
    int status = tuned_lookup("/nowhere", &r, &found, &err);
    printf("%d %s %s", status, found.plan, found.source);
    r.target = "gfx942";
    status = tuned_lookup(NULL, &r, &found, &err);
    printf(" %d %s;%s %s", status, found.plan, found.source, err.text);
    return 0;
}
"""
TABLES = {"sm_90a": 'return {\n-- "quoted" \\ caf\u00e9 ??/\n{ kind = "decode", gqa = 2, plan = { warps = 8 } } }\n', "gfx942": "return { x }\n"}


def embedded_tables_decide_like_files():
    program = next(p for p in glob.glob(f"{BUILD}/**/embed_texts", recursive=True) if os.path.isfile(p) and os.access(p, os.X_OK))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in TABLES.items():
            paths.append(f"{folder}/{name}.lua")
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        subprocess.run([program, f"{folder}/texts.c"] + paths, check=True)
        with open(f"{folder}/main.c", "w", encoding="ascii") as file:
            file.write(MAIN)
        sources = [f"{ROOT}/runtime/{n}.c" for n in ("tuned", "tuned_plan", "tuned_read", "error")]
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", f"{folder}/main.c", f"{folder}/texts.c", *sources, "-o",
                        f"{folder}/main"], check=True)
        said = subprocess.run([f"{folder}/main"], capture_output=True, text=True, check=True).stdout
        assert said.startswith("0 warps=8 tuned/sm_90a.lua:3 "), said
        assert said.endswith("; tuned/gfx942.lua:1: table: x: accepted {"), said


print("1..1")
try:
    embedded_tables_decide_like_files()
    print("ok 1 - embedded_tables_decide_like_files")
except Exception as error:  # pylint: disable=broad-except
    print(f"not ok 1 - embedded_tables_decide_like_files\n# {type(error).__name__}: {error}")
    sys.exit(1)
