-- SPDX-License-Identifier: Apache-2.0
-- Not measured: plans that the rules do not choose on this target, for the suite num_other_plans.
return {
    { kind = "decode", layout = "native", page = 16, plan = { images = 2, spread_tables = 1 } },
    { kind = "decode", layout = "soa", gqa = 1, plan = { spread_tables = 1, images = 2 } },
    { kind = "decode", layout = "soa", gqa = 4, plan = { images = 3, subtiles = 1, warps = 8 } },
    { kind = "decode", gqa = 6, plan = { images = 1, warps = 8 } },
    { kind = "decode", layout = "aos", gqa = 4, plan = { images = 2, spread_tables = 1 } },
    { kind = "decode", gqa = 1, plan = { spread_tables = 1 } },
    { kind = "decode", gqa = 4, plan = { spread_tables = 1, subtiles = 1, prefetch = 1 } },
    { kind = "decode", gqa = 8, plan = { narrow = 0, spread_tables = 1 } },
    { kind = "decode", plan = { narrow = 0, warps = 2 } },
    { kind = "unified", key = "fp16", plan = { dense = 2 } },
    { kind = "unified", key = "bf16", plan = { dense = 2 } },
}
