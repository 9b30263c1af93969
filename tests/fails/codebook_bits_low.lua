return preset {
  key = codebook { bits = 1 },
  value = affine { bits = 4 },
}
