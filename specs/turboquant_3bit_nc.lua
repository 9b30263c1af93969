-- SPDX-License-Identifier: Apache-2.0
-- Rotated 3-bit keys, 3-bit values: 102 bytes a token and head at head size 128, 5.0 times smaller than 16 bits.
return preset {
  key     = codebook { bits = 3, centroids = "lloyd_max", rotation = "hadamard", norm = "fp16", norm_correction = true },
  value   = affine   { bits = 3, scale = "fp16", zero = "fp16" },
  layouts = { "aos", "soa", "native" },
}
