return preset {
  key = { bits = 4 },
  value = affine { bits = 4 },
}
