return preset {
  key = codebook { bits = 4, unbiased_norm = 1 },
  value = affine { bits = 4 },
}
