-- SPDX-License-Identifier: Apache-2.0
-- 8-bit float keys, 4-bit values: 196 bytes a token and head at head size 128, 2.6 times smaller than 16 bits.
return preset {
  key     = float  { format = "e4m3" },
  value   = affine { bits = 4, scale = "fp16", zero = "fp16" },
  layouts = { "aos", "soa", "native" },
}
