-- SPDX-License-Identifier: Apache-2.0
-- NVFP4: FP4 keys and values, one e4m3 scale per 16: 144 bytes a token and head at head size 128, 3.6 times smaller
-- than 16 bits. An example of block_float; ultraquant_4bit errs less on keys, which it rotates.
return preset {
  key     = block_float { rule = "nvfp4", element = "e2m1", scale = "e4m3", group = 16, rotation = "none" },
  value   = block_float { rule = "nvfp4", element = "e2m1", scale = "e4m3", group = 16, rotation = "none" },
  layouts = { "aos" },
}
