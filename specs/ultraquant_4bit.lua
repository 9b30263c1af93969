-- SPDX-License-Identifier: Apache-2.0
-- Rotated FP4 keys, FP4 values, one power-of-two scale per 32: 136 bytes a token and head at head size 128.
return preset {
  key     = block_float { rule = "ultraquant", element = "e2m1", scale = "ue8m0", group = 32, rotation = "hadamard" },
  value   = block_float { rule = "ultraquant", element = "e2m1", scale = "ue8m0", group = 32, rotation = "none" },
  layouts = { "aos", "native" },
  query   = "native",
}
