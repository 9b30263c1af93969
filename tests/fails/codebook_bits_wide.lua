return preset {
  key = codebook { bits = (1 << 32) + 4 },
  value = affine { bits = 4 },
}
