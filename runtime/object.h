/* SPDX-License-Identifier: Apache-2.0 */
/*
** object.h - the sealed code object: what the generator hands to the cache, the cache to the drivers.
**
** One file or buffer: header, key text, manifest text, code, in this order, little-endian, each part's size in the
** header, one XXH3-128 checksum over all that follows it. Nothing in it depends on the machine it was made on.
**
** Manifest: "name value" lines. Names and who reads them:
**   kernel NAME          canonical kernel name
**   kind store|decode|unified|dequant
**   target sm_90a|gfx942|x86-64-v3 ...
**   format ptx|cubin|hsaco|host
**   abi N                KVK_ABI_VERSION
**   entry KIND SYMBOL THREADS SHARED_BYTES [OFFSET]
**                        one line an entry point (merge has two: merge and reduce, for decode); SHARED_BYTES is the dynamic shared
**                        memory to launch with; OFFSET: of the function in a host image
**   rows N               unified: query rows (token, head pairs) a CTA; decode: query rows a CTA
**   vectors N            store, dequant: (token, head) pairs a CTA
**   tile_tokens N        decode: tokens a CTA takes a step; splits are multiples of it
**   image_heads N        decode by images of pages: KV heads a CTA takes at most, a divisor of tile_tokens
**   image_padding N      bytes after every image_group token rows of an image, where a CTA takes that many
**   image_group N        4 (where there is no such line) or 8
**   turned 1             tensor copies bring images: a map follows decode's parameters (driver.h, tensor_map)
**   neighbours N         decode: the last CTA of a row's splits, or cluster of up to N of them, joins them where the launch
**                        gives it `arrivals`; else they are for the entry `reduce`
**   grid_wait 1          every entry begins by waiting for the kernels before it on its stream (kb_grid_wait)
**   layout.FIELD N       slot_bytes, slot_alignment, key_offset, key_bytes, value_offset, value_bytes, record_bytes (soa:
**                        data record; native: head block), fields, field_offset.I (aos: in the slot; native: in the
**                        block), head_size, value_head_size, page_tokens, gqa
**   layout.name aos|soa|native
**   signature TEXT
**   assembler TEXT       what made the cubin, with registers/spills lines as it reported them: "registers ENTRY N",
**                        "spills ENTRY BYTES"
**   plan.FIELD VALUE     every planned choice, for people
*/
#ifndef KVKILN_OBJECT_H
#define KVKILN_OBJECT_H

#include "kvkiln.h"

enum { KVK_ABI_VERSION = 8, KVK_OBJECT_VERSION = 1 };

/* Parts of a parsed object; all pointers lie inside the parsed buffer. Texts are NUL-terminated there. */
struct object {
    const char *key, *manifest;
    const void *code;
    size_t key_bytes, manifest_bytes, code_bytes; /* texts: without the NUL */
};

/* Seals the parts into one malloc'd buffer. */
kvk_status object_seal(const struct object *parts, void **out, size_t *out_bytes, kvk_error *err);

/* Checks header, sizes and checksum of any bytes whatever; KVK_E_OBJECT names what is wrong. Reads nothing outside. */
kvk_status object_parse(const void *bytes, size_t size, struct object *out, kvk_error *err);

/* Value of the first manifest line that starts with `name` and a space, copied (cut at the line's end). 0 if absent. */
int object_get(const struct object *object, const char *name, char *value, size_t cap);
int object_get_int(const struct object *object, const char *name, long long *value);

#endif
