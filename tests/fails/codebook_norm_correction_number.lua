return preset {
  key = codebook { bits = 4, norm_correction = 1 },
  value = affine { bits = 4 },
}
