#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that compile for real, by the installed library and generator, in folders that others use, break or forbid: the
rules of docs/cache.md once more, without the fakes of tests/rt. TAP on stdout."""
import atexit
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

from installed import Skip, files_of, install, main, run

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
PREFIX, PROGRAM = f"{TEMP}/tree", f"{TEMP}/program"
PROCESSES, KILLS, NOBODY = 16, 24, 65534
SOURCE = """
#include <kvkiln.h>
#include <stdio.h>
int main(void)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = KVK_INIT(struct kvk_model);
    const kvk_kernels *kernels;
    kvk_context *ctx;
    kvk_error err;
    options.device = "host";
    model.spec = "turboquant_k8v4", model.kinds = KVK_STORE | KVK_COPY;
    model.kv_heads = 2, model.query_heads = 8, model.head_size = 64;
    if (kvk_open(&options, &ctx, &err) || kvk_prepare(ctx, &model, &kernels, &err))
        return puts(err.text), 1;
    kvk_close(ctx);
    return puts("PASS"), 0;
}
"""


def start(preexec=None, **env):
    """A process that prepares two kernels for the host."""
    return subprocess.Popen([PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            cwd="/", preexec_fn=preexec, env={"PATH": os.environ["PATH"], **env})


def expect_pass(process):
    said = process.communicate(timeout=600)[0]
    assert process.returncode == 0 and said.startswith("PASS"), (process.returncode, said)


def entries(folder):
    """Names of the entries, all of them whole and of this build, and how many temporary files there are."""
    found = json.loads(run(f"{PREFIX}/bin/kvkiln", "cache", "list", "--json", "--dir", folder).stdout)
    assert all(e["whole"] and e["this_build"] for e in found["entries"]), found
    return sorted(e["name"] for e in found["entries"]), found["temporary_files"]


def everybody_may_read(folder):
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            if not os.path.islink(f"{place}/{name}"):
                os.chmod(f"{place}/{name}", 0o755)
    os.chmod(folder, 0o755)


def program_is_built():
    install(PREFIX)
    with open(f"{TEMP}/program.c", "w", encoding="ascii") as file:
        file.write(SOURCE)
    run("gcc", "-std=c11", f"{TEMP}/program.c", f"-I{PREFIX}/include", f"-L{PREFIX}/lib", f"-Wl,-rpath,{PREFIX}/lib", "-lkvkiln",
        "-o", PROGRAM)


def sixteen_cold_processes_succeed():
    folder = f"{TEMP}/shared/not/yet/there"
    for process in [start(KVKILN_CACHE_DIR=folder) for _ in range(PROCESSES)]:
        expect_pass(process)
    names, temporary = entries(folder)
    assert len(names) == 2 and not temporary, (names, temporary)
    assert len(files_of(folder)) == 2, files_of(folder)
    expect_pass(start(KVKILN_CACHE_DIR=folder, KVKILN_GENERATOR="/nowhere"))  # from the cache


def killed_compiles_leave_nothing_harmful():
    folder, rng = f"{TEMP}/killed", random.Random(7)
    began = time.monotonic()
    expect_pass(start(KVKILN_CACHE_DIR=folder))
    whole = time.monotonic() - began
    for _ in range(KILLS):
        shutil.rmtree(folder, ignore_errors=True) if rng.random() < 0.5 else None
        process = start(KVKILN_CACHE_DIR=folder)
        time.sleep(rng.uniform(0, 1.2 * whole))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if os.path.isdir(folder):
            entries(folder)
    expect_pass(start(KVKILN_CACHE_DIR=folder))
    names, _ = entries(folder)
    assert len(names) == 2, names


def file_size_limits_are_no_obstacle():
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    folder = f"{TEMP}/limited"
    expect_pass(start(limit, KVKILN_CACHE_DIR=folder))
    assert not files_of(folder), files_of(folder)
    expect_pass(start(KVKILN_CACHE_DIR=folder))
    expect_pass(start(limit, KVKILN_CACHE_DIR=folder, KVKILN_GENERATOR="/nowhere"))


def strangers_without_a_home_are_served():
    """As a user who owns nothing: no HOME, one that is missing, root's, read-only; and no descriptor of the others'."""
    if os.geteuid() != 0:
        raise Skip("becoming another user is for root")

    def become():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    everybody_may_read(TEMP)
    home = f"{TEMP}/home"
    os.makedirs(home)
    for env in ({}, {"HOME": "/nowhere/at/all"}, {"HOME": home}, {"HOME": "/proc"}, {"KVKILN_CACHE_DIR": f"{home}/x"}):
        expect_pass(start(become, **env))
    assert not files_of(home)
    os.chown(home, NOBODY, NOBODY)
    expect_pass(start(become, HOME=home))
    expect_pass(start(become, HOME=home, KVKILN_GENERATOR="/nowhere"))
    assert len(files_of(f"{home}/.cache/kvkiln")) == 2 and os.stat(f"{home}/.cache/kvkiln").st_mode & 0o777 == 0o700


main([program_is_built, sixteen_cold_processes_succeed, killed_compiles_leave_nothing_harmful, file_size_limits_are_no_obstacle,
      strangers_without_a_home_are_served])
