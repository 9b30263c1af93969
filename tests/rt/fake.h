/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake.h - what a fake driver library remembers, and how it is told to fail.
*/
#ifndef KVKILN_TESTS_RT_FAKE_H
#define KVKILN_TESTS_RT_FAKE_H

#include <stddef.h>
#include <stdint.h>

enum { FAKE_LAUNCHES = 32, FAKE_PARAMS = 512, FAKE_DIMS = 5, FAKE_MAP_BYTES = 128 };

struct fake_launch {
    char function[64];
    unsigned grid, threads, shared;
    int overlaps, cluster;  /* cuda: it may, by its attribute; CTAs of a cluster, 0 without */
    void *stream;
    size_t bytes;
    unsigned char params[FAKE_PARAMS];
    int listed;             /* cuda: parameters came one by one, those of decode and a map behind them */
    uintptr_t map_at;
    unsigned char map[FAKE_MAP_BYTES];
};

/* cuda: arguments of the last tensor map that was asked for. Maps hold their number, counted from 1, in every byte. */
struct fake_map {
    int type, interleave, swizzle, promotion, fill;
    unsigned rank;
    const void *data;
    uint64_t size[FAKE_DIMS], stride[FAKE_DIMS];
    uint32_t box[FAKE_DIMS], step[FAKE_DIMS];
};

struct fake {
    int fail_at;            /* the n-th call from now fails, counted from 1; 0 = none */
    int fail_from;          /* it and every call after it: a device that is gone */
    unsigned chance;        /* of 2^16: each call fails with it */
    unsigned long long random;
    int fail_code;
    int calls;              /* since the reset */
    const char *failed;     /* name of the call that failed; with fail_from the first */
    int devices, major, minor, version;
    int refuse_cubin, refuse_ptx; /* codes of module loads, 0 = accepted */
    int refuse_map;         /* cuda: code of tensor maps */
    int maps;               /* that were asked for */
    struct fake_map map;
    long live;              /* things made and not freed */
    int depth;              /* contexts pushed and not popped; of the thread that asks last */
    int unentered;          /* calls that need the primary context and had another, or none */
    int dynamic_shared;     /* last value of the attribute */
    int resident;
    int clusters;           /* cuda: of two CTAs that the device holds at once */
    int current;            /* hip: current device, as last set */
    int expect;             /* hip: the device whose calls need it to be current */
    int queued;             /* launches since the device was waited for */
    int torn;               /* modules unloaded while some were */
    int strict;             /* cuda: code loaded by a thread that another one's capture forbids it */
    int mode;               /* cuda: capture mode that a thread set last; 0 is what it begins with */
    int launches;
    struct fake_launch launch[FAKE_LAUNCHES];
};

/* Two devices of CUDA 13, sm_90a; the suites open hip:1. */
#define FAKE_BEGINNING {.devices = 2, .major = 9, .version = 13000, .resident = 4, .clusters = 264, .expect = 1}

/* Exported by each fake library. */
struct fake *fake_state(void);

#endif
