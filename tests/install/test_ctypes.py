#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runtime from Python with ctypes alone: opens the host, prepares, stores, decodes and compares with attention in double
precision. No macro of the header is needed; sizes and numbers of binding.py are the header's, so a change of the ABI fails here.
TAP on stdout."""
import atexit
import ctypes as c
import math
import os
import random
import shutil
import struct
import tempfile

from binding import (I32, I64, KINDS, KVK_DECODE, KVK_E_ARG, KVK_E_UNSUPPORTED, KVK_FLOAT16, KVK_OK, KVK_STORE, PTR, Decode, Error,
                     Layout, Limits, Model, Pool, Rows, Store, load, made)
from installed import BUILD, ROOT, main, run, version

TEMP = tempfile.mkdtemp()
atexit.register(shutil.rmtree, TEMP)
G, H, D, P, PAGES, LENGTHS = 2, 6, 64, 16, 9, (37, 1, 50)


def library():
    for folder in (f"{os.path.dirname(BUILD)}/lib", f"{BUILD}/lib"):
        path = f"{folder}/libkvkiln.so"
        if os.path.exists(path) and (BUILD.endswith("/out/build") or folder.startswith(BUILD)):
            return path
    raise FileNotFoundError("libkvkiln.so")


os.environ["KVKILN_CACHE_DIR"] = f"{TEMP}/cache"
LIB = load(library())


def call(function, *args):
    error = Error()
    status = getattr(LIB, function)(*args, c.byref(error))
    assert status == KVK_OK, (function, LIB.kvk_status_name(status), error.text)


class Context:
    def __init__(self):
        self.ctx, self.kernels = PTR(), PTR()

    def __enter__(self):
        call("kvk_open", None, c.byref(self.ctx))
        return self

    def __exit__(self, *_):
        LIB.kvk_close(self.ctx)

    def prepare(self, **more):
        model = made(Model, spec=b"turboquant_k8v4", layout=b"soa", kv_heads=G, query_heads=H, head_size=D, page_tokens=P,
                     dtype=KVK_FLOAT16, kinds=KVK_STORE | KVK_DECODE, **more)
        call("kvk_prepare", self.ctx, c.byref(model), c.byref(self.kernels))
        return self.kernels


def halves(count, rng):
    """`count` random fp16 numbers as memory, and as they are."""
    memory = c.create_string_buffer(2 * count)
    struct.pack_into(f"<{count}e", memory, 0, *(rng.gauss(0, 1) for _ in range(count)))
    return memory, struct.unpack_from(f"<{count}e", memory)


def rows(memory):
    return Rows(data=c.addressof(memory))


def address(array):
    return c.cast(array, PTR)


def attention(query, keys, values):
    scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(D) for key in keys]
    weights = [math.exp(s - max(scores)) for s in scores]
    return [sum(w * v[d] for w, v in zip(weights, values)) / sum(weights) for d in range(D)]


def structs_are_those_of_the_header():
    """A compiler prints sizes and offsets of the fields that are written down in binding.py."""
    wanted = {f"{k.__name__}.{f[0]}": getattr(k, f[0]).offset for k in KINDS for f in k._fields_}
    wanted.update({k.__name__: c.sizeof(k) for k in KINDS})
    lines = [f'    printf("{n} %zu\\n", ' + ("offsetof(struct %s, %s));" % tuple(n.split(".")) if "." in n else f"sizeof(struct {n}));")
             for n in wanted]
    with open(f"{TEMP}/sizes.c", "w", encoding="ascii") as file:
        file.write("\n".join(["#include <stdio.h>", '#include "kvkiln.h"', "int main(void)", "{", *lines, "    return 0;", "}", ""]))
    run("gcc", "-std=c11", f"-I{ROOT}/runtime", f"{TEMP}/sizes.c", "-o", f"{TEMP}/sizes")
    found = {n: int(v) for n, v in (x.split() for x in run(f"{TEMP}/sizes").stdout.splitlines())}
    assert found == wanted, {n: (found.get(n), v) for n, v in wanted.items() if found.get(n) != v}


def stores_and_decodes():
    rng = random.Random(5)
    with Context() as context:
        kernels, layout = context.prepare(), made(Layout)
        call("kvk_layout", kernels, c.byref(layout))
        limits = made(Limits, sequences=len(LENGTHS), context=max(LENGTHS))
        raw = c.create_string_buffer(layout.page_bytes * PAGES + 16)
        pool = Pool(data=c.addressof(raw) + -c.addressof(raw) % 16, pages=PAGES)
        # pages in reverse order, handed out one sequence after the other
        free, tables, slots = list(range(PAGES)), [], []
        for length in LENGTHS:
            tables.append([free.pop() for _ in range(-(-length // P))])
            slots += [tables[-1][t // P] * P + t % P for t in range(length)]
        total, stride = sum(LENGTHS), max(len(t) for t in tables)
        (kmem, key), (vmem, value) = halves(total * G * D, rng), halves(total * G * D, rng)
        (qmem, query), omem = halves(len(LENGTHS) * H * D, rng), c.create_string_buffer(2 * len(LENGTHS) * H * D)
        store = made(Store, pool=pool, key=rows(kmem), value=rows(vmem), slots=address((I32 * total)(*slots)), rows=total)
        call("kvk_store", kernels, c.byref(store), None)
        flat = [page for t in tables for page in t + [-1] * (stride - len(t))]
        room = LIB.kvk_workspace_bytes(kernels, c.byref(limits))
        work = c.create_string_buffer(room + 16)
        decode = made(Decode, pool=pool, query=rows(qmem), out=rows(omem), block_table=address((I32 * len(flat))(*flat)),
                      table_stride=stride, lengths=address((I32 * len(LENGTHS))(*LENGTHS)), sequences=len(LENGTHS),
                      max_context=max(LENGTHS), workspace=c.addressof(work) + -c.addressof(work) % 16, workspace_bytes=room)
        call("kvk_decode", kernels, c.byref(decode), None)
        out = struct.unpack_from(f"<{len(LENGTHS) * H * D}e", omem)

    def row(numbers, i, heads, h):
        return numbers[(i * heads + h) * D:(i * heads + h + 1) * D]
    start, difference, square = 0, 0.0, 0.0
    for s, length in enumerate(LENGTHS):
        for h in range(H):
            g = h * G // H
            exact = attention(row(query, s, H, h), [row(key, start + t, G, g) for t in range(length)],
                              [row(value, start + t, G, g) for t in range(length)])
            difference += sum((a - b) ** 2 for a, b in zip(row(out, s, H, h), exact))
            square += sum(b * b for b in exact)
        start += length
    error = math.sqrt(difference / square)
    print(f"# relative error against the rows before they were quantised: {error:.3f}")
    assert 0.01 < error < 0.15, error  # 4-bit values, 8-bit keys: never exact, never far


def structs_of_the_first_header_are_accepted():
    """Structs grow at their end. A program that was built before ends them earlier, and gets the defaults."""
    first = {"kvk_options": 72, "kvk_model": 64}  # bytes in the first header of version 0
    options = (I64 * 16)(first["kvk_options"], *[-1 if 8 * i >= first["kvk_options"] else 0 for i in range(1, 16)])
    context, kernels = PTR(), PTR()
    call("kvk_open", options, c.byref(context))
    try:
        model = made(Model, spec=b"fp16", kv_heads=G, query_heads=H, head_size=D, kinds=KVK_STORE)
        longer = c.create_string_buffer(bytes(model)[:first["kvk_model"]] + b"\xff" * 32)
        struct.pack_into("@N", longer, 0, first["kvk_model"])
        call("kvk_prepare", context, longer, c.byref(kernels))
        struct.pack_into("@N", longer, 0, first["kvk_model"] - 8)
        error = Error()
        assert LIB.kvk_prepare(context, longer, c.byref(kernels), c.byref(error)) == KVK_E_ARG, error.text
        struct.pack_into("@N", longer, 0, c.sizeof(Model) + 8)  # what this library does not know is set
        assert LIB.kvk_prepare(context, longer, c.byref(kernels), c.byref(error)) == KVK_E_UNSUPPORTED, error.text
        assert version().encode() in error.text, error.text
    finally:
        LIB.kvk_close(context)


def errors_are_structs_to_read():
    with Context() as context:
        error = Error()
        model = made(Model, spec=b"no_such_preset", kv_heads=1, query_heads=1, head_size=D)
        status = LIB.kvk_prepare(context.ctx, c.byref(model), c.byref(context.kernels), c.byref(error))
        assert LIB.kvk_status_name(status) == b"KVK_E_SPEC" and b"no_such_preset" in error.text and error.where, error.text
    assert LIB.kvk_version().decode() == version()


main([structs_are_those_of_the_header, stores_and_decodes, structs_of_the_first_header_are_accepted,
      errors_are_structs_to_read])
