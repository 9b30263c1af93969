return preset {
  key = block_float { group = 32 },
  value = affine { bits = 4 },
  layouts = { "aos" },
}
