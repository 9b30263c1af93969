# SPDX-License-Identifier: Apache-2.0
"""The header's structs for ctypes, and the library with the types of its calls. test_ctypes.py holds them against a compiler's
sizes and offsets."""
import ctypes as c

KVK_OK, KVK_E_ARG, KVK_E_UNSUPPORTED = 0, 1, 5
KVK_STORE, KVK_DECODE, KVK_DEQUANT = 1, 2, 8
KVK_FLOAT16, KVK_BFLOAT16, KVK_COMPILE_NEVER = 1, 2, 1
SIZE, I64, I32, PTR, STR = c.c_size_t, c.c_int64, c.c_int32, c.c_void_p, c.c_char_p


def struct_of(name, *fields):
    return type(name, (c.Structure,), {"_fields_": list(fields)})


Error = struct_of("kvk_error", ("status", c.c_int), ("driver", c.c_long), ("where", c.c_char * 48), ("text", c.c_char * 464))
Options = struct_of("kvk_options", ("size", SIZE), ("device", STR), ("cache_dir", STR), ("cache_bytes", c.c_uint64),
                    ("spec_dirs", STR), ("generator", STR), ("compile", c.c_int), ("log", PTR), ("log_data", PTR), ("packs", STR),
                    ("memory_packs", PTR), ("memory_pack_count", SIZE), ("prepare_threads", c.c_int), ("progress", PTR),
                    ("progress_data", PTR), ("overlap_launches", c.c_int))
Rows = struct_of("kvk_rows", ("data", PTR), ("row_stride", I64), ("head_stride", I64))
Pool = struct_of("kvk_pool", ("data", PTR), ("pages", I64), ("page_stride", I64), ("position_stride", I64), ("head_stride", I64))
Model = struct_of("kvk_model", ("size", SIZE), ("spec", STR), ("layout", STR), ("kv_heads", c.c_int), ("query_heads", c.c_int),
                  ("head_size", c.c_int), ("value_head_size", c.c_int), ("page_tokens", c.c_int), ("dtype", c.c_int),
                  ("dequant_dtype", c.c_int), ("kinds", c.c_uint), ("options", c.c_uint), ("plan", STR))
Layout = struct_of("kvk_layout", ("size", SIZE), ("slot_bytes", SIZE), ("page_bytes", SIZE), ("slot_alignment", SIZE),
                   ("position_stride", SIZE), ("head_stride", SIZE), ("key_offset", SIZE), ("key_bytes", SIZE),
                   ("value_offset", SIZE), ("value_bytes", SIZE), ("meta_offset", SIZE), ("fields", c.c_int),
                   ("field_offset", SIZE * 4), ("ratio", c.c_double), ("signature", STR))
Limits = struct_of("kvk_limits", ("size", SIZE), ("sequences", I64), ("query_tokens", I64), ("tokens", I64), ("context", I64),
                   ("batch_invariant", I32))
Store = struct_of("kvk_store_args", ("size", SIZE), ("pool", Pool), ("key", Rows), ("value", Rows), ("slots", PTR),
                  ("slot_type", c.c_int), ("rows", I64))
Decode = struct_of("kvk_decode_args", ("size", SIZE), ("pool", Pool), ("query", Rows), ("out", Rows), ("block_table", PTR),
                   ("table_stride", I64), ("lengths", PTR), ("sequences", I64), ("query_tokens", I64), ("max_context", I64),
                   ("scale", c.c_float), ("window", I32), ("sinks", PTR), ("lse", PTR), ("workspace", PTR),
                   ("workspace_bytes", SIZE), ("splits", I32), ("full", I32), ("soft_cap", c.c_float), ("alibi", PTR),
                   ("table_type", c.c_int), ("batch_invariant", I32))
Dequant = struct_of("kvk_dequant_args", ("size", SIZE), ("pool", Pool), ("key", Rows), ("value", Rows), ("block_table", PTR),
                    ("table_stride", I64), ("out_start", PTR), ("first_token", PTR), ("sequences", I64), ("rows", I64),
                    ("rotate_back", c.c_int), ("table_type", c.c_int))
KINDS = (Error, Options, Rows, Pool, Model, Layout, Limits, Store, Decode, Dequant)


def load(path):
    lib = c.CDLL(path)
    lib.kvk_version.restype = lib.kvk_status_name.restype = STR
    lib.kvk_workspace_bytes.restype = SIZE
    lib.kvk_workspace_bytes.argtypes = [PTR, PTR]
    lib.kvk_close.argtypes, lib.kvk_close.restype = [PTR], None
    lib.kvk_layout.argtypes = [PTR, PTR, PTR]
    lib.kvk_prepare.argtypes = [PTR, PTR, PTR, PTR]
    lib.kvk_store.argtypes = lib.kvk_decode.argtypes = lib.kvk_dequant.argtypes = [PTR, PTR, PTR, PTR]
    return lib


def made(kind, **fields):
    return kind(size=c.sizeof(kind), **fields)
