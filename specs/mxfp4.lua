-- SPDX-License-Identifier: Apache-2.0
-- MXFP4: FP4 keys and values, one power-of-two scale per 32: 136 bytes a token and head at head size 128, 3.8 times
-- smaller than 16 bits. An example of block_float.
return preset {
  key     = block_float { rule = "mxfp4", element = "e2m1", scale = "ue8m0", group = 32, rotation = "none" },
  value   = block_float { rule = "mxfp4", element = "e2m1", scale = "ue8m0", group = 32, rotation = "none" },
  layouts = { "aos" },
}
