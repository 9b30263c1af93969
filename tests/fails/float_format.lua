return preset {
  key = float { format = "e3m4" },
  value = affine { bits = 4 },
}
