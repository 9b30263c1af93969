return preset {
  key = float { format = { "e4m3" } },
  value = affine { bits = 4 },
}
