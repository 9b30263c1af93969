return preset {
  key = block_float { rule = "ultraquant" },
  value = affine { bits = 4 },
  layouts = { "aos", "soa" },
}
