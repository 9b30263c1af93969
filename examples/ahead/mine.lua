-- SPDX-License-Identifier: Apache-2.0
-- A format of one's own: 4-bit keys as in turboquant_4bit_nc, 3-bit values.
return preset "turboquant_4bit_nc" {
  value = affine { bits = 3, scale = "fp16", zero = "fp16" },
}
