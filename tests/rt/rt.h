/* SPDX-License-Identifier: Apache-2.0 */
/*
** rt.h - what the suites of the runtime share: folders, a generator that compiles nothing, a driver that runs nothing.
*/
#ifndef KVKILN_TESTS_RT_H
#define KVKILN_TESTS_RT_H

#include "../../runtime/context.h"
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* New private folder below $TMPDIR or /tmp; removed with all in it by rt_remove. */
char *rt_folder(void);
void rt_remove(char *folder);

/* Files in a folder; with `suffix`, those that end so. */
int rt_count(const char *folder, const char *suffix);

char *rt_path(const char *folder, const char *name); /* "folder/name", malloc'd */
void rt_write(const char *path, const void *bytes, size_t size);
void *rt_read(const char *path, size_t *size);
/* The one entry of a cache folder, malloc'd path. */
char *rt_only_entry(const char *folder);

/* ---- a generator that compiles nothing ---- */

struct rt_generator {
    _Atomic int compiles, spec_texts;
    _Atomic int running, most_running; /* compiles at once */
    int delay_ms;
    kvk_status fail;                   /* compile fails with it */
    int fail_kind;                     /* only 'd'ecode, 's'tore, ...; 0 = all */
    const char *build_id;              /* NULL = the right one */
    uint32_t version;                  /* 0 = the right one */
    const char *extra;                 /* further manifest lines */
    const char *signature;             /* NULL = the fake's own; else slots are 16-bit K and V, and two fields */
    const char *drop;                  /* manifest line to leave out, by its first word(s) */
    int resident;
};
extern struct rt_generator rt_generator;

/* Registers it, all fields zero. */
void rt_generator_reset(void);

/* Its table. */
const struct gen_api *rt_generator_table(void);

/* Object bytes as that generator makes them; NULL without memory. */
void *rt_object(const struct gen_request *request, size_t *bytes);

/* ---- fake drivers ---- */

/*
** Runs the suite with the fake driver libraries as libcuda.so.1 and libamdhip64.so.6 of the loader: starts the program
** anew with LD_LIBRARY_PATH. Call first in main.
*/
void rt_with_fakes(char **argv);

/* New folder of HIP's topology: a processor, a gfx942 (the fake's hip:1) and a gfx1100 (its hip:0). rt_remove takes it away. */
char *rt_topology(void);
/* Sets or adds a node: the text of its properties. */
void rt_topology_node(const char *folder, int number, const char *text);

/* State of the fake inside a loaded library ("libcuda.so.1"), reset. */
struct fake *rt_fake(const char *library);

/* Opens cuda:0 of the fake with this cache folder (NULL: memory only). */
kvk_context *rt_open(const char *cache);
/* Queues the store of one row. */
void rt_store(kvk_context *ctx, kvk_stream stream);

/* What the log callback of a suite was told. */
extern struct rt_log {
    int warnings;
    char last[1024]; /* line, of whatever level */
} rt_log;
void rt_log_line(void *data, kvk_log_level level, const char *line);

/*
** Opens cuda:0 with this cache folder (NULL: that of the environment), prepares store and copy, closes. rt_log begins anew.
** `origin`, if not NULL: how the copy came to be.
*/
kvk_status rt_prepare(const char *cache, const char **origin, kvk_error *err);

/* Everything that launches, on memory of the context. */
kvk_status rt_launch_all(kvk_context *ctx, const kvk_kernels *k, kvk_error *err);

/* Opens, prepares all kinds, launches them, closes: whatever happens, what was opened is closed. `cache` as in rt_open. */
kvk_status rt_life(const char *device, const char *cache, kvk_error *err);

/* Manifest lines of a decode by images of pages; both as text. */
#define RT_IMAGES(heads, padding) "image_heads " heads "\nimage_padding " padding

/* A model: 2 KV heads, 8 query heads, head size 128, page 16, k8v4. */
struct kvk_model rt_model(void);
/* Aligned addresses that nothing reads; arguments of a short decode, made of them. */
void *rt_at(uintptr_t offset);
struct kvk_decode_args rt_decode_args(void);

#endif
