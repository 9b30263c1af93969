-- SPDX-License-Identifier: Apache-2.0
-- 8-bit float keys and values without scales: half the bytes of 16 bits.
return preset {
  key     = float { format = "e4m3" },
  value   = float { format = "e4m3" },
  layouts = { "aos" },
}
