return preset {
  key = codebook { bits = 3.5 },
  value = affine { bits = 4 },
}
