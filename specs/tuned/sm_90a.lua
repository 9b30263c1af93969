-- SPDX-License-Identifier: Apache-2.0
-- Put together by hand, not written by `kvkiln tune`: notes are microseconds of `bench suite` on an NVIDIA H200 at 7150ad8
-- (docs/suite-h200.md), 16 sequences of 32,768 tokens and 8 KV heads, bf16. What the rules choose is chosen here as well: these
-- shapes keep it when rules change. Images, warps and the assembler's options are left to the rules. Kernels with options
-- (soft cap, ALiBi) match no row of this table: rules alone decide for them.
return {
    { kind = "decode", key = "codebook4", value = "affine4", head_size = 128, value_head_size = 128, gqa = 1, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 140.4, native 141.1, aos 141.8" },
    { kind = "decode", key = "codebook4", value = "affine4", head_size = 128, value_head_size = 128, gqa = 4, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 141.2, native 142.3, aos 144.2" },
    { kind = "decode", key = "codebook4", value = "affine4", head_size = 128, value_head_size = 128, gqa = 8, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 141.4, aos 146.9; native 140.2" },
    { kind = "decode", key = "codebook3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 1, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 126.8, native 123.0" },
    { kind = "decode", key = "codebook3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 4, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 128.6, native 125.0" },
    { kind = "decode", key = "codebook3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 8, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 133.5; native 127.1" },
    { kind = "decode", key = "codebook3", value = "affine3", head_size = 128, value_head_size = 128, gqa = 4, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 157; native 123" },
    { kind = "decode", key = "e4m3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 1, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 193.0, native 191.1, aos 191.8" },
    { kind = "decode", key = "e4m3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 4, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 196.0, native 192.3, aos 194.7" },
    { kind = "decode", key = "e4m3", value = "affine4", head_size = 128, value_head_size = 128, gqa = 8, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "soa 200.2, native 193.0, aos 199.3" },
    { kind = "decode", key = "ultraquant", value = "ultraquant", head_size = 128, value_head_size = 128, gqa = 1, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "native 140.2, aos 149.9" },
    { kind = "decode", key = "ultraquant", value = "ultraquant", head_size = 128, value_head_size = 128, gqa = 4, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "native 142.1, aos 151.4" },
    { kind = "decode", key = "ultraquant", value = "ultraquant", head_size = 128, value_head_size = 128, gqa = 8, page = 16,
      plan = { narrow = 1, spread_tables = 1 }, note = "native 143.7, aos 155.7" },
}
