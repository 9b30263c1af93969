-- SPDX-License-Identifier: Apache-2.0
-- Written by `kvkiln tune --device cuda:0` on an NVIDIA H200 (16 sequences of 32,768 tokens, 8 KV heads, bf16): where a plan was
-- 2 percent and more faster than the rules' and spills nothing. The row for gqa 8 was added by hand, from `kvkiln bench decode
-- --plan`. Where nothing was faster there is no row (docs/performance.md, "Plans by tune": 4bit_nc of head size 128, others).
return {
  { kind = "decode", key = "codebook3", value = "affine3", layout = "aos", head_size = 128, value_head_size = 128,
    gqa = 4, page = 16, dtype = "bf16", plan = { prefetch = 0, quick = 0 },
    note = "164.45 us, by rule 173.38; 16x32768, 8 KV heads; NVIDIA H200" },
  { kind = "decode", key = "codebook4", value = "affine4", layout = "native", head_size = 64, value_head_size = 64,
    gqa = 4, page = 16, dtype = "bf16", plan = { prefetch = 0, images = 3 },
    note = "81.08 us, by rule 82.98; 16x32768, 8 KV heads; NVIDIA H200" },
  { kind = "decode", key = "codebook4", value = "affine4", layout = "soa", head_size = 64, value_head_size = 64,
    gqa = 4, page = 16, dtype = "bf16", plan = { prefetch = 0, producer = 1, quick = 1, dense = 0 },
    note = "83.57 us, by rule 87.87; 16x32768, 8 KV heads; NVIDIA H200" },
  { kind = "decode", key = "codebook4", value = "affine4", layout = "soa", head_size = 256, value_head_size = 256,
    gqa = 4, page = 16, dtype = "bf16", plan = { subtiles = 2, prefetch = 0, min_ctas = 1, quick = 1, dense = 0 },
    note = "259.48 us, by rule 303.01; 16x32768, 8 KV heads; NVIDIA H200" },
  { kind = "decode", key = "codebook4", value = "affine4", layout = "soa", head_size = 256, value_head_size = 256,
    gqa = 8, page = 16, dtype = "bf16", plan = { subtiles = 2, quick = 1 },
    note = "268.13 us, by rule 314.33; 16x32768, 8 KV heads; NVIDIA H200" },
}
