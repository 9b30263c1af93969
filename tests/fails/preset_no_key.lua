return preset {
  value = affine { bits = 4 },
}
