-- SPDX-License-Identifier: Apache-2.0
-- Uncompressed bf16 keys and values: for the layers that a model keeps out of compression.
return preset {
  key     = float { format = "bf16" },
  value   = float { format = "bf16" },
  layouts = { "aos" },
}
