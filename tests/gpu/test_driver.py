#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_driver where no GPU is: on the host's kernels, where results count, and on the fake CUDA driver, where calls and their
order do (it refuses what a strict capture forbids, and streams of other contexts). With a GPU: on it. TAP on stdout."""
import glob
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tap import BUILD, KVKILN, Skip, main

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = tempfile.TemporaryDirectory()
PACK = f"{FOLDER.name}/gpu.kvkpack"


def make_pack():
    doctor = subprocess.run([KVKILN, "doctor"], capture_output=True, text=True, check=True).stdout
    targets = sorted({"sm_90a", *re.findall(r"^(?:host|cuda:0) .*, target ([^,]+),", doctor, re.M)})
    subprocess.run([KVKILN, "build", "turboquant_4bit_nc", "turboquant_k8v4", "--target", ",".join(targets), "--pack", PACK],
                   capture_output=True, check=True)


def run(device, packs=PACK, **env):
    """(status, {case: True, False or None if skipped}, output)"""
    done = subprocess.run([f"{BUILD}/tests/gpu_driver", device], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "KVKILN_PACKS": packs, **env})
    cases = {}
    for bad, name, skip in re.findall(r"^(not )?ok \d+ - (\w+)( # SKIP.*)?$", done.stdout, re.M):
        cases[name] = None if skip else not bad
    return done.returncode, cases, done.stdout + done.stderr


def fakes():
    """A folder with the fake driver under the name of the real one."""
    folder = f"{FOLDER.name}/fakes"
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(f"{folder}/libcuda.so.1"):
        os.symlink(f"{BUILD}/tests/libfake_cuda.so", f"{folder}/libcuda.so.1")
    return folder


def the_host_gives_the_same_from_contexts_and_threads():
    status, cases, text = run("host")
    assert status == 0 and all(v is not False for v in cases.values()), text
    assert sum(v is True for v in cases.values()) >= 6 and sum(v is None for v in cases.values()) >= 4, text


def the_calls_are_right_on_a_fake_driver():
    for overlap in ("1", "2"):
        status, cases, text = run("cuda:0", LD_LIBRARY_PATH=fakes(), KVKILN_OVERLAP=overlap)
        assert status == 0 and "Fake GPU" in text and cases and all(cases.values()), text


def a_machine_without_a_device_counts_as_skipped():
    status, cases, text = run("cuda:99")
    assert status == 3 and "cannot be used" in text and cases and all(v is None for v in cases.values()), text


def a_missing_kernel_fails():
    status, cases, text = run("host", packs="")
    assert status == 1 and "KVK_E_MISS" in text and cases["closing_under_load"] is False, text


def a_gpu_does_all_of_it():
    if not glob.glob("/dev/nvidia[0-9]*"):
        raise Skip("no GPU")
    for overlap in ("1", "2"):
        status, cases, text = run("cuda:0", KVKILN_OVERLAP=overlap)
        assert status == 0 and cases and all(cases.values()), text


def pytorch_agrees_or_is_said_to_be_missing():
    """On its CPU tensors: test machines may have it, with or without a GPU."""
    library = next(p for p in (f"{os.path.dirname(BUILD)}/lib/libkvkiln.so", f"{BUILD}/lib/libkvkiln.so") if os.path.exists(p))
    done = subprocess.run([sys.executable, "-B", f"{HERE}/interop.py", library, PACK, "host"], capture_output=True, text=True,
                          timeout=300, check=False)
    lines = re.findall(r"^ok - \w+\.\w+( # SKIP .+)?$", done.stdout, re.M)
    assert done.returncode == 0 and len(lines) == 12 and "not ok" not in done.stdout, done.stdout + done.stderr
    assert all(lines) == ("PyTorch is not importable" in done.stdout), done.stdout


make_pack()
main([the_host_gives_the_same_from_contexts_and_threads, the_calls_are_right_on_a_fake_driver,
      a_machine_without_a_device_counts_as_skipped, a_missing_kernel_fails, pytorch_agrees_or_is_said_to_be_missing,
      a_gpu_does_all_of_it])
