#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tuned tables that the build embeds are found as they stand in their files. TAP on stdout."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, ROOT, main

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
LONG = {"sm_80": "return {" + "-- many rows\n" * 1000 + "}\n"}  # longer than a string literal that every compiler takes


def embed(folder, tables):
    """FOLDER/texts.c, made by the build's own tool."""
    program = next(p for p in glob.glob(f"{BUILD}/**/embed_texts", recursive=True) if os.path.isfile(p) and os.access(p, os.X_OK))
    paths = []
    for name, text in tables.items():
        paths.append(f"{folder}/{name}.lua")
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run([program, f"{folder}/texts.c"] + paths, check=True)


def generated_texts_compile_without_a_warning():
    for tables in ({}, TABLES, LONG):
        for compiler in ("cc", "clang-14", "clang"):
            with tempfile.TemporaryDirectory() as folder:
                embed(folder, tables)
                if shutil.which(compiler):
                    subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{ROOT}", "-c",
                                    f"{folder}/texts.c", "-o", f"{folder}/texts.o"], check=True)


def embedded_tables_decide_like_files():
    with tempfile.TemporaryDirectory() as folder:
        embed(folder, TABLES)
        with open(f"{folder}/main.c", "w", encoding="ascii") as file:
            file.write(MAIN)
        sources = [f"{ROOT}/runtime/{n}.c" for n in ("tuned", "tuned_plan", "tuned_read", "error")]
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}", f"{folder}/main.c", f"{folder}/texts.c", *sources, "-o",
                        f"{folder}/main"], check=True)
        said = subprocess.run([f"{folder}/main"], capture_output=True, text=True, check=True).stdout
        assert said.startswith("0 warps=8 tuned/sm_90a.lua:3 "), said
        assert said.endswith("; tuned/gfx942.lua:1: table: x: accepted {"), said


main([generated_texts_compile_without_a_warning, embedded_tables_decide_like_files])
