-- SPDX-License-Identifier: Apache-2.0
-- Uncompressed fp16 keys and values: for the layers that a model keeps out of compression.
return preset {
  key     = float { format = "fp16" },
  value   = float { format = "fp16" },
  layouts = { "aos" },
}
