return preset {
  key = float { format = "bf16" },
  value = affine { bits = 4 },
  layouts = { "aos", "native" },
}
