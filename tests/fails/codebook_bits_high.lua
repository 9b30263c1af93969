return preset {
  key = codebook { bits = 5 },
  value = affine { bits = 4 },
}
