/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake.h - what a fake driver library remembers, and how it is told to fail.
*/
#ifndef KVKILN_TESTS_RT_FAKE_H
#define KVKILN_TESTS_RT_FAKE_H

#include <stddef.h>

enum { FAKE_LAUNCHES = 8, FAKE_PARAMS = 512 };

struct fake_launch {
    char function[64];
    unsigned grid, threads, shared;
    void *stream;
    size_t bytes;
    unsigned char params[FAKE_PARAMS];
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
    long live;              /* things made and not freed */
    int depth;              /* contexts pushed and not popped; of the thread that asks last */
    int unentered;          /* calls that need a context and had none */
    int dynamic_shared;     /* last value of the attribute */
    int resident;
    int current;            /* hip: current device, as last set */
    int expect;             /* hip: the device whose calls need it to be current */
    int launches;
    struct fake_launch launch[FAKE_LAUNCHES];
};

/* Exported by each fake library. */
struct fake *fake_state(void);

#endif
