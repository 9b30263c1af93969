return preset {
  key = codebook { bits = 0/0 },
  value = affine { bits = 4 },
}
