/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver.h - what a device must offer, as a table of functions: driver_host.c, driver_cuda.c, driver_hip.c.
**
** Handles are opaque to the caller. All calls are thread safe unless they say otherwise; err is filled by the lowest
** function that knows, with the driver's own code and name of the call that failed.
*/
#ifndef KVKILN_DRIVER_H
#define KVKILN_DRIVER_H

#include "object.h"

/* One entry point ready to launch. Plain value; valid while its module is loaded. */
struct driver_entry {
    void *function;
    unsigned threads;      /* a CTA */
    unsigned shared_bytes; /* dynamic shared memory a CTA */
    int registers, local_bytes, static_shared_bytes, resident_ctas; /* as the driver reports; -1 unknown */
    int pair_ctas;         /* that the device holds at once in clusters of two; 0: unknown, or it has none */
    int overlaps; /* its caller's: it waits itself for the kernels before it, and may be brought in while they end */
};

struct driver_grid {
    unsigned ctas;
    int pairs;             /* 1: in clusters of two, where pair_ctas has a number; ctas is even */
    const void *map;       /* of a kernel that takes one behind decode's parameters (tensor_map), else NULL */
};

enum { DRIVER_TENSOR_DIMS = 4, DRIVER_MAP_BYTES = 128, DRIVER_MAP_ALIGN = 64 };

/* Bytes in memory, and the box of them that one copy brings to shared memory: the first dimension's follow each other, 128
** of the box, whose units of 16 are exclusive-ored with the last three bits of the row's number. */
struct driver_tensor {
    const void *data;
    uint64_t size[DRIVER_TENSOR_DIMS], stride[DRIVER_TENSOR_DIMS - 1]; /* stride: of the second dimension on */
    uint32_t box[DRIVER_TENSOR_DIMS];
};

struct driver_device_info {
    char name[96];        /* "NVIDIA H200" */
    char target[32];      /* "sm_90a", "gfx942", "x86-64-v3": what kernels must be made for */
    int64_t memory_bytes;
    int multiprocessors;
    int driver_version;   /* as the driver counts, 0 = none */
};

struct driver {
    const char *name; /* "host", "cuda", "hip" */
    /* Number of devices; on failure KVK_E_DEVICE / KVK_E_DRIVER and a text that says what is missing. */
    kvk_status (*count)(int *devices, kvk_error *err);
    kvk_status (*open)(int index, void **device, struct driver_device_info *info, kvk_error *err);
    void (*close)(void *device);
    kvk_status (*load)(void *device, const struct object *object, void **module, kvk_error *err);
    void (*unload)(void *device, void *module);
    /* `entry_line` is the value of an "entry" manifest line: KIND SYMBOL THREADS SHARED_BYTES [OFFSET]. */
    kvk_status (*entry)(void *device, void *module, const char *entry_line, struct driver_entry *out, kvk_error *err);
    /* params: the abi_* struct, copied before return. grid: CTAs, 1..2^31-1. */
    kvk_status (*launch)(void *device, const struct driver_entry *entry, struct driver_grid grid, const void *params, size_t bytes,
                         kvk_stream stream, kvk_error *err);
    /* Fills DRIVER_MAP_BYTES at a multiple of DRIVER_MAP_ALIGN, a kernel's parameter. 0: there is no such map. NULL: no device
    ** has any. */
    int (*tensor_map)(void *device, const struct driver_tensor *tensor, void *map);
    kvk_status (*alloc)(void *device, size_t bytes, void **out, kvk_error *err);
    void (*free)(void *device, void *memory);
    kvk_status (*upload)(void *device, void *to, const void *from, size_t bytes, kvk_error *err);
    kvk_status (*download)(void *device, void *to, const void *from, size_t bytes, kvk_error *err);
    kvk_status (*copy)(void *device, void *to, const void *from, size_t bytes, kvk_stream stream, kvk_error *err);
    kvk_status (*fill)(void *device, void *to, int byte, size_t bytes, kvk_error *err);
    /* `count` words of `value`, queued on the stream: may be captured. */
    kvk_status (*fill32)(void *device, void *to, uint32_t value, size_t count, kvk_stream stream, kvk_error *err);
    kvk_status (*synchronize)(void *device, kvk_error *err);
    /* Milliseconds that `body` takes on a stream of the device, by events (host: monotonic clock). */
    kvk_status (*time)(void *device, kvk_status (*body)(void *, kvk_stream, kvk_error *), void *data, double *ms, kvk_error *err);
};

extern const struct driver driver_host, driver_cuda, driver_hip;

#endif
