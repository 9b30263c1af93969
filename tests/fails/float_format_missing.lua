return preset {
  key = float {},
  value = affine { bits = 4 },
}
