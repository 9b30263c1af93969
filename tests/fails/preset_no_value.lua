return preset {
  key = affine { bits = 4 },
}
