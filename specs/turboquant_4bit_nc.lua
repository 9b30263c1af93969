-- SPDX-License-Identifier: Apache-2.0
-- Rotated 4-bit keys, 4-bit values: 134 bytes a token and head at head size 128, 3.8 times smaller than 16 bits.
return preset {
  key     = codebook { bits = 4, centroids = "lloyd_max", rotation = "hadamard", norm = "fp16", norm_correction = true },
  value   = affine   { bits = 4, scale = "fp16", zero = "fp16" },
  layouts = { "aos", "soa", "native" },
}
